"""Scoring in partitions: shards in any order, resumption, merged outputs, and what is refused."""

import json
import pickle
import shutil
import signal
import types

import numpy as np
import pytest
from conftest import limited_file_size

import wqa.cluster.job as job_module
import wqa.cluster.run as run_module
import wqa.cluster.scorer as scorer_module
from wqa.cli import main
from wqa.cluster import (
    PartitionScorer,
    ScoringJob,
    merge_shards,
    parse_shard,
    run_partitions,
    shard_partitions,
)
from wqa.cluster.partition_files import partition_path, read_manifest
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.scores import StoredScores
from wqa.errors import DataError, OptionError, Stopped, StorageError
from wqa.evaluation import read_run, write_run
from wqa.io.files import machine
from wqa.io.locks import lock_output
from wqa.io.progress import StopRequest
from wqa.systems.load import load_ranker
from wqa.systems.scores import score_in_memory, write_scores

QUESTIONS = list(read_questions(builtin_path("dev")))[:9]
#: Estimated tokens of which the questions make five partitions.
SMALL = 500


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "few.jsonl"
    write_questions(path, QUESTIONS)
    return path


@pytest.fixture(scope="module")
def whole(tiny_run, data, tmp_path_factory):
    """The folder that one process writes."""
    out = tmp_path_factory.mktemp("whole") / "scores"
    write_scores(tiny_run, data, out, partition_tokens=SMALL)
    return out


@pytest.fixture
def job(tiny_run, data, tmp_path):
    return ScoringJob(str(tiny_run), str(data), str(tmp_path / "out"), partition_tokens=SMALL)


