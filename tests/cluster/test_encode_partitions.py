"""Encoding of documents in partitions: shards and a merge, to the bits of one process."""

import contextlib
import json
import os
import pathlib
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from conftest import child_environment, limited_file_size
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ray import FakeRay
from test_resume import KILLER

import wqa.cache.document_cache_writer as chunk_module
import wqa.cluster.encoder as encoder_module
import wqa.cluster.ray_cluster as ray_module
import wqa.cluster.run as run_module
import wqa.io.locks as locks_module
from wqa.cache.document_cache import open_cache, text_digest
from wqa.cache.document_cache_writer import (
    DocumentCacheWriter,
    document_chunks,
    document_partitions,
)
from wqa.cli import main
from wqa.cli.options import rate_line
from wqa.cluster import merge_shards, run_on_cluster, run_partitions
from wqa.cluster.encoder import EncodingJob, PartitionEncoder
from wqa.cluster.partition_files import Content, partition_path, read_manifest
from wqa.config import EngineConfig
from wqa.data.documents import (
    LONGEST_DOCUMENT,
    Document,
    parse_document,
    read_documents,
    read_placed_documents,
    write_documents,
)
from wqa.data.partitions import PartitionReader
from wqa.errors import ClusterError, DataError, OptionError, Stopped, StorageError
from wqa.io.locks import lock_output
from wqa.io.progress import StopRequest
from wqa.systems.encode import encode_documents

#: Estimated tokens of which the documents make several partitions.
SMALL = 60
#: The collection's document without a token.
BLANK = "D9"


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_module, "CHUNK_DOCUMENTS", 4)
        yield


@pytest.fixture(scope="module")
def run(dcbert_run):
    return dcbert_run


@pytest.fixture(scope="module")
def documents(encoded_documents):
    """The first is longer than the run reads, one has no token."""
    documents = list(encoded_documents)
    documents[9] = Document(BLANK, "\u200b")
    return documents


@pytest.fixture(scope="module")
def collection(tmp_path_factory, documents):
    path = tmp_path_factory.mktemp("collection") / "documents.jsonl"
    write_documents(path, documents)
    return path


@pytest.fixture(scope="module")
def whole(run, collection, tmp_path_factory):
    """The cache of one process."""
    out = tmp_path_factory.mktemp("whole") / "cache"
    assert encode_documents(run, collection, out).new == 20
    return out


@pytest.fixture
def job(run, collection, tmp_path):
    return EncodingJob(str(run), str(collection), str(tmp_path / "cache"), SMALL)


def other(job, **changes):
    return EncodingJob(**{**vars(job), **changes})


def content(cache):
    """Entries of a cache, byte for byte, and all rows of its index."""
    with contextlib.closing(sqlite3.connect(cache / "index.sqlite")) as connection:
        tables = []
        for table in ("settings", "entries", "documents"):
            tables.append(connection.execute(f"SELECT * FROM {table}").fetchall())
    return (cache / "encodings-1.bin").read_bytes(), tables


def rows_of(cache):
    """Text digest and rows of each document."""
    with DocumentCacheWriter(cache) as writer:
        digests = writer.stored_digests(writer.ids())
    rows = open_cache(cache).get_many(list(digests), list(digests.values()))
    return {id: (digests[id], row.tobytes()) for id, row in zip(digests, rows)}


def check_rounded(stored, expected):
    """The same documents, and encodings that differ by rounding."""
    assert stored.keys() == expected.keys()
    for id, (digest, rows) in expected.items():
        numbers = [np.frombuffer(row, np.float16).astype(float) for row in (rows, stored[id][1])]
        np.testing.assert_allclose(*numbers, atol=4e-3)
        assert stored[id][0] == digest


