"""Directories of the joint models of MSPP's authors: into a run, with their scores.

The reference is their model in NumPy: padded segments, RoBERTa's numbering of the tokens that are
no padding, and a missing candidate that all others see.
"""

import json
import math
import shutil

import numpy as np
import pytest
from conftest import DATA, needs_onednn
from safetensors.numpy import save_file

from wqa.cli import main
from wqa.config import read_run_config
from wqa.errors import EncoderError, RunDirectoryError
from wqa.systems.convert import convert
from wqa.systems.load import load_ranker
from wqa.text import load_tokenizer

UNITS, INNER, LAYERS, ATTENTION_HEADS, VOCAB, POSITIONS = 16, 32, 2, 2, 1300, 130
K, LENGTH = 3, 32
SETTINGS = {
    "model_type": "roberta",
    "architectures": ["JointRobertaForSequenceClassification"],
    "k": K,
    "sentence_msl": LENGTH,
    "head_type": "IE_k",
    "vocab_size": VOCAB,
    "hidden_size": UNITS,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": ATTENTION_HEADS,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": K + 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
TEXTS = ["where is the river ?", "the glacier is cold", "a cave", "ice melts in the spring"]


def random_tensors(head="IE_k", labels=2):
    """Random tensors by the authors' names."""
    rng = np.random.default_rng(7)
    shapes = {
        "embeddings.word_embeddings.weight": (VOCAB, UNITS),
        "embeddings.position_embeddings.weight": (POSITIONS, UNITS),
        "embeddings.token_type_embeddings.weight": (K + 1, UNITS),
    }
    norms = ["embeddings.LayerNorm"]
    for number in range(LAYERS):
        start = f"encoder.layer.{number}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{start}attention.{name}.weight"] = (UNITS, UNITS)
        shapes[f"{start}intermediate.dense.weight"] = (INNER, UNITS)
        shapes[f"{start}output.dense.weight"] = (UNITS, INNER)
        norms += [f"{start}attention.output.LayerNorm", f"{start}output.LayerNorm"]
    shapes.update({f"{name}.weight": (UNITS,) for name in norms})
    shapes = {f"roberta.{name}": shape for name, shape in shapes.items()}
    width = 2 * UNITS if head == "AE_k" else UNITS
    shapes["classifier.classifier.dense.weight"] = (width, width)
    shapes["classifier.classifier.out_proj.weight"] = (labels, width)
    for name, shape in list(shapes.items()):
        if "_embeddings" not in name:
            shapes[name.replace(".weight", ".bias")] = shape[:1]
    tensors = {}
    for name, shape in shapes.items():
        is_scale = name.endswith("LayerNorm.weight")
        tensors[name] = (rng.normal(0, 0.3, shape) + is_scale).astype(np.float32)
    return tensors