def contents(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


# Shards


def test_shards_have_every_partition_once():
    for count in (1, 2, 3, 7):
        taken = []
        for index in range(1, count + 1):
            mine = shard_partitions(10, (index, count))
            assert all(part % count == index - 1 for part in mine)
            taken += mine
        assert sorted(taken) == list(range(10))
    assert shard_partitions(2, (3, 3)) == []


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "1", "a/b", "-1/3", "1/3/3", "", "٣/٤"])
def test_a_shard_out_of_range_is_refused(text, capsys):
    with pytest.raises(OptionError, match="shard: "):
        parse_shard(text)
    command = ["score", "wo", "--data", "no.jsonl", "--out", "out", f"--shard={text}"]
    assert main(command) == 2
    assert "error: --shard: " in capsys.readouterr().err


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_shards_in_any_order_give_the_bytes_of_one_process(
    tiny_run, data, whole, tmp_path, order, capsys
):
    """In calls of their own; the last one merges, and removes the partitions."""
    out = tmp_path / "out"
    command = ["score", str(tiny_run), "--data", str(data), "--out", str(out)]
    command += ["--partition-tokens", str(SMALL)]
    for shard in order:
        assert not out.exists()
        assert main([*command, "--shard", f"{shard}/3"]) == 0
    text = capsys.readouterr().out.splitlines()
    count = 1 if order[0] == 3 else 2
    assert f"out.partitions: {count} of 5 partitions scored, {5 - count} are missing" in text[0]
    assert "out: 9 questions, 75 candidates, 0 blank" in text[2]
    assert "5 partitions took" in text[3]
    assert contents(out) == contents(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    # Any of them again: nothing is left to do.
    assert main([*command, "--shard", "2/3"]) == 0
    assert "out: 9 questions, 75 candidates" in capsys.readouterr().out


def test_a_shard_without_a_partition(job, capsys):
    report = run_partitions(job, (9, 9))
    assert (report.meta, report.partitions, report.computed, report.missing) == (None, 5, 0, 5)
    assert "shard 9/9 has nothing to score: there are 5 partitions" in capsys.readouterr().err


def test_a_partition_is_scored_by_itself_and_twice_to_the_same_bytes(job, whole, monkeypatch):
    """Backwards, each by a ranker of its own: no micro-batch has questions of two partitions."""
    monkeypatch.setattr(run_module, "merge_partitions", None)
    for index in (4, 3, 2, 1, 0, 0):
        with PartitionScorer(job) as scorer:
            manifest = scorer.open_manifest()
            scorer.compute(manifest, index)
    keys, scores = [], []
    for index, partition in enumerate(manifest.partitions):
        stored = job.files(manifest).read(index)
        scored = job.unpack(stored.content, partition)
        assert sum(scored.lengths) == partition.texts
        assert stored.facts["seconds"] > 0
        keys.append(scored.arrays["keys"])
        scores.append(scored.arrays["scores"])
    assert np.concatenate(keys).tobytes() == (whole / "keys.bin").read_bytes()
    assert np.concatenate(scores).tobytes() == (whole / "scores.bin").read_bytes()


# Outputs


def test_lines_of_json_have_the_rankings(tiny_run, data, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["score", str(tiny_run), "--data", str(data), "--out", str(out), "--format", "jsonl"]
    assert main([*command, "--json", str(tmp_path / "figures.json")]) == 0
    rows = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    rankings = list(load_ranker(tiny_run).rank_all(QUESTIONS))
    assert [row["id"] for row in rows] == [question.id for question in QUESTIONS]
    for row, ranking, question in zip(rows, rankings, QUESTIONS):
        scores = np.array(row["scores"], np.float32)
        assert scores.tobytes() == ranking.scores.astype(np.float32).tobytes()
        assert row["order"] == ranking.order.tolist()
        assert row["exits"] == ranking.exits.tolist()
        ids = [candidate.id for candidate in question.candidates]
        assert row.get("candidates") == (ids if any(ids) else None)
    meta = json.loads((out / "meta.json").read_text())
    assert (meta["output"], meta["questions"], meta["run"]) == ("jsonl", 9, str(tiny_run))
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["partitions"], figures["computed"], figures["missing"]) == (1, 1, 0)
    assert figures["seconds"] > 0 and figures["cpu_seconds"] > 0 and figures["meta"] == meta
    # It stays as it is; another form of output has no place in the folder.
    before = contents(out)
    assert main(command) == 0 and contents(out) == before
    capsys.readouterr()
    assert main([*command[:-1], "trec"]) == 2
    assert "a folder with other files" in capsys.readouterr().err
    assert main(command[:-2]) == 2 and contents(out) == before
    (out / "scores.jsonl").write_text("{}\n")
    capsys.readouterr()
    assert main(command) == 2
    assert "scores.jsonl: 3 bytes" in capsys.readouterr().err


def test_a_trec_run_is_that_of_the_rankings(tiny_run, data, tmp_path):
    out = tmp_path / "out"
    settings = {"output": "trec", "partition_tokens": SMALL}
    with pytest.raises(OptionError, match="run_writer: None"):
        ScoringJob(str(tiny_run), str(data), str(out), **settings)
    job = ScoringJob(str(tiny_run), str(data), str(out), run_writer=write_run, **settings)
    run_partitions(job)
    rankings = []
    for start, end in bounds(job):
        rankings += load_ranker(tiny_run).rank_all(QUESTIONS[start:end])
    write_run(tmp_path / "expected.trec", QUESTIONS, rankings)
    assert (out / "run.trec").read_bytes() == (tmp_path / "expected.trec").read_bytes()
    assert len(read_run(out / "run.trec")) == 9


def bounds(job):
    """First and last question of each partition of a job, whose manifest is gone."""
    with PartitionScorer(ScoringJob(**{**vars(job), "out": f"{job.out}2"})) as scorer:
        partitions = scorer.open_manifest().partitions
    return [(part.line - 1, part.line - 1 + part.read) for part in partitions]


def test_ties_of_a_trec_run_follow_trec_evals_rule(tmp_path):
    """Candidates of equal scores, by descending id; blank ones last."""
    candidates = (
        Candidate("rain", id="a"),
        Candidate("", id="z"),
        Candidate("rain", id="c"),
        Candidate("who is the moon ?", id="b"),
    )
    data = tmp_path / "ties.jsonl"
    write_questions(data, [Question("q", "who is the moon ?", candidates)])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), output="trec", run_writer=write_run)
    run_partitions(job)
    lines = (tmp_path / "out" / "run.trec").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["b", "c", "a", "z"]


def test_a_name_that_no_trec_run_can_hold_is_refused_before_anything_is_scored(tmp_path):
    data = tmp_path / "spaces.jsonl"
    write_questions(data, [Question("q 1", "who ?", (Candidate("rain"),))])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), output="trec", run_writer=write_run)
    with pytest.raises(DataError, match="question 'q 1': the id holds white space"):
        run_partitions(job)
    assert not job.folder.exists()