# Partitions of documents

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 60), st.integers(1, 5), st.integers(10, 60))
def test_partitions_are_whole_chunks(tmp_path_factory, lengths, limit, most, characters):
    """Read by themselves they have the chunks of the whole file, and each within the limit."""
    path = tmp_path_factory.mktemp("documents") / "documents.jsonl"
    write_documents(path, [Document(f"D{n}", "é" * length) for n, length in enumerate(lengths)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_module, "CHUNK_DOCUMENTS", most)
        patch.setattr(chunk_module, "CHUNK_CHARACTERS", characters)
        expected = [chunk for chunk, _ in document_chunks(read_placed_documents(path))]
        partitions = list(document_partitions(read_placed_documents(path), limit))
        chunks = []
        with PartitionReader(path, parse_document, LONGEST_DOCUMENT) as reader:
            for partition in reversed(partitions):
                records = reader.read(partition)
                own = [chunk for chunk, _ in document_chunks((d, 0) for d in records)]
                tokens = 0
                for chunk in own:
                    tokens += 2 * len(chunk) + sum(len(d.text) for d in chunk) // 4
                assert partition.tokens == tokens and (tokens <= limit or len(own) == 1)
                assert len(records) == partition.read == partition.records == partition.texts
                chunks = own + chunks
    assert chunks == expected
    assert sum(expected, []) == list(read_documents(path))
    assert all(len(chunk) <= most for chunk in expected)
    assert (partitions[0].start, partitions[-1].end) == (0, path.stat().st_size)


def test_chunks_by_hand():
    """Four documents at most; one that ends with the character that fills it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_module, "CHUNK_CHARACTERS", 8)
        lengths = (8, 1, 1, 1, 1, 3, 4, 1)
        placed = [(Document(str(n), "a" * length), n) for n, length in enumerate(lengths)]
        chunks = [(len(chunk), end) for chunk, end in document_chunks(placed)]
        assert chunks == [(1, 0), (4, 4), (3, 7)]
        # 2 + 8 // 4, 4 * 2 + 4 // 4, 3 * 2 + 8 // 4 tokens.
        sizes = [(part.read, part.tokens) for part in document_partitions(placed, 13)]
        assert sizes == [(5, 13), (3, 8)]


# The same bits


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_shards_in_any_order_make_the_cache_of_one_process(
    run, collection, whole, tmp_path, order, capsys
):
    out = tmp_path / "cache"
    command = ["encode", str(run), "--documents", str(collection), "--out", str(out)]
    command += ["--partition-tokens", str(SMALL)]
    for shard in order:
        assert not out.exists()
        assert main([*command, "--shard", f"{shard}/3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    count = 1 if order[0] == 3 else 2
    assert f"partitions: {count} of 5 partitions encoded, {5 - count} are missing" in lines[0]
    assert lines[2] == f"{out}: 20 documents; 20 new, 1 shortened, 1 without a token left out"
    assert "5 partitions took" in lines[3] and "documents a second of one worker" in lines[3]
    assert " bytes a document, " in lines[4]
    assert content(out) == content(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
    # Any of them again, or a merge, or one process: nothing is left to do.
    for way in (["--shard", "2/3"], ["--merge"], None):
        assert main(command[:-2] if way is None else [*command, *way]) == 0
        text = capsys.readouterr().out
        assert "20 documents; 20 unchanged, 1 without a token left out" in text
    assert content(out) == content(whole)


@pytest.mark.parametrize("store, first_tokens", [("int8", 0), ("float32", 3)])
def test_other_stores(job, run, collection, tmp_path, store, first_tokens):
    report = run_partitions(other(job, store=store, first_tokens=first_tokens)).meta
    one = encode_documents(run, collection, tmp_path / "one", store, first_tokens)
    assert report == one._replace(seconds=0.0, bytes=report["bytes"])._asdict()
    assert report["truncated"] == (20 if first_tokens else 1)
    assert content(pathlib.Path(job.out)) == content(tmp_path / "one")


def test_a_partition_has_the_same_bytes_wherever_it_is_encoded(job, whole):
    """Backwards and twice, each by an encoder of its own."""
    contents = {}
    for index in (4, 3, 2, 1, 0, 0, 3):
        with PartitionEncoder(job) as encoder:
            manifest = encoder.open_manifest()
            encoder.compute(manifest, index)
        body = partition_path(job.folder, index).read_bytes().partition(b"\n")[2]
        assert contents.setdefault(index, body) == body
    assert len(manifest.partitions) == 5
    assert merge_shards(job).meta["new"] == 20
    assert content(pathlib.Path(job.out)) == content(whole)


def test_workers_of_a_cluster(job, run, collection, tmp_path, monkeypatch):
    """In this process, by the transport of the driver's own tests; one of the workers dies."""

    def make(sent, folder):
        return ray_module.Worker(pickle.loads(pickle.dumps(sent)), folder)

    fake = FakeRay({(1, "compute", 0)}, make)

    @contextlib.contextmanager
    def connected(cluster, threads, on_gpus):
        yield fake, 2

    monkeypatch.setattr(ray_module, "connect", connected)
    monkeypatch.setattr(ray_module, "_PAUSE", 0)
    report = run_on_cluster(other(job, options={"threads": 1}), "local:2")
    assert (report.partitions, report.computed) == (5, 5) and fake.made == 3
    encode_documents(run, collection, tmp_path / "one", engine=EngineConfig(threads=1))
    assert content(pathlib.Path(job.out)) == content(tmp_path / "one")
    again = run_on_cluster(other(job, options={"threads": 1}), "local:2")
    assert (again.partitions, again.meta["unchanged"]) == (0, 20)
    shutil.rmtree(job.out)
    fake.deaths = {("compute", 1)}
    with pytest.raises(ClusterError, match="failed 3 times: partition 1, lines 5 to 8 of "):
        run_on_cluster(job, "local:2")


def test_a_job_can_be_sent_to_another_process(job):
    sent = other(job, options={"threads": 1}, store="int8", first_tokens=3, prune=True)
    assert pickle.loads(pickle.dumps(sent)) == sent


# A cache that is there


def test_documents_are_added_and_changed(job, run, documents, tmp_path):
    """What the cache holds stays where it is; the text that has changed is encoded anew."""
    path, out = tmp_path / "few.jsonl", pathlib.Path(job.out)
    write_documents(path, documents[:8])
    encode_documents(run, path, out)
    before = rows_of(out)
    changed = documents[2]._replace(text="another text")
    write_documents(path, [*documents[:2], changed, *documents[4:12]])
    first = other(job, data=str(path))
    shutil.copytree(out, tmp_path / "one")
    encode_documents(run, path, tmp_path / "one")
    report = run_partitions(first)
    counts = [report.meta[name] for name in ("documents", "new", "changed", "unchanged", "blank")]
    assert counts == [11, 3, 1, 6, 1]
    after = rows_of(out)
    check_rounded(after, rows_of(tmp_path / "one"))
    assert [id for id in before if before[id] != after[id]] == ["D2"]
    assert after["D2"][0] == text_digest("another text") and "D3" in after
    pruned = other(first, prune=True)
    assert run_partitions(pruned).meta["removed"] == 1
    assert rows_of(out) == {id: value for id, value in after.items() if id != "D3"}
    # Nothing is left to prune or to encode.
    assert run_partitions(pruned).partitions == 0 and not job.folder.exists()
    write_documents(path, [Document("D2", "\u200b"), *documents[4:12]])
    assert run_partitions(first).meta["blank"] == 2
    assert "D2" not in rows_of(out)


def test_a_cache_of_other_settings_is_refused(job, run, collection):
    encode_documents(run, collection, job.out, "float32")
    with pytest.raises(DataError, match="made with store 'float32'; expected 'float16'"):
        run_partitions(job)
    assert not job.folder.exists()


def test_other_files_are_kept(job):
    out = pathlib.Path(job.out)
    out.mkdir()
    (out / "thesis.txt").write_text("")
    with pytest.raises(OptionError, match="out: .*cache, a folder with other files"):
        run_partitions(job)
    shutil.rmtree(out)
    out.write_text("")
    with pytest.raises(OptionError, match="out: .*cache, a file"):
        run_partitions(job)
    assert not job.folder.exists()


# Merging


def test_merge_says_what_is_missing(job, whole, capsys):
    command = ["encode", job.run, "--documents", job.data, "--out", job.out, "--merge"]
    command += ["--partition-tokens", str(SMALL)]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "cache.partitions: holds no partitions" in error and "encode them first" in error
    run_partitions(job, (1, 2))
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "partition 1 is missing, of 2 that are; expected 5 partitions" in error
    assert "run the shards that have not ended" in error
    with lock_output(job.out):  # another process writes to the cache
        report = run_partitions(job, (2, 2))
        assert (report.meta, report.computed, report.missing) == (None, 2, 0)
        assert "are not merged yet: " in capsys.readouterr().err
        # Nothing was merged: that is no success.
        assert main(command) == 2
        assert "cache: locked by process " in capsys.readouterr().err
        assert main([*command[:-3], *command[-2:], "--shard", "2/2"]) == 0
        captured = capsys.readouterr()
        assert "not merged yet; unless another process merges them, run --merge" in captured.out
        assert "cache is locked by process " in captured.err
    assert main([*command, "--store", "int8"]) == 2
    assert "made with store 'float16'; expected 'int8'" in capsys.readouterr().err
    assert main(command) == 0
    assert content(pathlib.Path(job.out)) == content(whole)


def test_without_locks_nothing_is_merged(job, whole, tmp_path, monkeypatch):
    """Several shards would write the cache at once; a copy can be merged where there are locks."""
    with monkeypatch.context() as patch:
        for module in (locks_module, encoder_module):
            patch.setattr(module, "has_locks", lambda path: False)
        with pytest.raises(StorageError, match="cache: its file system has no locks; .*copy"):
            run_partitions(job)
        assert len(list(job.folder.glob("000/*"))) == 5 and not pathlib.Path(job.out).exists()
    shutil.copytree(job.folder, tmp_path / "disk" / "cache.partitions")
    copy = other(job, out=str(tmp_path / "disk" / "cache"))
    assert merge_shards(copy).meta["new"] == 20
    assert content(pathlib.Path(copy.out)) == content(whole)


def test_a_merge_needs_no_encoder(job, whole, monkeypatch):
    run_partitions(job, (1, 2))
    with lock_output(job.out):
        run_partitions(job, (2, 2))
    load = encoder_module.load_text_encoder
    monkeypatch.setattr(encoder_module, "load_text_encoder", None)
    assert merge_shards(job).meta["new"] == 20
    assert content(pathlib.Path(job.out)) == content(whole)
    # Afterwards too, on a machine that lacks the device and the processors of the workers.
    elsewhere = other(job, options={"ctx": "gpu:7", "threads": 1000})
    assert merge_shards(elsewhere).meta["unchanged"] == 20
    # A process that has loaded the run takes it from there.
    monkeypatch.setattr(encoder_module, "load_text_encoder", load)
    monkeypatch.setattr(encoder_module, "load_identity", None)
    report = run_partitions(job)
    assert (report.partitions, report.meta["unchanged"], report.meta["blank"]) == (0, 20, 1)


@pytest.mark.parametrize("call, when", [(1, "before"), (3, "before"), (3, "after")])
def test_a_killed_merge_is_continued(job, whole, monkeypatch, call, when):
    """To the same bytes; what was committed is not written again."""

    class Killed(BaseException):
        pass

    commit, calls = DocumentCacheWriter.commit, []

    def deadly(writer):
        calls.append(1)
        if when == "before" and len(calls) == call:
            raise Killed
        commit(writer)
        if len(calls) == call:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DocumentCacheWriter, "commit", deadly)
        run_partitions(job)
    assert len(list(job.folder.glob("000/*"))) == 5
    report = run_partitions(job)
    assert report.computed == 0 and report.meta["documents"] == 20
    assert (report.meta["unchanged"] > 0) == (call > 1)
    assert content(pathlib.Path(job.out)) == content(whole) and not job.folder.exists()


