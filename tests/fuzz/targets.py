"""Readers of files from elsewhere, each with files to start from.

A reader takes the path of a file. It reads it, or refuses it by an error of `wqa.errors`; anything
else is a fault. `tests/fuzz/run.py` looks for faults, and tests/test_fuzz.py reads again what it
once found, below tests/files/fuzz.
"""

import io
import json
import pathlib
import tarfile

import numpy as np
from safetensors.numpy import save_file

from wqa.config import read_run_config
from wqa.data import builtin_path, read_questions
from wqa.data.documents import read_claims, read_documents
from wqa.data.folders import read_folder, read_table
from wqa.data.vector_files import read_vector_file
from wqa.errors import WqaError
from wqa.evaluation import read_qrels, read_run
from wqa.evaluation.run_metadata import header_of
from wqa.io.encoder_directories import encoder_directory
from wqa.pretrained.configs import from_huggingface, read_object
from wqa.pretrained.weights import Weights
from wqa.text import load_tokenizer

FILES = pathlib.Path(__file__).resolve().parent.parent / "files"
#: Bytes of the largest array that a target reads; the sizes of others are in their headers alone.
LARGEST = 1 << 20


def _all(read):
    return lambda path: list(read(path))


def _tensors(path):
    weights = Weights(path)
    for name, shape in weights.shapes.items():
        if shape and np.prod(shape, dtype=float) < LARGEST:
            weights.read(name)


def _run(path):
    read_run(path)


def _tar(path):
    with encoder_directory(path):
        pass


def _folder(path):
    list(read_folder(path.parent))


def _encoder_config(path):
    from_huggingface(read_object(path), path, ["embeddings.word_embeddings.weight"] * 100)


def _tokenizer(path):
    load_tokenizer(path.parent).encode(["Ice melts.", ""])


def _vectors(path):
    read_vector_file(path, {"cave", "ice", "the"})


#: By its name, the name of a file and its reader.
TARGETS = {
    "questions": ("input.jsonl", _all(read_questions)),
    "documents": ("input.jsonl", _all(read_documents)),
    "claims": ("input.jsonl", _all(read_claims)),
    "table": ("input.csv", _all(read_table)),
    "question_table": ("input.csv", _all(read_questions)),
    "html": ("input.html", _folder),
    "markdown": ("input.md", _folder),
    "run": ("input.trec", _run),
    "qrels": ("input.qrels", read_qrels),
    "config": ("config.json", read_run_config),
    "encoder_config": ("config.json", _encoder_config),
    "pickle": ("input.bin", _tensors),
    "safetensors": ("input.safetensors", _tensors),
    "params": ("input.params", _tensors),
    "vectors": ("input.txt", _vectors),
    "wordpiece": ("vocab.txt", _tokenizer),
    "tokenizer": ("tokenizer.json", _tokenizer),
    "tar": ("input.tar", _tar),
}


def read(name, path):
    """Read a file by a target; tells whether it was refused."""
    try:
        TARGETS[name][1](path)
    except WqaError:
        return True
    return False


def _lines(split, count):
    return b"".join(builtin_path(split).read_bytes().splitlines(True)[:count])


def _saved(folder):
    path = folder / "tensors.safetensors"
    save_file({"a.weight": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)}, str(path))
    return path.read_bytes()


def _tar_file():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        member = tarfile.TarInfo("models/config.json")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"{}"))
    return stream.getvalue()


def _tokenizer_file(folder):
    (folder / "words").mkdir(exist_ok=True)
    (folder / "words" / "vocab.txt").write_bytes(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nice\n##s\n")
    load_tokenizer(folder / "words").save(folder / "words" / "tokenizer.json")
    return (folder / "words" / "tokenizer.json").read_bytes()


def seeds(name, folder):
    """Contents to start from; ``folder`` is for files that are made."""
    header = "\n".join(header_of({"tag": "wqa", "method": {"automatic": True}}))
    contents = {
        "questions": [_lines("test", 2), b'{"id": "a", "question": "b", "candidates": []}\n'],
        "documents": [b'{"id": "D1", "title": "Caves", "text": "Ice melts."}\n'],
        "claims": [b'{"id": "1", "claim": "Ice melts.", "evidence": ["a"], "label": "SUPPORTS"}\n'],
        "table": [b'id,title,text\n1,Caves,"Ice, that\nmelts"\n', b"text\na\n"],
        "question_table": [b'question,candidate,label,id\nwhy,"Ice, that\nmelts",1,D\nwhy,,,\n'],
        "html": [b"<html><head><title>T</title></head><body><h1>A</h1><ul><li>b<table><tr><td>c"],
        "markdown": [b"---\na: 1\n---\n# Title\n\n* [b](c) `d`\n\n```\ncode\n```\n| a | b |\n"],
        "run": [f"{header}\nq Q0 d 1 0.5 wqa\nq Q0 e 2 -1e-3 wqa\n".encode()],
        "qrels": [b"q 0 d 1\nq 0 e 0\n"],
        "config": [(FILES / "run_0_2_0" / "config.json").read_bytes()],
        "encoder_config": [(FILES / "tiny_roberta" / "config.json").read_bytes()],
        "pickle": [path.read_bytes() for path in sorted((FILES / "pickled").iterdir())],
        "safetensors": [_saved(folder)],
        "params": [path.read_bytes() for path in sorted((FILES / "run_0_2_0").glob("*.params"))],
        "vectors": [b"2 3\ncave 1 2 3\nice 0.5 -1e2 0\n", b"cave 1 2\nthe 3 4\n"],
        "wordpiece": [b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nice\n##s\nm\n"],
        "tokenizer": [_tokenizer_file(folder)],
        "tar": [_tar_file()],
    }
    return contents[name]


def dictionary(name):
    """Words that a mutation may insert."""
    words = ["id", "question", "candidates", "text", "label", "NaN", "-1", "1e999", "\\ud800"]
    words += ["ir_metadata.start", "ir_metadata.end", "null", "true", "collections", "OrderedDict"]
    return "".join(f"{json.dumps(word)}\n" for word in words)