def test_blank_candidates_filters_and_skipped_questions(tiny_run, tmp_path):
    data = tmp_path / "mixed.jsonl"
    questions = [
        Question("blank", "who ?", (Candidate(" ", 0), Candidate("the moon", 1))),
        Question("long", "the " * 60, (Candidate("the moon", 1),)),
        Question("none", "who ?", (Candidate("the sun", 0),)),
        Question("last", "who ?", (Candidate("the sun", 1),)),
    ]
    write_questions(data, questions)
    options = {"long_questions": "skip"}
    settings = {"filter": "no-all-negative", "partition_tokens": 10, "options": options}
    for output in ("jsonl", "logits"):
        job = ScoringJob(
            str(tiny_run), str(data), str(tmp_path / output), output=output, **settings
        )
        report = run_partitions(job)
        counts = [report.meta[name] for name in ("questions", "pairs", "blank")]
        assert counts == [2, 3, 1] and report.meta["skipped_questions"] == 1
    one = tmp_path / "one"
    settings.update(settings.pop("options"))
    write_scores(tiny_run, data, one, **settings)
    assert contents(one) == contents(tmp_path / "logits")
    lines = (tmp_path / "jsonl" / "scores.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["id"] for row in rows] == ["blank", "last"]
    assert rows[0]["scores"][0] is None and rows[0]["order"] == [1, 0]


# Resumption


def kill_after(monkeypatch, count):
    """Partitions after which a scoring ends, as by a signal that cannot be handled."""
    compute, calls = PartitionScorer.compute, []

    class Killed(BaseException):
        pass

    def deadly(scorer, *arguments):
        calls.append(1)
        if len(calls) > count:
            raise Killed
        compute(scorer, *arguments)

    monkeypatch.setattr(PartitionScorer, "compute", deadly)
    return Killed


@pytest.mark.parametrize("count", [0, 2])
def test_a_stopped_scoring_is_continued(job, whole, monkeypatch, count):
    with monkeypatch.context() as patch, pytest.raises(kill_after(patch, count)):
        run_partitions(job)
    # What a killed writer leaves of a partition that it was about to write.
    path = partition_path(job.folder, count)
    path.parent.mkdir(exist_ok=True)
    dead = path.with_name(f".{path.name}.{machine()}.{2**22 + 1}.tmp")
    dead.write_bytes(b"half")
    removed = []
    compute = PartitionScorer.compute

    def scored(scorer, *arguments):
        compute(scorer, *arguments)
        removed.append(not dead.exists())

    monkeypatch.setattr(PartitionScorer, "compute", scored)
    report = run_partitions(job)
    assert (report.computed, report.partitions) == (5 - count, 5) and all(removed)
    assert contents(whole.with_name("scores")) == contents(job.folder.with_name("out"))


@pytest.mark.parametrize("again", [run_partitions, merge_shards])
@pytest.mark.parametrize("function", ["_remove_partitions", "shutil.rmtree"])
def test_what_a_killed_merge_leaves_is_removed(tmp_path, monkeypatch, function, again):
    """It was killed after the scores were merged: before or after the folder was renamed."""

    class Killed(BaseException):
        pass

    def deadly(*arguments, **options):
        raise Killed

    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=1)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(f"wqa.cluster.run.{function}", deadly)
        run_partitions(job)
    for path in tmp_path.glob(".out.partitions.*.tmp"):  # of this process, which lives
        path.rename(tmp_path / f".out.partitions.{machine()}.{2**22 + 1}.tmp")
    assert len(list(tmp_path.iterdir())) == 3
    if function == "_remove_partitions":
        with lock_output(job.folder):  # somebody uses it
            assert again(job).meta["questions"] == 2
        assert job.folder.exists()
    assert again(job).meta["questions"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.jsonl", "out"]


@pytest.mark.parametrize("name", ["thesis.txt", "000/mine.partition", "old/manifest.json", "empty"])
def test_a_merge_keeps_other_files_among_the_partitions(tmp_path, monkeypatch, name):
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=1)
    compute = PartitionScorer.compute

    def with_a_file(scorer, *arguments):
        compute(scorer, *arguments)
        path = job.folder / name
        (path if name == "empty" else path.parent).mkdir(exist_ok=True)
        if name != "empty":
            path.write_text("mine")

    monkeypatch.setattr(PartitionScorer, "compute", with_a_file)
    assert run_partitions(job).meta["questions"] == 2
    left = [path for path in job.folder.rglob("*") if path.is_file()]
    assert left == ([job.folder / name] if name != "empty" else [])
    assert (job.folder / name).exists()


