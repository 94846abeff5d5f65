#!/usr/bin/env python3
"""Compare stores for encoded documents, and measure what reading, checking and rounding cost.

    python recipes/bench/document_caches.py [--documents 1500] [--encoder minilm] [--run RUN]

It writes documents of 150 tokens and 768 units in float16 to a folder of arrays, to an index in
SQLite beside a file of entries (`wqa.cache.document_cache`), to LMDB (where it is installed:
``pip install lmdb``) and to values of an SQLite database. Then it reads 80 random documents at a
time. Further tables have the time of checksums and of conversions; the errors of each element type
on encodings of an encoder; the share of reading in a ranking of 80 documents; and, with a run of
DC-BERT, the errors of its scores of the built-in test questions by each cache. Stores, checksums
and conversions run in one thread; their times are those of its processor, so that other work on the
machine does not change them much. At least 1200 documents are needed.
"""

import argparse
import contextlib
import hashlib
import pathlib
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import zlib

import wqa.models  # noqa: F401 - before mxnet, whose threads it sets

import mxnet as mx  # isort: skip
import numpy as np

from wqa.cache.cache_index import STORES, EntryFormat
from wqa.cache.document_cache import DocumentCache, open_cache, text_digest
from wqa.cache.document_cache_writer import DocumentCacheWriter
from wqa.config import BackboneConfig, EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.data.documents import Document, write_documents
from wqa.engines.onednn.library import as_float32
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.io.arrays import ArrayFolder, ArrayWriter
from wqa.io.encoder_directories import encoder_directory
from wqa.pretrained import load_backbone
from wqa.systems.encode import encode_documents
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.registry import find_system
from wqa.text import SingleInputs, load_tokenizer

ROWS, UNITS, AT_ONCE, ROUNDS = 150, 768, 80, 15
HALF = np.dtype("<f2")


def text_of(number):
    return f"document {number}"


def rows_of(number):
    """Encodings of a document, which differ between documents."""
    rows = np.random.default_rng(0).standard_normal((ROWS, UNITS)).astype(np.float32)
    rows[:, 0] = number % 1000
    return rows


class Arrays:
    """A folder of arrays, which is written once."""

    name = "folder of arrays"

    def write(self, folder, documents):
        with ArrayWriter(folder, 1, {"rows": np.dtype((HALF, (UNITS,)))}, {}) as writer:
            for rows in documents:
                writer.append("rows", rows.astype(HALF))
            writer.commit()
            writer.finish({})

    def reader(self, folder):
        stored = ArrayFolder(folder, 1, "folder", "")
        rows = stored.arrays({"rows": np.dtype((HALF, (UNITS,)))})["rows"]
        return lambda numbers: [rows[ROWS * number : ROWS * (number + 1)] for number in numbers]


class Cache:
    """`wqa.cache.document_cache`."""

    name = "SQLite index, file of entries"

    def write(self, folder, documents):
        settings = {"units": UNITS, "store": "float16", "tokens": 0}
        with DocumentCacheWriter(folder, settings) as writer:
            for number, rows in enumerate(documents):
                writer.put(f"D{number}", text_digest(text_of(number)), rows)
                if number % 64 == 63:
                    writer.commit()
            writer.commit()

    def reader(self, folder):
        cache = open_cache(folder)

        def read(numbers):
            ids = [f"D{number}" for number in numbers]
            return cache.get_many(ids, [text_digest(text_of(number)) for number in numbers])

        return read


class Lightning:
    """LMDB, a memory-mapped tree of keys and values."""

    name = "LMDB"

    def write(self, folder, documents):
        import lmdb

        folder.mkdir()
        environment = lmdb.open(str(folder), map_size=1 << 34)
        for start in range(0, len(documents), 64):
            with environment.begin(write=True) as transaction:
                for number, rows in enumerate(documents[start : start + 64], start):
                    transaction.put(b"D%d" % number, rows.astype(HALF).tobytes())
        environment.close()

    def reader(self, folder):
        import lmdb

        environment = lmdb.open(str(folder), readonly=True, map_size=1 << 34)
        open_transactions = []

        def read(numbers):
            open_transactions[:] = [environment.begin(buffers=True)]
            values = [open_transactions[0].get(b"D%d" % number) for number in numbers]
            return [np.frombuffer(value, HALF).reshape(-1, UNITS) for value in values]

        return read


class Blobs:
    """Values of an SQLite database."""

    name = "SQLite values"

    def write(self, folder, documents):
        folder.mkdir()
        database = sqlite3.connect(folder / "values.sqlite")
        database.execute("PRAGMA page_size = 65536")
        database.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, rows BLOB)")
        for start in range(0, len(documents), 64):
            for number, rows in enumerate(documents[start : start + 64], start):
                row = (f"D{number}", rows.astype(HALF).tobytes())
                database.execute("INSERT INTO documents VALUES (?, ?)", row)
            database.commit()

    def reader(self, folder):
        database = sqlite3.connect(folder / "values.sqlite")
        marks = ",".join("?" * AT_ONCE)
        query = f"SELECT rows FROM documents WHERE id IN ({marks})"

        def read(numbers):
            found = database.execute(query, [f"D{number}" for number in numbers])
            return [np.frombuffer(value, HALF).reshape(-1, UNITS) for (value,) in found]

        return read


