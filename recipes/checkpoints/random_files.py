#!/usr/bin/env python3
"""Write checkpoints in the forms in which the papers' authors released theirs, with random weights
and two to three layers: what `SMOKE=1 recipes/checkpoints/released.sh` converts.

    python recipes/checkpoints/random_files.py OUT

Names of tensors are the authors', and so are the forms, but that all weights are safetensors: tars
of directories for TANDA, a file for the Multiple-Heads Student, a directory for MSPP.
"""

import json
import pathlib
import re
import sys
import tarfile

import numpy as np
from safetensors.numpy import save_file
from tokenizers.pre_tokenizers import ByteLevel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tiny_encoder import TINY, shapes_of, vocabulary

#: Candidates of a joint model, and tokens, which are bytes, of each of its segments.
K, LENGTH = 5, 120
#: Layers of the student's body, its heads, and layers of each head.
BODY, HEADS, HEAD_LAYERS = 2, 3, 1
ROBERTA = {
    "model_type": "roberta",
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "num_labels": 2,
}


def write_words(folder):
    """Write the vocabulary of BERT and ELECTRA; return its size."""
    words = vocabulary()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    return len(words)


def write_bytes(folder):
    """Write the vocabulary of a RoBERTa without merges, whose tokens are bytes; return its size."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    numbers = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    return len(tokens)


def write_settings(folder, write_vocabulary, **changes):
    """Write a tokenizer and a config.json; return what it says."""
    folder.mkdir(parents=True)
    config = {**TINY, "vocab_size": write_vocabulary(folder), **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return config


def random_tensors(shapes, seed):
    """Tensors of these shapes; scales of norms are near 1."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes.items():
        is_scale = name.endswith("LayerNorm.weight")
        tensors[name] = (rng.normal(0, 0.3, shape) + is_scale).astype(np.float32)
    return tensors


def dense_shapes(name, out, into):
    """Shapes of a dense layer."""
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def encoder_shapes(config, prefix, pooler=True):
    """Shapes of an encoder's tensors, by names with a prefix."""
    shapes = shapes_of(config)
    types = "embeddings.token_type_embeddings.weight"
    shapes[types] = (config["type_vocab_size"], config["hidden_size"])
    return {
        f"{prefix}{name}": shape for name, shape in shapes.items() if pooler or "pooler" not in name
    }


def write_tar(path, folder):
    """Put a directory into a tar, below two folders as TANDA's are."""
    with tarfile.open(path, "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, f"models/{path.stem}/{file.name}")
            file.unlink()
    folder.rmdir()


def write_tanda(out, name, family, seed):
    """Write a fine-tuned classifier of TANDA's."""
    folder = out / name
    if family == "bert":
        config = write_settings(folder, write_words, num_labels=2)
        classifier = dense_shapes("classifier", 2, config["hidden_size"])
    else:
        config = write_settings(folder, write_bytes, **ROBERTA, max_position_embeddings=162)
        width = config["hidden_size"]
        classifier = dense_shapes("classifier.dense", width, width)
        classifier.update(dense_shapes("classifier.out_proj", 2, width))
    shapes = {**encoder_shapes(config, f"{family}."), **classifier}
    save_file(random_tensors(shapes, seed), str(folder / "model.safetensors"))
    write_tar(out / f"{name}.tar", folder)


def student_names(tensor):
    """Names of an encoder's tensor in a student: one in the body, or one in each head."""
    match = re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)", tensor)
    if not match:
        return [tensor]
    layer, rest = int(match[1]), match[2]
    if layer < BODY:
        return [f"cerberus_shared_encoder.layer.{layer}.{rest}"]
    return [f"cerberus_heads.{head}.layer.{layer - BODY}.{rest}" for head in range(HEADS)]


def write_student(out, name, encoder):
    """Write a Multiple-Heads Student, and the directory of its ELECTRA encoder, without weights."""
    config = write_settings(
        encoder,
        write_words,
        model_type="electra",
        embedding_size=TINY["hidden_size"],
        num_hidden_layers=BODY + HEAD_LAYERS,
    )
    width = config["hidden_size"]
    shapes, copies = {}, {}
    for tensor, shape in encoder_shapes(config, "", pooler=False).items():
        names = student_names(tensor)
        shapes.update(dict.fromkeys(names, shape))
        copies[f"core_base_model.{tensor}"] = names[0]  # the encoder repeats body and first head
    for head in range(HEADS):
        start = f"cerberus_heads.{head}.classifier"
        shapes.update(dense_shapes(f"{start}.dense", width, width))
        shapes.update(dense_shapes(f"{start}.out_proj", 2, width))
    folder = out / name
    folder.mkdir()
    tensors = random_tensors(shapes, 2)
    tensors.update({copy: tensors[name] for copy, name in copies.items()})
    save_file(tensors, str(folder / "cerberus_model.safetensors"))


def write_joint(out, name, head, seed):
    """Write a directory of MSPP's joint models."""
    settings = {
        **ROBERTA,
        "type_vocab_size": K + 1,
        "max_position_embeddings": K * LENGTH + LENGTH + 2,
    }
    joint = {"k": K, "sentence_msl": LENGTH, "head_type": head}
    config = write_settings(out / name, write_bytes, **settings, **joint)
    width = config["hidden_size"]
    if head == "AE_k":
        width *= 2
    shapes = encoder_shapes(config, "roberta.", pooler=False)
    shapes.update(dense_shapes("classifier.classifier.dense", width, width))
    shapes.update(dense_shapes("classifier.classifier.out_proj", 2, width))
    save_file(random_tensors(shapes, seed), str(out / name / "model.safetensors"))


def main(out):
    """Write a file of each kind."""
    out = pathlib.Path(out)
    write_tanda(out, "tanda_bert_base_asnq_wikiqa", "bert", 0)
    write_tanda(out, "tanda_roberta_base_asnq_wikiqa", "roberta", 1)
    write_student(out, "cerberus11-3_albert_electra_roberta_asnq_wikiqa", out / "electra-base")
    write_joint(out, "joint_ae_k", "AE_k", 3)
    write_joint(out, "joint_ie_k_wikiqa", "IE_k", 4)


if __name__ == "__main__":
    main(sys.argv[1])