def test_partitions_of_another_job_stay_beside_merged_scores(tmp_path):
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=1)
    run_partitions(job)
    other = ScoringJob("wo", str(data), str(tmp_path / "other"), filter="clean")
    with PartitionScorer(other) as scorer:
        scorer.open_manifest()
    other.folder.rename(job.folder)
    assert run_partitions(job).meta["questions"] == merge_shards(job).meta["questions"] == 2
    assert read_manifest(job.folder).made_with["filter"] == "clean"


def test_a_signal_ends_the_work_after_a_partition(job, monkeypatch):
    stop = StopRequest()
    compute = PartitionScorer.compute

    def last(scorer, *arguments):
        compute(scorer, *arguments)
        stop.signal = signal.SIGTERM

    monkeypatch.setattr(PartitionScorer, "compute", last)
    with pytest.raises(Stopped, match="out.partitions, 1 of 5 partitions: stopped by signal 15"):
        run_partitions(job, stop=stop)
    assert job.files(read_manifest(job.folder)).has(0)


def test_a_full_disk_in_a_partition(job, whole):
    """The error names the file; nothing is left of it; all is scored afterwards."""
    run_partitions(job, (9, 9))  # the manifest
    with limited_file_size(200), pytest.raises(StorageError, match="000000.partition: could not"):
        run_partitions(job)
    assert [path.name for path in job.folder.glob("000/*")] == []
    assert run_partitions(job).computed == 5
    assert contents(job.folder.with_name("out")) == contents(whole)


def test_a_full_disk_in_the_merge_keeps_the_partitions(job, whole, monkeypatch):
    monkeypatch.setattr(run_module, "_merge_if_whole", lambda *arguments: None)
    run_partitions(job)
    monkeypatch.undo()
    with limited_file_size(100), pytest.raises(StorageError):
        merge_shards(job)
    assert len(list(job.folder.glob("000/*"))) == 5
    merge_shards(job)
    assert contents(job.folder.with_name("out")) == contents(whole)


def test_damaged_partitions(job, whole):
    """One that is cut off is scored again; one that has changed is found by the merge."""
    run_partitions(job, (1, 2))
    path = partition_path(job.folder, 2)
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert run_partitions(job, (1, 2)).computed == 1
    assert path.read_bytes()[-50:] == content[-50:]
    changed = bytearray(content)
    changed[-70] ^= 1
    path.write_bytes(changed)
    with pytest.raises(DataError, match="000002.partition: has changed: its SHA-256"):
        run_partitions(job, (2, 2))
    path.unlink()
    assert run_partitions(job).computed == 1
    assert contents(job.folder.with_name("out")) == contents(whole)


@pytest.mark.parametrize(
    "damage, has",
    [
        (lambda header: header["bytes"].update(keys="8"), False),
        (lambda header: header["bytes"].update(keys=-8), False),
        (lambda header: header["bytes"].update(keys=header["bytes"]["keys"] + 1), False),
        (lambda header: header.update(bytes=[1]), False),
        (lambda header: header.update(counts=None), False),
        (lambda header: header["counts"].pop("blank"), False),
        # The first line alone does not tell; the digest does.
        (lambda header: header["counts"].update(pairs=header["counts"]["pairs"] + 1), True),
        (lambda header: header["counts"].update(blank=1), True),
    ],
)
def test_a_first_line_that_has_changed(tmp_path, damage, has):
    """It is not taken for a scored partition, or the merge finds it; never another exception."""
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=1)
    run_partitions(job, (1, 2))
    manifest, path = read_manifest(job.folder), partition_path(job.folder, 0)
    line, _, body = path.read_bytes().partition(b"\n")
    header = json.loads(line)
    damage(header)
    path.write_bytes(json.dumps(header).encode() + b"\n" + body)
    with pytest.raises(DataError, match="000000.partition: (is no partition|has changed)"):
        job.files(manifest).read(0)
    assert job.files(manifest).has(0) == has


