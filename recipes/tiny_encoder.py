#!/usr/bin/env python3
"""Write a tiny BERT encoder with random weights, as a Hugging Face directory: what recipes and
tests start from in seconds.

    python recipes/tiny_encoder.py OUT

Its vocabulary is that of the built-in corpus.
"""

import json
import pathlib
import re
import sys

import numpy as np
from safetensors.numpy import save_file

from wqa.data import builtin_path, read_questions

TINY = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 160,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


#: Tokens that every vocabulary of BERT has.
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary():
    """Words and letters of the built-in corpus, as WordPiece has them."""
    words = set()
    for split in ("train", "dev", "test"):
        for question in read_questions(builtin_path(split)):
            for text in (question.question, *question.texts):
                words.update(re.findall(r"\w+|[^\w\s]", text.lower()))
    letters = sorted({letter for word in words for letter in word})
    pieces = ["##" + letter for letter in letters]
    return [*SPECIAL, *letters, *pieces, *sorted(word for word in words if len(word) > 1)]


def shapes_of(config):
    """Shapes of the encoder's tensors, by the names of the reference library."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }

    def add(name, *shape):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    add("embeddings.LayerNorm", width)
    add("pooler.dense", width, width)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value"):
            add(f"{prefix}.{name}", width, width)
        add(f"{prefix}.attention.output.dense", width, width)
        add(f"{prefix}.intermediate.dense", inner, width)
        add(f"{prefix}.output.dense", width, inner)
        add(f"{prefix}.attention.output.LayerNorm", width)
        add(f"{prefix}.output.LayerNorm", width)
    return shapes


def write_tiny_encoder(folder, seed=0, **changes):
    """Write the directory; ``changes`` are fields of its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = vocabulary()
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    config = {**TINY, "vocab_size": len(vocab), **changes}
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in shapes_of(config).items():
        arrays[name] = rng.normal(0, 0.3, shape).astype(np.float32)
        if name.endswith("LayerNorm.weight"):
            arrays[name] += 1
    save_file(arrays, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


if __name__ == "__main__":
    write_tiny_encoder(pathlib.Path(sys.argv[1]))
