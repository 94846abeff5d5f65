"""Fixtures: a tiny encoder directory, a tiny trained run, real corpora where they are present."""
import gzip
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile

import numpy as np
import pytest
from hypothesis import settings
from safetensors.numpy import save_file

from wqa.data import builtin_path, read_questions

settings.register_profile("wqa", deadline=None, derandomize=True)
settings.load_profile("wqa")

ROOT = pathlib.Path(__file__).parent.parent
DATA = pathlib.Path(__file__).parent / "data"
sys.path.insert(0, str(ROOT / "data_scripts"))  # the scripts import one another
SHARED = pathlib.Path(os.environ.get("WQA_SHARED_DATA", ROOT.parent / "shared" / "data"))

TINY = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 160, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def write_tiny_encoder(folder, seed=0, **changes):
    """A Hugging Face directory with a vocabulary of the built-in corpus and random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    words = set()
    for split in ("train", "dev", "test"):
        for question in read_questions(builtin_path(split)):
            for text in (question.question, *question.texts):
                words.update(re.findall(r"\w+|[^\w\s]", text.lower()))
    letters = sorted({letter for word in words for letter in word})
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters),
             *sorted(word for word in words if len(word) > 1)]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    config = {**TINY, "vocab_size": len(vocab), **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    rng, width, inner = np.random.default_rng(seed), config["hidden_size"], config["intermediate_size"]
    shapes = {"embeddings.word_embeddings.weight": (len(vocab), width),
              "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
              "embeddings.token_type_embeddings.weight": (2, width), "embeddings.LayerNorm.weight": (width,),
              "embeddings.LayerNorm.bias": (width,), "pooler.dense.weight": (width, width), "pooler.dense.bias": (width,)}
    for layer in range(config["num_hidden_layers"]):
        for name, out, into in (("attention.self.query", width, width), ("attention.self.key", width, width),
                                ("attention.self.value", width, width), ("attention.output.dense", width, width),
                                ("intermediate.dense", inner, width), ("output.dense", width, inner)):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (out, into)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (out,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shapes[f"encoder.layer.{layer}.{name}.bias"] = (width,)
    arrays = {name: rng.normal(0, 0.3, shape).astype(np.float32) + (1 if name.endswith("LayerNorm.weight") else 0)
              for name, shape in shapes.items()}
    save_file({name: array.astype(np.float32) for name, array in arrays.items()}, str(folder / "model.safetensors"))
    return folder


#: Families of encoders at a tiny size, and the stored vocabulary that each takes.
FAMILIES = {"bert": "uncased", "roberta": "byte_level", "electra": "cased", "electra_small": "uncased",
            "albert": "sentencepiece"}


def write_family_encoder(folder, family):
    """A Hugging Face directory of a family, random weights in the reference's names."""
    import mxnet as mx

    from wqa.config import BackboneConfig
    from wqa.inference.export import huggingface_tensors
    from wqa.models import PairwiseTransformer
    from wqa.pretrained.configs import to_huggingface

    layout = family.split("_")[0]
    changes = {"roberta": {"token_types": 1, "layer_norm_eps": 1e-5, "first_position": 2},
               "electra_small": {"embedding_size": 8},
               "albert": {"embedding_size": 8, "shared_layers": True, "activation": "gelu_tanh"}}.get(family, {})
    model = PairwiseTransformer(BackboneConfig(layout=layout, vocab_size=1300, units=16, hidden_size=32, num_layers=3,
                                               num_heads=2, max_positions=160, **changes))
    mx.random.seed(11)
    model.initialize(mx.init.Normal(0.3))
    shutil.copytree(DATA / "tokenizers" / FAMILIES[family], folder)
    (folder / "config.json").write_text(json.dumps(to_huggingface(model.config)), encoding="utf-8")
    save_file(huggingface_tensors(model), str(folder / "model.safetensors"))
    return folder


def make_tar(path, folder, **extra):
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, f"models/tanda/{file.name}")
        for name, kind in extra.items():
            member = tarfile.TarInfo({"up": "models/../../evil", "root": "/evil", "link": "models/link"}[name])
            member.type, member.linkname = kind, "../../evil"
            tar.addfile(member)
    return path


@pytest.fixture(scope="session", params=list(FAMILIES))
def family_encoder(request, tmp_path_factory):
    return write_family_encoder(tmp_path_factory.mktemp("family") / request.param, request.param)


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory):
    return write_tiny_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny_encoder):
    """A cascade with exits 1, 2, 3, trained for a few updates on the built-in dev questions."""
    from wqa.config import TrainingConfig
    from wqa.training import train

    out = tmp_path_factory.mktemp("runs") / "tiny"
    config = TrainingConfig(max_updates=8, learning_rate=1e-2, warmup_updates=2, tokens_per_batch=500, log_every=2)
    train("cascade", str(builtin_path("dev")), str(out), str(tiny_encoder), exits=(1, 2, 3), config=config, max_length=64)
    return out


@pytest.fixture(scope="session")
def wikiqa_archive():
    folder = SHARED / "wikiqa"
    if not folder.is_dir():
        pytest.skip(f"WikiQA is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def minilm():
    from wqa.errors import EncoderError
    from wqa.pretrained import locate_encoder

    try:
        return locate_encoder("minilm")
    except EncoderError as error:
        pytest.skip(str(error))


@pytest.fixture
def jsonl(tmp_path):
    """Write lines to a file, gzipped if its name says so."""
    def write(*lines, name="questions.jsonl"):
        path = tmp_path / name
        raw = b"".join((line if isinstance(line, bytes) else line.encode("utf-8")) + b"\n" for line in lines)
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path
    return write