def test_a_corpus_that_changes_after_the_manifest(tmp_path):
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:4])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"))
    with PartitionScorer(job) as scorer:
        manifest = scorer.open_manifest()
        write_questions(data, QUESTIONS[:3])
        with pytest.raises(DataError, match="few.jsonl, from line 1: 3 lines, .*expected 4 lines"):
            scorer.compute(manifest, 0)
    assert not job.files(manifest).has(0)


def test_nothing_is_written_beside_merged_scores(tmp_path):
    """A process that is late does not bring the folder back."""
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"))
    with PartitionScorer(job) as late:
        manifest = late.open_manifest()
        run_partitions(job)
        with pytest.raises(DataError, match="out.partitions: the manifest is gone"):
            late.compute(manifest, 0)
    assert not job.folder.exists()


def test_merge_says_what_is_missing(job, whole, tmp_path, capsys):
    command = ["score", job.run, "--data", job.data, "--out", job.out, "--merge"]
    command += ["--partition-tokens", str(SMALL)]
    assert main(command) == 2
    assert "out.partitions: holds no partitions" in capsys.readouterr().err
    run_partitions(job, (1, 2))
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "partition 1 is missing, of 2 that are; expected 5 partitions" in error
    with lock_output(job.out):  # another process merges
        report = run_partitions(job, (2, 2))
        assert (report.meta, report.computed, report.missing) == (None, 2, 0)
        assert "are not merged yet: " in capsys.readouterr().err
        # Nothing was merged: that is no success.
        assert main(command) == 2
        assert "out: locked by process " in capsys.readouterr().err
        assert main([*command[:-3], *command[-2:], "--shard", "2/2"]) == 0
        captured = capsys.readouterr()
        assert "not merged yet; unless another process merges them, run --merge" in captured.out
        assert "out is locked by process " in captured.err
    assert main([*command, "--filter", "clean"]) == 2
    assert "made with filter 'all'; expected 'clean'" in capsys.readouterr().err
    assert main(command) == 0
    assert contents(job.folder.with_name("out")) == contents(whole)
    assert main(command) == 0


def test_a_scoring_in_one_process_that_was_stopped_does_not_stand_in_the_way(job, whole):
    partial = job.folder.with_name(".out.partial")
    partial.mkdir()
    (partial / "meta.json").write_text('{"wqa": {"kind": "folder of scores", "version": 1}}')
    (partial / "keys.bin").write_bytes(b"x" * 16)
    run_partitions(job)
    assert contents(job.folder.with_name("out")) == contents(whole)


# What is refused


def test_a_manifest_of_another_job_is_refused(job, data, tmp_path):
    run_partitions(job, (1, 5))
    before = read_manifest(job.folder)

    def refused(match, **changes):
        other = ScoringJob(**{**vars(job), **changes})
        with pytest.raises(DataError, match=match) as caught:
            run_partitions(other)
        assert "repeat the command" in str(caught.value) or "threads=" in str(caught.value)

    write_questions(tmp_path / "other.jsonl", QUESTIONS[:3])
    refused("made with data_sha256 ", data=str(tmp_path / "other.jsonl"))
    run = tmp_path / "run"
    shutil.copytree(job.run, run)
    config = json.loads((run / "config.json").read_text())
    config["max_length"] = 48
    del config["sha256"]
    (run / "config.json").write_text(json.dumps(config))
    refused("made with ranker_sha256 ", run=str(run))
    refused("made with system 'cascade'; expected 'wo'|made with ranker_sha256 ", run="wo")
    refused("made with filter 'all'; expected 'clean'", filter="clean")
    refused("made with partition_tokens 500; expected 501", partition_tokens=501)
    refused("made with partition_tokens 500; expected None", partition_tokens=1 << 18)
    refused("made with engine 'auto'; expected 'mxnet'", options={"engine": "mxnet"})
    refused("made with long_questions 'error'", options={"long_questions": "skip"})
    refused("made with pool None; expected 'batch'", options={"pool": "batch"})
    assert read_manifest(job.folder) == before