@pytest.mark.parametrize(
    "killer, left",
    [
        (("wqa.cache.document_cache_writer", "DocumentCacheWriter._change_index", "3"), 5),
        (("wqa.cluster.run", "shutil.rmtree", "1"), 0),
    ],
)
def test_a_merge_whose_process_is_killed_is_continued(job, whole, tmp_path, killer, left):
    """Between new entries and the index, and before the partitions, renamed, are removed."""
    small = "import wqa.cache.document_cache_writer as module; module.CHUNK_DOCUMENTS = 4"
    command = ["encode", job.run, "--documents", job.data, "--out", job.out]
    command += ["--partition-tokens", str(SMALL), "--shard", "1/1"]
    killed = subprocess.run(
        [sys.executable, "-c", small + KILLER, *killer, "before", *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(job.folder.glob("000/*"))) == left
    assert len(list(tmp_path.glob(".cache.partitions.*.tmp"))) == (left == 0)
    assert main(command) == 0
    assert content(pathlib.Path(job.out)) == content(whole)
    # The files of a killed process's lock may stay.
    assert not list(tmp_path.glob(".*.tmp")) and not job.folder.exists()


def test_a_signal_stops_a_merge_after_a_partition(job, whole, monkeypatch, capsys):
    """What is in the cache stays, and so do the partitions."""
    run_partitions(job, (1, 2))
    with lock_output(job.out):
        run_partitions(job, (2, 2))
    commit = DocumentCacheWriter.commit

    def with_signal(writer):
        commit(writer)
        os.kill(os.getpid(), signal.SIGTERM)

    command = ["encode", job.run, "--documents", job.data, "--out", job.out, "--merge"]
    command += ["--partition-tokens", str(SMALL)]
    with monkeypatch.context() as patch:
        patch.setattr(DocumentCacheWriter, "commit", with_signal)
        assert main(command) == 128 + signal.SIGTERM
    assert f"{job.out}, 1 of 5 partitions merged: stopped by" in capsys.readouterr().err
    assert len(open_cache(job.out)) == 4 and len(list(job.folder.glob("000/*"))) == 5
    stop = StopRequest()
    stop.signal = signal.SIGINT
    with pytest.raises(Stopped, match="0 of 5 partitions merged: stopped by signal 2"):
        run_partitions(job, stop=stop)
    assert main(command) == 0
    assert content(pathlib.Path(job.out)) == content(whole)


def test_another_process_has_merged_meanwhile(job, whole, monkeypatch):
    """Between the last partition and the merge of the one that is late."""
    merge = run_module.merge_partitions

    def late(job, manifest, *arguments):
        merge(job, manifest)
        return merge(job, manifest, *arguments)

    monkeypatch.setattr(run_module, "merge_partitions", late)
    assert run_partitions(job).meta["unchanged"] == 20
    assert content(pathlib.Path(job.out)) == content(whole) and not job.folder.exists()


def test_another_process_has_merged_before_the_manifest_is_opened(job, whole, monkeypatch):
    """Nothing is encoded again by a process that has looked for the cache just before."""
    finished, looks = EncodingJob.finished, []

    def late(job, made_with):
        meta = finished(job, made_with)
        looks.append(meta)
        if len(looks) == 1:
            assert run_partitions(job).computed == 5
        return meta

    monkeypatch.setattr(EncodingJob, "finished", late)
    report = run_partitions(job)
    assert (report.partitions, report.computed, report.meta["unchanged"]) == (0, 0, 20)
    looks.clear()
    shutil.rmtree(job.out)
    worker = ray_module.Worker(job, os.getcwd())
    assert worker.begin() == ray_module.Outcome(merged=True)
    assert content(pathlib.Path(job.out)) == content(whole) and not job.folder.exists()


def test_a_full_disk(job, whole):
    """In a partition, and in the merge: the partitions stay."""
    run_partitions(job, (9, 9))  # the manifest
    with limited_file_size(900), pytest.raises(StorageError, match="000000.partition: could not"):
        run_partitions(job)
    with lock_output(job.out):
        assert run_partitions(job).computed == 5
    with limited_file_size(9000), pytest.raises(StorageError, match="could not be written"):
        merge_shards(job)
    assert len(list(job.folder.glob("000/*"))) == 5
    merge_shards(job)
    assert content(pathlib.Path(job.out)) == content(whole)


# What is refused


def test_a_manifest_of_another_job_is_refused(job, documents, tmp_path, monkeypatch):
    run_partitions(job, (1, 5))
    before = read_manifest(job.folder)

    def refused(match, **changes):
        with pytest.raises(DataError, match=match) as caught:
            run_partitions(other(job, **changes))
        assert "repeat the command" in str(caught.value)
        with pytest.raises(DataError, match=match):
            merge_shards(other(job, **changes))

    write_documents(tmp_path / "other.jsonl", [*documents[:-1], Document("D20", "others")])
    refused("made with documents_sha256 ", data=str(tmp_path / "other.jsonl"))
    run = tmp_path / "run"
    shutil.copytree(job.run, run)
    parameters = mx.nd.load(str(run / "model.params"))
    name = next(name for name in parameters if name.startswith("document_encoder.layers"))
    parameters[name] = parameters[name] + 1e-3
    mx.nd.save(str(run / "model.params"), parameters)
    values = json.loads((run / "config.json").read_text())
    del values["sha256"]
    (run / "config.json").write_text(json.dumps(values))
    refused("made with run_sha256 ", run=str(run))
    refused("made with store 'float16'; expected 'int8'", store="int8")
    refused("made with tokens 0; expected 3", first_tokens=3)
    refused("made with prune None; expected True", prune=True)
    refused("made with partition_tokens 60; expected 61", partition_tokens=61)
    refused("made with partition_tokens 60; expected None", partition_tokens=1 << 16)
    with pytest.raises(DataError, match="made with engine 'auto'; expected 'mxnet'"):
        run_partitions(other(job, options={"engine": "mxnet"}))
    with monkeypatch.context() as patch:  # another version of the package
        patch.setattr(chunk_module, "CHUNK_DOCUMENTS", 5)
        with pytest.raises(DataError, match="made with chunk_documents 4; expected 5"):
            run_partitions(job)
    assert read_manifest(job.folder) == before


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "x"])
def test_a_shard_out_of_range_is_refused(text, tmp_path, capsys):
    command = ["encode", "run", "--documents", "no.jsonl", "--out", str(tmp_path / "out")]
    assert main([*command, "--shard", text]) == 2
    assert "error: --shard: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_rate_of_a_slow_worker():
    line = rate_line({"seconds": 40.0, "partitions": 2}, 12, "documents")
    assert line.endswith(" 0.3 documents a second of one worker")