def write_directory(folder, head="IE_k", labels=2, tensors=None, **changes):
    """An authors' directory; tensors whose value is None are left out."""
    content = {**random_tensors(head, labels), **(tensors or {})}
    content = {name: value for name, value in content.items() if value is not None}
    shutil.copytree(DATA / "tokenizers" / "byte_level", folder)
    settings = {**SETTINGS, "head_type": head, **changes}
    settings = {name: value for name, value in settings.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    save_file(content, str(folder / "model.safetensors"))
    return folder


class Reference:
    """The authors' model on padded segments, in float64."""

    def __init__(self, tensors):
        self.tensors = {name: value.astype(np.float64) for name, value in tensors.items()}

    def dense(self, name, rows):
        return rows @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def norm(self, name, rows):
        centred = rows - rows.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return centred / scale * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def encode(self, ids):
        """Encodings of an input, (L, C), of token ids with padding 1."""
        real = ids != 1
        positions = np.cumsum(real) * real + 1
        table = {
            name: self.tensors[f"roberta.embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        }
        types = np.repeat(np.arange(K + 1), LENGTH)
        rows = table["word"][ids] + table["position"][positions] + table["token_type"][types]
        rows = self.norm("roberta.embeddings.LayerNorm", rows)
        for number in range(LAYERS):
            rows = self.layer(f"roberta.encoder.layer.{number}.", rows, real)
        return rows

    def layer(self, start, rows, real):
        parts = []
        for name in ("query", "key", "value"):
            part = self.dense(f"{start}attention.self.{name}", rows)
            parts.append(part.reshape(len(rows), ATTENTION_HEADS, -1).transpose(1, 0, 2))
        query, key, value = parts
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(UNITS // ATTENTION_HEADS)
        scores = np.where(real, scores, -1e9)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context = (weights @ value).transpose(1, 0, 2).reshape(len(rows), -1)
        output = self.dense(f"{start}attention.output.dense", context)
        rows = self.norm(f"{start}attention.output.LayerNorm", rows + output)
        inner = self.dense(f"{start}intermediate.dense", rows)
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        return self.norm(
            f"{start}output.LayerNorm", rows + self.dense(f"{start}output.dense", inner)
        )

    def logits(self, texts, head, tokenizer):
        """Logits of a question and candidates; those that are missing are empty texts."""
        ids = np.ones((K + 1, LENGTH), dtype=int)
        for row, text in zip(ids, [*texts, *[""] * (K + 1 - len(texts))]):
            tokens = [0, *tokenizer.encode([text])[0][: LENGTH - 2], 2]
            row[: len(tokens)] = tokens
        segments = self.encode(ids.ravel())[::LENGTH]
        rows = {
            "IE_1": segments[0],
            "AE_1": segments.sum(axis=0),
            "IE_k": segments[1:],
            "AE_k": np.concatenate([np.repeat(segments[:1], K, axis=0), segments[1:]], axis=1),
        }[head]
        rows = np.tanh(self.dense("classifier.classifier.dense", rows))
        return self.dense("classifier.classifier.out_proj", rows)


@pytest.mark.parametrize("engine", ["mxnet", pytest.param("onednn", marks=needs_onednn)])
@pytest.mark.parametrize("head", ["IE_k", "AE_k"])
def test_a_converted_model_gives_the_references_scores(tmp_path, engine, head):
    directory = write_directory(tmp_path / "authors", head)
    assert main(["convert", str(directory), str(tmp_path / "run")]) == 0
    ranker = load_ranker(tmp_path / "run", engine=engine, order="original")
    reference = Reference(random_tensors(head))
    tokenizer = load_tokenizer(directory)
    for texts in (TEXTS, TEXTS[:3], [TEXTS[0], "cold " * 60]):
        logits = reference.logits(texts, head, tokenizer)[: len(texts) - 1]
        ranking = ranker.rank(texts[0], texts[1:])
        np.testing.assert_allclose(ranking.scores, logits[:, 1] - logits[:, 0], atol=1e-4)
    assert ranking.truncated.tolist() == [True]


@pytest.mark.parametrize("head", ["IE_1", "AE_1"])
def test_a_converted_classifier_gives_the_references_logits(tmp_path, head):
    import mxnet as mx

    from wqa.systems.run_directory import load_run

    directory = write_directory(tmp_path / "authors", head, labels=3)
    report = convert(directory, tmp_path / "run")
    assert (report.system, report.unused) == ("mspp", [])
    run = load_run(tmp_path / "run")
    reference = Reference(random_tensors(head, 3))
    tokenizer = load_tokenizer(directory)
    for texts in (TEXTS, TEXTS[:2]):
        [joint] = run.inputs.encode(texts[0], texts[1:])
        inputs = [mx.nd.array(array, dtype=array.dtype) for array in run.inputs.pad([joint])]
        expected = reference.logits(texts, head, tokenizer)
        np.testing.assert_allclose(run.network(*inputs).asnumpy()[0], expected, atol=1e-4)
    with pytest.raises(RunDirectoryError, match="a ranker"):
        load_ranker(tmp_path / "run")


def test_a_directory_ranks_as_its_run_does(tmp_path):
    directory = write_directory(tmp_path / "authors")
    convert(directory, tmp_path / "run")
    ours, theirs = (
        load_ranker(path, order="original").rank(TEXTS[0], TEXTS[1:]).scores
        for path in (tmp_path / "run", directory)
    )
    np.testing.assert_array_equal(theirs, ours)
    claims = write_directory(tmp_path / "claims", "IE_1", labels=3)
    with pytest.raises(EncoderError, match="without a classifier"):
        load_ranker(claims)


def test_what_a_converted_run_records(tmp_path):
    directory = write_directory(tmp_path / "authors")
    tensors = random_tensors()
    tensors["lm_head.dense.weight"] = np.zeros((UNITS, UNITS), np.float32)
    # With the head of masked language modelling, as after pre-training.
    save_file(tensors, str(directory / "model.safetensors"))
    report = convert(directory, tmp_path / "run", command="wqa convert")
    assert report.unused == ["lm_head.dense.weight"]
    assert report.head_parameters == UNITS * UNITS + UNITS + 2 * UNITS + 2
    config = read_run_config(tmp_path / "run" / "config.json")
    assert config.backbone.token_types == K + 1
    expected = {"head": "IE_k", "k": K, "segment_length": LENGTH, "positions": "tokens"}
    expected.update({"missing": "visible", "aggregation": "sum"})
    assert {name: config.network[name] for name in expected} == expected


def test_one_of_masked_language_modelling_alone_is_an_encoder(tmp_path):
    without = {name: None for name in random_tensors() if name.startswith("classifier.")}
    directory = write_directory(tmp_path / "authors", tensors=without)
    report = convert(directory, tmp_path / "run")
    assert report.system == "encoder" and report.config.token_types == K + 1


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"head": "RE_k"}, "head_type 'RE_k'.*IE_k, AE_k, IE_1, AE_1"),
        ({"k": "3"}, "k '3'.*whole number"),
        ({"sentence_msl": 64}, "64 x .3 . 1. = 256 tokens.*128"),
        ({"k": 2}, "token_type_embeddings.*4, 16.*3, 16"),
        ({"labels": 3}, "a head IE_k of 3 labels"),
        ({"tensors": {"classifier.classifier.dense.bias": None}}, "missing tensors: .*dense.bias"),
        (
            {"tensors": {"classifier.classifier.dense.weight": np.zeros((8, 16), np.float32)}},
            r"dense.weight.*\(8, 16\).*\(16, 16\)",
        ),
    ],
)
def test_wrong_directories_are_refused(tmp_path, changes, message):
    directory = write_directory(tmp_path / "authors", **changes)
    with pytest.raises(EncoderError, match=message):
        convert(directory, tmp_path / "run")
    assert not (tmp_path / "run").exists()