@pytest.mark.parametrize("output", ["logits", "jsonl"])
def test_merged_scores_of_other_options_are_refused(job, output):
    """What changes scores is compared when the manifest is gone, too."""

    def other(**options):
        return ScoringJob(**{**vars(job), "output": output, "options": options})

    first = other(drop_ratio=0.5, pool="batch", pool_size=2)
    run_partitions(first)
    assert not job.folder.exists()
    report = run_partitions(first)
    settings = [report.meta[name] for name in ("drop_ratio", "pool", "pool_size")]
    assert settings == [0.5, "batch", 2] and report.computed == 0
    for match, options in [
        ("drop_ratio 0.5; expected 0.3", {"drop_ratio": 0.3, "pool": "batch", "pool_size": 2}),
        ("drop_ratio 0.5; expected None", {"pool": "batch", "pool_size": 2}),
        ("pool 'batch'; expected None", {"drop_ratio": 0.5, "pool": "question", "pool_size": 2}),
        ("pool_size 2; expected 3", {"drop_ratio": 0.5, "pool": "batch", "pool_size": 3}),
    ]:
        for score in (run_partitions, merge_shards):
            with pytest.raises(DataError, match=f"made with {match}"):
                score(other(**options))
    if output == "logits":
        with pytest.raises(DataError, match="made with drop_ratio 0.5; expected None"):
            write_scores(job.run, job.data, job.out, partition_tokens=SMALL)


def test_other_threads_and_versions_are_refused(job, monkeypatch, capsys):
    """Either would change the last bits."""
    run_partitions(job, (1, 5))
    settings = scorer_module.machine_settings

    def other(**changes):
        monkeypatch.setattr(
            scorer_module, "machine_settings", lambda options: {**settings(options), **changes}
        )
        return main(
            ["score", job.run, "--data", job.data, "--out", job.out, "--shard", "2/5"]
            + ["--partition-tokens", str(SMALL)]
        )

    used = settings({})["threads"]
    assert other(threads=used + 1) == 2
    error = capsys.readouterr().err
    assert f"made with threads {used}; expected {used + 1}; give --threads {used} on" in error
    assert other(mxnet="9.9") == 2
    assert "made with mxnet '1.9.1'; expected '9.9'" in capsys.readouterr().err
    assert other(onednn=not settings({})["onednn"]) == 2
    assert other() == 0


