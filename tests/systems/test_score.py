"""Scores of a corpus by a ranker: their keys, and the folders of `wqa score`."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from conftest import contents, few_questions
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.cli import main
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.digests import ranker_digest
from wqa.data.scores import StoredScores, candidate_keys
from wqa.errors import DataError, OptionError, OutputLocked, QuestionTooLong
from wqa.evaluation import write_run
from wqa.io.files import lock_output
from wqa.systems.load import load_ranker
from wqa.systems.scores import ScoringTask, write_scores

QUESTIONS = list(read_questions(builtin_path("dev")))[:9]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return few_questions(tmp_path_factory.mktemp("questions") / "few.jsonl", len(QUESTIONS))


#: Estimated tokens of which the few questions make several partitions.
SMALL = 600


def arrays_of(folder):
    return [(folder / f"{name}.bin").read_bytes() for name in ("keys", "scores")]


# Keys

ONE = Question("Q1", "who ?", (Candidate("the moon", 1, "D1"), Candidate("the sun", 0)))


def test_a_key_is_the_digest_of_id_question_index_and_text():
    expected = hashlib.blake2b(b"2 Q15 who ?" + b"1 7 the sun", digest_size=8).digest()
    assert candidate_keys(ONE)[1].tobytes() == expected
    assert candidate_keys(ONE).dtype == np.dtype("<u8")


@settings(max_examples=60)
@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30), max_size=9))
def test_candidates_are_found_by_their_keys(stored, wanted):
    scores = StoredScores.__new__(StoredScores)
    scores.keys = np.array(stored, "<u8")
    expected = [stored.index(key) if key in stored else -1 for key in wanted]
    assert scores.find(np.array(wanted, "<u8")).tolist() == expected


# Scores


def test_the_folder_has_the_rankers_score_of_each_candidate(tiny_run, data, tmp_path, capsys):
    out = tmp_path / "scores"
    assert main(["score", str(tiny_run), "--data", str(data), "--out", str(out)]) == 0
    stored = StoredScores(out)
    expected = [ranking.scores for ranking in load_ranker(tiny_run).rank_all(QUESTIONS)]
    np.testing.assert_allclose(stored.scores, np.concatenate(expected), rtol=1e-5, atol=1e-6)
    keys = [candidate_keys(question) for question in QUESTIONS]
    assert stored.keys.tolist() == np.concatenate(keys).tolist()
    assert (stored.meta["questions"], stored.meta["pairs"]) == (9, len(stored.keys))
    assert stored.meta["data_sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert stored.meta["ranker_sha256"] == ranker_digest(tiny_run)
    assert (stored.meta["system"], stored.meta["precision"]) == ("cascade", "float32")
    text = capsys.readouterr().out
    assert f"{out}: 9 questions, {len(stored.keys)} candidates, 0 blank" in text


def test_a_filter_keeps_questions(tiny_run, tmp_path):
    labels = {"both": (1, 0), "right": (1, 1), "wrong": (0, 0)}
    questions = []
    for id, values in labels.items():
        candidates = tuple(Candidate(f"the {value} moon", value) for value in values)
        questions.append(Question(id, "who ?", candidates))
    data = tmp_path / "labelled.jsonl"
    write_questions(data, questions)
    for filter, kept in (("all", 3), ("no-all-negative", 2), ("clean", 1)):
        meta = write_scores(tiny_run, data, tmp_path / filter, filter)
        assert (meta["questions"], meta["pairs"], meta["filter"]) == (kept, 2 * kept, filter)
        known = np.concatenate([candidate_keys(question) for question in questions[:kept]])
        assert StoredScores(tmp_path / filter).keys.tolist() == known.tolist()
    write_questions(data, [questions[2]])
    with pytest.raises(DataError, match="labelled.jsonl: no question is left to score"):
        write_scores(tiny_run, data, tmp_path / "none", "clean")
    write_questions(data, [Question("q", "who ?", (Candidate("the moon"),))])
    assert write_scores(tiny_run, data, tmp_path / "unlabelled")["pairs"] == 1


def test_over_long_questions(tiny_run, tmp_path, capsys):
    long = [Question(f"L{index}", "the " * 60, QUESTIONS[0].candidates) for index in range(6)]
    data = tmp_path / "long.jsonl"
    write_questions(data, [*QUESTIONS[:2], *long, QUESTIONS[2]])
    with pytest.raises(QuestionTooLong, match="long.jsonl, question 'L0'"):
        write_scores(tiny_run, data, tmp_path / "error")
    # Chunks that consist of skipped questions are among them.
    meta = write_scores(
        tiny_run, data, tmp_path / "skip", long_questions="skip", partition_tokens=SMALL
    )
    assert (meta["questions"], meta["skipped_questions"]) == (3, 6)
    known = np.concatenate([candidate_keys(question) for question in QUESTIONS[:3]])
    assert StoredScores(tmp_path / "skip").keys.tolist() == known.tolist()
    command = ["score", str(tiny_run), "--data", str(data), "--out", str(tmp_path / "truncate")]
    assert main([*command, "--long-questions", "truncate"]) == 0
    assert "6 over-long questions truncated" in capsys.readouterr().err
    assert StoredScores(tmp_path / "truncate").meta["questions"] == 9


def test_what_is_wrong_is_found_before_anything_is_scored(tiny_run, data, tmp_path, monkeypatch):
    """On the last line, hours later in a large corpus."""
    monkeypatch.setattr(ScoringTask, "compute", None)
    long = Question("long", "the " * 80, QUESTIONS[0].candidates)
    write_questions(tmp_path / "long.jsonl", [*QUESTIONS, long])
    with pytest.raises(QuestionTooLong, match="long.jsonl, question 'long'"):
        write_scores(tiny_run, tmp_path / "long.jsonl", tmp_path / "out")
    unlabelled = Question("bare", "who ?", (Candidate("the moon"),))
    write_questions(tmp_path / "bare.jsonl", [*QUESTIONS, unlabelled])
    with pytest.raises(DataError, match="question 'bare': candidate 1 has no label"):
        write_scores(tiny_run, tmp_path / "bare.jsonl", tmp_path / "out", "clean")
    with open(tmp_path / "bare.jsonl", "a") as file:
        file.write("{\n")
    with pytest.raises(DataError, match="bare.jsonl, line 11: malformed JSON"):
        write_scores(tiny_run, tmp_path / "bare.jsonl", tmp_path / "out")


# In parts, and in other forms


@pytest.mark.parametrize("form", ["logits", "jsonl", "trec"])
def test_shards_give_the_bytes_of_one_process(tiny_run, data, tmp_path, form):
    command = ["score", str(tiny_run), "--data", str(data), "--format", form]
    command += ["--partition-tokens", str(SMALL)]
    assert main([*command, "--out", str(tmp_path / "one")]) == 0
    figures = tmp_path / "figures.json"
    for index in (3, 1, 2):
        shard = ["--shard", f"{index}/3", "--json", str(figures)]
        assert main([*command, *shard, "--out", str(tmp_path / "out")]) == 0
        values = json.loads(figures.read_text())
        assert (values["meta"] is None) == (index != 2) and values["partitions"] > 3
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    assert not (tmp_path / "out.partitions").exists()
    assert main([*command, *shard, "--out", str(tmp_path / "out")]) == 0  # it is whole


def test_lines_of_json_and_a_trec_run_have_the_rankings(tiny_run, tmp_path):
    named = []
    for question in QUESTIONS[:3]:
        candidates = []
        for index, candidate in enumerate(question.candidates):
            candidates.append(candidate._replace(id=f"{question.id}-{index}"))
        named.append(question._replace(candidates=(*candidates, Candidate(" ", 0, "blank"))))
    data = tmp_path / "named.jsonl"
    write_questions(data, named)
    rankings = list(load_ranker(tiny_run, drop_ratio=0.5).rank_all(named))
    write_scores(tiny_run, data, tmp_path / "jsonl", output="jsonl", drop_ratio=0.5)
    lines = (tmp_path / "jsonl" / "scores.jsonl").read_text().splitlines()
    for line, question, ranking in zip(lines, named, rankings):
        values = json.loads(line)
        assert values["id"] == question.id and values["candidates"] == list(question.document_ids)
        assert values["order"] == list(ranking.order) and values["exits"] == list(ranking.exits)
        expected = np.where(np.isneginf(ranking.scores), np.nan, ranking.scores)
        scores = np.array(values["scores"], np.float32)  # null of a blank candidate is NaN
        np.testing.assert_array_equal(scores, expected.astype(np.float32))
    write_scores(tiny_run, data, tmp_path / "trec", output="trec", drop_ratio=0.5)
    write_run(tmp_path / "run", named, rankings)
    assert (tmp_path / "trec" / "run.trec").read_text() == (tmp_path / "run").read_text()


def test_a_name_that_no_trec_run_can_hold_is_refused_before_anything_is_scored(tmp_path):
    data = tmp_path / "named.jsonl"
    write_questions(data, [*QUESTIONS[:2], QUESTIONS[2]._replace(id="a b")])
    with pytest.raises(DataError, match="white space"):
        write_scores("wo", data, tmp_path / "out", output="trec")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*/*.npz"))


def test_tables_are_scored_as_lines_are(tiny_run, tmp_path):
    rows = ["question,candidate,label"]
    for question in QUESTIONS[:4]:
        for candidate in question.candidates:
            rows.append(f'"{question.question}","{candidate.text}",{candidate.label}')
    data = tmp_path / "table.csv"
    data.write_text("\n".join(rows) + "\n")
    write_scores(tiny_run, data, tmp_path / "whole", partition_tokens=SMALL)
    whole = StoredScores(tmp_path / "whole")
    task = ScoringTask(str(tiny_run), str(data), str(tmp_path / "out"), partition_tokens=SMALL)
    partitions = list(task.divide())
    assert len(partitions) > 1
    for index in (1, 0):  # also in another order
        arrays = task.compute(partitions[index])
        start = sum(partition.texts for partition in partitions[:index])
        part = whole.scores[start : start + partitions[index].texts]
        assert part.tolist() == arrays["scores"].tolist()


def test_a_stopped_command_does_not_score_a_part_again(tiny_run, data, tmp_path, monkeypatch):
    write_scores(tiny_run, data, tmp_path / "whole", partition_tokens=SMALL)
    real, calls = ScoringTask.compute, []

    def stopping(task, partition):
        calls.append(partition)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(task, partition)

    monkeypatch.setattr(ScoringTask, "compute", stopping)
    with pytest.raises(KeyboardInterrupt):
        write_scores(tiny_run, data, tmp_path / "out", partition_tokens=SMALL)
    assert not (tmp_path / "out").exists()
    meta = write_scores(tiny_run, data, tmp_path / "out", partition_tokens=SMALL)
    assert calls.count(calls[1]) == 2 and len(set(calls)) == len(calls) - 1
    assert arrays_of(tmp_path / "out") == arrays_of(tmp_path / "whole")
    assert meta == StoredScores(tmp_path / "whole").meta


# What is refused


def test_a_folder_of_other_scores_is_kept(tiny_run, data, tmp_path, capsys):
    out = tmp_path / "out"
    write_scores(tiny_run, data, out)
    before = arrays_of(out)
    for name, value in (("filter", "clean"), ("long_questions", "skip"), ("partition_tokens", 600)):
        with pytest.raises(DataError, match=f"made with {name}"):
            write_scores(tiny_run, data, out, **{name: value})
    write_questions(tmp_path / "other.jsonl", QUESTIONS[:2])
    with pytest.raises(DataError, match="made with data_sha256"):
        write_scores(tiny_run, tmp_path / "other.jsonl", out)
    with pytest.raises(OptionError, match="partition_tokens: 0"):
        write_scores(tiny_run, data, out, partition_tokens=0)
    shutil.copytree(tiny_run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["max_length"] = 48
    del config["sha256"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="made with ranker_sha256"):
        write_scores(tmp_path / "run", data, out)
    assert arrays_of(out) == before
    orders = [{}, {"order": "original"}]  # an option of joint models
    assert len({str(ScoringTask("bm25", data, out, options=own).settings) for own in orders}) == 2
    (tmp_path / "file").write_text("")
    command = ["score", str(tiny_run), "--data", str(data), "--out", str(tmp_path / "file")]
    assert main(command) == 2
    assert "error: --out: " in capsys.readouterr().err


def test_one_process_merges_at_a_time(tiny_run, data, tmp_path):
    with lock_output(tmp_path / "out"), pytest.raises(OutputLocked):
        write_scores(tiny_run, data, tmp_path / "out")
    assert write_scores(tiny_run, data, tmp_path / "out")["questions"] == 9


def test_a_folder_that_is_none_of_scores_is_refused(tiny_run, data, tmp_path):
    write_scores(tiny_run, data, tmp_path / "out")
    meta = json.loads((tmp_path / "out" / "meta.json").read_text())
    content = (tmp_path / "out" / "scores.bin").read_bytes()

    def refusal(changes, match):
        (tmp_path / "out" / "meta.json").write_text(json.dumps({**meta, **changes}))
        with pytest.raises(DataError, match=match):
            StoredScores(tmp_path / "out")

    refusal({"format": 2}, "a folder of scores of format 2; expected format 1")
    refusal({"pairs": meta["pairs"] + 1}, f"keys.bin: {meta['pairs']} elements")
    refusal({"blank": -1}, "is no folder of scores")
    (tmp_path / "out" / "scores.bin").write_bytes(b"\1" + content[1:])
    refusal({}, "scores.bin: SHA-256")
    (tmp_path / "out" / "scores.bin").write_bytes(content[:-4])
    refusal({}, "scores.bin: ")
    with pytest.raises(DataError, match="no: there is no such file"):
        StoredScores(tmp_path / "no")


# Digests of rankers


def test_the_digest_of_a_ranker_is_that_of_what_its_scores_depend_on(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    digests = [ranker_digest(run)]
    assert digests == [ranker_digest(tiny_run)]
    (run / "metrics.jsonl").write_text("")
    assert ranker_digest(run) == digests[0]
    sequence = tmp_path / "sequence.json"
    sequence.write_text(json.dumps({"rankers": [{"run": "run"}, "run"]}))
    ensemble = tmp_path / "ensemble.json"
    ensemble.write_text(json.dumps({"ensemble": ["sequence.json"]}))
    of_files = [ranker_digest(sequence), ranker_digest(ensemble)]
    for name in ("model.params", "tokenizer.json"):
        path = run / name
        path.write_bytes(path.read_bytes() + b" ")
        digests.append(ranker_digest(run))
        of_files += [ranker_digest(sequence), ranker_digest(ensemble)]
    assert len({*digests, *of_files}) == 9
    sequence.write_text(json.dumps({"rankers": [{"run": "run"}, "run"], "keep": [3]}))
    assert ranker_digest(sequence) not in of_files
    # Files that only some scores depend on.
    before = [ranker_digest(run), ranker_digest(run, "int8"), ranker_digest(sequence)]
    (run / "int8.safetensors").write_text("weights")
    (run / "tuned.json").write_text("{}")
    after = [ranker_digest(run), ranker_digest(run, "int8"), ranker_digest(sequence)]
    assert after[0] == before[0] and after[1] != before[1] and after[2] == before[2]
    sequence.write_text(json.dumps({"rankers": [{"run": "run", "drop_ratio": "tuned"}, "run"]}))
    files = [ranker_digest(sequence), ranker_digest(run, "float32", ["tuned.json"])]
    (run / "tuned.json").write_text("[]")
    files += [ranker_digest(sequence), ranker_digest(run, "float32", ["tuned.json"])]
    sequence.write_text(json.dumps({"rankers": [{"run": "run", "precision": "int8"}, "run"]}))
    files.append(ranker_digest(sequence))
    (run / "int8.safetensors").write_text("other weights")
    assert len({*files, ranker_digest(sequence)}) == 6


def test_scores_depend_on_the_files_by_which_candidates_are_dropped(tiny_run, data, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")

    def digest(content, **options):
        for name in ("tuned.json", "calibration.json"):
            (run / name).write_text(content)
        task = ScoringTask(str(run), str(data), str(tmp_path / "out"), options=options)
        return task.settings["ranker_sha256"]

    assert digest("{}") == digest("[]")
    for drops in ({"drop_ratio": "tuned"}, {"drop_below": 0.2}):
        assert digest("{}", **drops) != digest("[]", **drops)