def test_a_shard_without_a_partition(job, capsys):
    assert run_partitions(job, (9, 9)).missing == 5
    assert "shard 9/9 has nothing to encode: there are 5 partitions" in capsys.readouterr().err


def test_documents_that_change_after_the_manifest(job, documents, tmp_path):
    path = tmp_path / "documents.jsonl"
    write_documents(path, documents)
    late = other(job, data=str(path))
    with PartitionEncoder(late) as encoder:
        manifest = encoder.open_manifest()
        write_documents(path, documents[:2])
        with pytest.raises(DataError, match="documents.jsonl, from line 1: 2 documents; expected"):
            encoder.compute(manifest, 0)
    assert not late.files(manifest).has(0)


def test_what_is_wrong_is_found_before_anything_is_encoded(job, tiny_run, jsonl, tmp_path, capsys):
    line = '{"id": "D1", "text": "one"}'
    with pytest.raises(DataError, match="line 2: document id 'D1' is on line 1 too"):
        run_partitions(other(job, data=str(jsonl(line, line))))
    with pytest.raises(DataError, match="no.jsonl: cannot be read"):
        run_partitions(other(job, data="no.jsonl"))
    with pytest.raises(DataError, match="no.jsonl: cannot be read"):
        merge_shards(other(job, data="no.jsonl"))
    with pytest.raises(OptionError, match="store: 'float8'"):
        other(job, store="float8")
    with pytest.raises(OptionError, match="options: 'thread'; expected one of engine, "):
        other(job, options={"thread": 1})
    with pytest.raises(OptionError, match="partition_tokens: 0"):
        other(job, partition_tokens=0)
    command = ["encode", str(tiny_run), "--documents", job.data, "--out", job.out]
    assert main([*command, "--shard", "1/2"]) == 2
    assert "reads question and candidate together" in capsys.readouterr().err
    (tmp_path / "ids.txt").write_text("D1\n")
    command = ["encode", "--remove", str(tmp_path / "ids.txt"), "--out", job.out, "--merge"]
    assert main(command) == 2
    assert "error: --remove: with partitions" in capsys.readouterr().err
    for number in ("0", str(SMALL)):  # one process makes no partitions
        command = ["encode", job.run, "--documents", job.data, "--out", job.out]
        assert main([*command, "--partition-tokens", number]) == 2
        assert f"error: --partition-tokens: {number} for one process" in capsys.readouterr().err
    assert main([*command, "--partition-tokens", "0", "--shard", "1/2"]) == 2
    assert "error: --partition-tokens: 0; expected" in capsys.readouterr().err
    assert not job.folder.exists() and not pathlib.Path(job.out).exists()


@pytest.mark.parametrize(
    "name, change, match",
    [
        ("rows", lambda array: array[1:], "counts other documents"),
        ("digests", lambda array: array[1:], "digests of other documents"),
        ("entries", lambda array: array[1:], "entries of other lengths"),
        ("ids", lambda array: array[:-1], "Expecting"),
    ],
)
def test_a_partition_whose_arrays_do_not_fit(job, name, change, match):
    """The name of its file is in the error."""
    run_partitions(job, (1, 5))
    manifest = read_manifest(job.folder)
    files = job.files(manifest)
    stored = files.read(0)
    arrays = {**stored.content.arrays, name: change(stored.content.arrays[name])}
    files.write(0, Content(arrays, stored.content.counts), stored.facts)
    with lock_output(job.out):
        run_partitions(job)
    with pytest.raises(DataError, match=f"000000.partition: .*{match}"):
        merge_shards(job)