def milliseconds(function, arguments):
    """Median time of calls, one for each argument."""
    times = []
    for argument in arguments:
        start = time.thread_time()
        function(argument)
        times.append(1e3 * (time.thread_time() - start))
    return statistics.median(times)


def compare_stores(count, folder):
    """Print the time of writing and of reading by each store."""
    documents = [rows_of(number) for number in range(count)]
    draws = np.random.default_rng(1).permutation(count)[: AT_ONCE * ROUNDS].reshape(ROUNDS, AT_ONCE)
    out = np.empty((AT_ONCE * ROWS, UNITS), HALF)
    print(f"{count} documents of {ROWS} x {UNITS} in float16; {AT_ONCE} of them read at a time")
    print("| store | written, s | MB | first read and copied, ms | again, ms | only found, ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for store in (Arrays(), Cache(), Lightning(), Blobs()):
        path = folder / type(store).__name__
        start = time.thread_time()
        try:
            store.write(path, documents)
        except ImportError:
            print(f"{store.name}: not installed", file=sys.stderr)
            continue
        cells = [f"{time.thread_time() - start:.1f}"]
        cells.append(f"{sum(file.stat().st_size for file in path.iterdir()) / 1e6:.0f}")
        read = store.reader(path)

        def copy(numbers, read=read):
            np.concatenate(read(numbers), out=out)

        for work in (copy, copy, read):
            cells.append(f"{milliseconds(work, draws.tolist()):.2f}")
        print(f"| {store.name} | {' | '.join(cells)} |")
        shutil.rmtree(path)


def measure_checks():
    """Print the time of checksums and of conversions of 80 documents."""
    documents = [rows_of(number).astype(HALF) for number in range(AT_ONCE)]
    contents = [rows.reshape(-1).view(np.uint8).data for rows in documents]
    print(f"\n| of {AT_ONCE} documents | ms |\n| --- | --- |")
    half = EntryFormat(UNITS, "float16")
    checks = {
        "sum of 64-bit words": lambda content: half.checksum(np.asarray(content), ROWS, ROWS),
        "CRC-32": zlib.crc32,
        "BLAKE2b": lambda content: hashlib.blake2b(content, digest_size=8).digest(),
        "SHA-256": lambda content: hashlib.sha256(content).digest(),
    }
    for name, check in checks.items():
        time_of_all = milliseconds(lambda check: list(map(check, contents)), [check] * 9)
        print(f"| {name} | {time_of_all:.1f} |")
    out = np.zeros((AT_ONCE * ROWS, UNITS), np.float32)
    for store in STORES:
        entry = EntryFormat(UNITS, store)
        entries = [np.frombuffer(entry.pack(rows), np.uint8) for rows in documents]
        time_of_all = milliseconds(lambda entries: convert(entry, entries, out), [entries] * 9)  # noqa: B023
        print(f"| {store} to float32 by NumPy | {time_of_all:.1f} |")


def convert(entry, contents, out):
    """Copy entries of a format to one float32 array."""
    for number, content in enumerate(contents):
        rows = entry.read(content, ROWS, ROWS)
        target = out[ROWS * number : ROWS * (number + 1)]
        if entry.store == "bfloat16":
            bits = target.view(np.uint32)
            np.left_shift(rows, 16, out=bits, dtype=np.uint32, casting="unsafe")
        else:
            target[:] = rows


def measure_losses(name):
    """Print the errors of each element type on encodings of the built-in corpus."""
    with encoder_directory(name) as folder:
        backbone, tokenizer = load_backbone(folder), load_tokenizer(folder)
    texts = []
    for split in ("train", "dev", "test"):
        for question in read_questions(builtin_path(split)):
            texts += question.texts
    token_inputs = SingleInputs(tokenizer, 128).encode(list(dict.fromkeys(texts)))
    token_ids = [encoded.token_ids for encoded in token_inputs]
    encoder = DocumentEncoder(backbone, tokenizer, 128)
    start = time.perf_counter()
    encodings = encoder.encode(token_ids)
    seconds = time.perf_counter() - start
    tokens = sum(map(len, token_ids))
    print(
        f"\n{len(texts)} texts, {tokens} tokens of {name}, {backbone.config.units} units: "
        f"{1e3 * seconds / len(token_ids):.2f} ms a text; greatest value "
        f"{max(np.abs(rows).max() for rows in encodings):.2f}"
    )
    print("| store | bytes a token | greatest error | mean error | least cosine of two rows |")
    print("| --- | --- | --- | --- | --- |")
    for store in STORES:
        entry = EntryFormat(backbone.config.units, store)
        greatest, total, cosine = 0.0, 0.0, 1.0
        for rows in encodings:
            content = np.frombuffer(entry.pack(rows), np.uint8)
            stored = entry.read(content, len(rows), len(rows))
            if store == "bfloat16":
                stored = as_float32(stored)
            stored = stored.astype(np.float32)
            errors = np.abs(stored - rows)
            greatest, total = max(greatest, float(errors.max())), total + float(errors.sum())
            norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(rows, axis=1)
            cosine = min(cosine, float(((stored * rows).sum(axis=1) / norms).min()))
        mean = total / (tokens * backbone.config.units)
        print(f"| {store} | {entry.size(1)} | {greatest:.2e} | {mean:.2e} | {cosine:.6f} |")


def measure_scores(run, folder):
    """Print how the scores of a run change by what its cache keeps of the documents."""
    ids, questions = {}, []
    for question in read_questions(builtin_path("test")):
        candidates = []
        for candidate in question.candidates:
            id = ids.setdefault(candidate.text, f"D{len(ids)}")
            candidates.append(candidate._replace(id=id))
        questions.append(question._replace(candidates=tuple(candidates)))
    documents = folder / "documents.jsonl"
    write_documents(documents, [Document(id, text) for text, id in ids.items()])
    expected = [ranking.scores for ranking in load_ranker(run).rank_all(questions)]
    spread = np.concatenate(expected).std()
    print(f"\n{len(questions)} questions, {len(ids)} documents; scores deviate by {spread:.3f}")
    print("| store | rows kept | bytes a document | greatest error | mean error | same first |")
    print("| --- | --- | --- | --- | --- | --- |")
    for store, tokens in (*((store, 0) for store in STORES), ("float16", 32), ("float16", 16)):
        cache = folder / f"{store}_{tokens}"
        report = encode_documents(run, documents, cache, store, tokens)
        ranker = load_ranker(run, cache=str(cache))
        scores = [ranking.scores for ranking in ranker.rank_all(questions)]
        errors = np.abs(np.concatenate(scores) - np.concatenate(expected))
        first = [own.argmax() == other.argmax() for own, other in zip(scores, expected)]
        size = report.bytes / report.documents
        print(
            f"| {store} | {tokens or 'all'} | {size:.0f} | {errors.max():.1e} "
            f"| {errors.mean():.1e} | {np.mean(first):.2f} |"
        )


def measure_ranking(name, folder):
    """Print which part of a ranking the reading of documents is, at a base encoder's width.

    The encoders have one layer, as documents come from the cache; the interaction has one too.
    """
    with encoder_directory(name) as encoder_folder:
        tokenizer = load_tokenizer(encoder_folder)
    sizes = BackboneConfig(
        layout="bert",
        vocab_size=tokenizer.vocab_size,
        units=UNITS,
        hidden_size=4 * UNITS,
        num_layers=1,
        num_heads=12,
        max_positions=512,
        token_types=2,
    )
    network = find_system("dcbert").network_type()(sizes)
    network.initialize(mx.init.Normal(0.02))
    inputs = network.text_inputs(tokenizer, ROWS)
    identity = encodings_identity(network.document_encoder, tokenizer, ROWS)
    questions = []
    with DocumentCacheWriter(folder, {**identity, "store": "float16", "tokens": 0}) as writer:
        for number in range(ROUNDS):
            candidates = []
            for index in range(AT_ONCE * number, AT_ONCE * (number + 1)):
                writer.put(f"D{index}", text_digest(text_of(index)), rows_of(index))
                candidates.append(Candidate(text_of(index), 0, f"D{index}"))
            questions.append(Question(f"Q{number}", "how are caves formed ?", tuple(candidates)))
        writer.commit()
    print("\n| precision | a question, ms | reading for the first time, ms | share |")
    print("| --- | --- | --- | --- |")
    for precision in ("float32", "bfloat16"):
        config = EngineConfig("onednn", precision)
        ranker = build_ranker("dcbert", network, inputs, engine=config, cache=str(folder))
        list(ranker.rank_all(questions[:3]))  # compiles the kernels
        ranker = build_ranker("dcbert", network, inputs, engine=config, cache=str(folder))
        totals, readings = [], []
        with watched(DocumentCache, "find_many", readings):
            for question in questions:
                start = time.perf_counter()
                list(ranker.rank_all([question]))
                totals.append(time.perf_counter() - start)
        total, reading = (1e3 * statistics.median(times[3:]) for times in (totals, readings))
        print(f"| {precision} | {total:.1f} | {reading:.1f} | {reading / total:.3f} |")


@contextlib.contextmanager
def watched(owner, name, times):
    """Append the time of each call of a method to a list."""
    method = getattr(owner, name)

    def timed(*arguments):
        start = time.perf_counter()
        result = method(*arguments)
        times.append(time.perf_counter() - start)
        return result

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, method)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1500)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare_stores(options.documents, pathlib.Path(folder))
        measure_checks()
        measure_losses(options.encoder)
        measure_ranking(options.encoder, pathlib.Path(folder) / "ranking")
        if options.run:
            measure_scores(options.run, pathlib.Path(folder))


if __name__ == "__main__":
    main()