@pytest.mark.parametrize(
    "damage, match",
    [
        (lambda text: text[: len(text) // 2], "manifest.json: cannot be read"),
        (lambda text: "", "manifest.json: cannot be read"),
        (lambda text: "[]", "is no manifest"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format 2; expected format 1"),
        (lambda text: text.replace('"filter": "all"', '"filter": "any"'), "manifest.json: SHA-256"),
        (lambda text: text.replace("[\n[", "[\n[-"), "is no manifest"),
        (lambda text: text.replace("[\n[", '[\n["1", '), "is no manifest"),
        (lambda text: text.replace('"partitions"', '"parts"'), "is no manifest"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path, damage, match):
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=1)
    run_partitions(job, (1, 3))
    path = job.folder / "manifest.json"
    changed = damage(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(DataError, match=match) as caught:
        run_partitions(job)
    assert "delete" in str(caught.value) and path.read_text() == changed


def test_other_files_are_kept(tmp_path):
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"))
    job.folder.mkdir()
    (job.folder / "thesis.txt").write_text("")
    with pytest.raises(OptionError, match="out: .*out.partitions is beside it, with other files"):
        run_partitions(job)
    (job.folder / "thesis.txt").unlink()
    for output in ("logits", "jsonl"):
        other = ScoringJob("wo", str(data), str(tmp_path / "out"), output=output)
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "thesis.txt").write_text("")
        with pytest.raises(OptionError, match="out: .*out, a folder with other files"):
            run_partitions(other)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").write_text("")
    with pytest.raises(OptionError, match="out: .*out, a file"):
        run_partitions(job)
    assert not list(job.folder.iterdir())


def test_a_run_of_another_program_is_kept(tmp_path):
    """Also where partitions are there: a killed merge leaves it in a folder with the mark."""
    data, out = tmp_path / "few.jsonl", tmp_path / "out"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob(
        "wo", str(data), str(out), partition_tokens=1, output="trec", run_writer=write_run
    )
    out.mkdir()
    (out / "run.trec").write_text("mine")
    with pytest.raises(OptionError, match="out, a folder with other files"):
        run_partitions(job)
    assert (out / "run.trec").read_text() == "mine" and not job.folder.exists()
    (out / "run.trec").unlink()
    run_partitions(job, (1, 2))
    (out / "run.trec").write_text("half")
    with pytest.raises(OptionError, match="out, a folder with other files"):
        run_partitions(job)
    (out / "run.trec").unlink()
    assert run_partitions(job).meta["questions"] == 2


def test_wrong_jobs(tmp_path, capsys):
    with pytest.raises(OptionError, match="filter: 'best'"):
        ScoringJob("wo", "few.jsonl", "out", filter="best")
    with pytest.raises(OptionError, match="output: 'csv'"):
        ScoringJob("wo", "few.jsonl", "out", output="csv")
    with pytest.raises(OptionError, match="partition_tokens: 0"):
        ScoringJob("wo", "few.jsonl", "out", partition_tokens=0)
    command = ["score", "wo", "--data", "ir:wikir/en1k/test", "--out", str(tmp_path / "out")]
    assert main([*command, "--shard", "1/2"]) == 2
    assert "--data: ir:wikir/en1k/test, which has no lines" in capsys.readouterr().err
    command = [
        "score",
        "wo",
        "--data",
        "no.jsonl",
        "--out",
        str(tmp_path / "out"),
        "--shard",
        "1/2",
    ]
    assert main(command) == 2 and "no.jsonl" in capsys.readouterr().err
    assert main([*command, "--merge"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_to_score(tmp_path):
    data = tmp_path / "wrong.jsonl"
    write_questions(data, [Question("q", "who ?", (Candidate("rain", 0),))])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), filter="clean")
    with pytest.raises(DataError, match="wrong.jsonl: no question is left to score"):
        run_partitions(job)
    assert not job.folder.exists()


def test_one_writes_the_manifest_and_others_wait(tmp_path, monkeypatch):
    """Whoever waits takes the manifest that is there, without reading the corpus."""
    data = tmp_path / "few.jsonl"
    write_questions(data, QUESTIONS[:2])
    job = ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=1)
    first, second = PartitionScorer(job), PartitionScorer(job)
    lock = lock_output(job.folder)
    lock.__enter__()
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            lock.__exit__(None, None, None)
            first.open_manifest()
            monkeypatch.setattr(PartitionScorer, "divide", None)

    monkeypatch.setattr(job_module, "time", types.SimpleNamespace(sleep=pause))
    manifest = second.open_manifest()
    assert len(pauses) == 2 and len(manifest.partitions) == 2


def test_partitions_of_other_processors_are_noted(job, capsys, monkeypatch):
    run_partitions(job, (1, 2))
    monkeypatch.setattr(job_module, "_instruction_sets", lambda: "x86_64 avx9")
    run_partitions(job, (2, 2))
    error = capsys.readouterr().err
    assert "different instruction sets, whose scores agree to rounding: x86_64" in error
    assert "avx9" in error


def test_a_job_can_be_sent_to_another_process(job):
    assert pickle.loads(pickle.dumps(job)) == job


def test_teachers_teach_the_same_from_any_partitions(job, whole, tiny_encoder, tmp_path):
    """Merged by shards, in the folder of one process, or in line: one partition, one score."""
    for shard in ((2, 2), (1, 2)):
        run_partitions(job, shard)
    merged = StoredScores(job.out)
    assert merged.digest == StoredScores(whole).digest
    in_line = score_in_memory(job.run, job.data, partition_tokens=SMALL)
    assert in_line.keys.tobytes() == merged.keys.tobytes()
    assert in_line.scores.tobytes() == merged.scores.tobytes()
    command = ["train", "pairwise", "--encoder", str(tiny_encoder), "--train", job.data]
    command += ["--max-updates", "2", "--tokens-per-batch", "400", "--max-length", "64"]
    for name, teacher in (("merged", job.out), ("one", str(whole))):
        student = [*command, "--teachers", teacher, "--alpha", "0.1", "--tau", "3"]
        assert main([*student, "--out", str(tmp_path / name)]) == 0
    students = [(tmp_path / name / "model.params").read_bytes() for name in ("merged", "one")]
    assert students[0] == students[1]
