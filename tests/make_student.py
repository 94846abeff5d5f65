#!/usr/bin/env python3
"""Make the files of tests/systems/mhs/test_mhs_checkpoint.py, with PyTorch and transformers.

    python tests/make_student.py

Run in an environment of its own (transformers 4.41, numpy below 2). It writes
tests/files/tiny_mhs: a Multiple-Heads Student B2_3H1 with random weights as `cerberus_model.pt`,
the configuration and vocabulary of its ELECTRA encoder, and the probabilities that it gives. The
student is written here from the paper's section 3.3 on the layers of transformers' ELECTRA, with
the names of the authors' checkpoint.
"""

import json
import pathlib
import shutil
import string

import numpy as np
import torch
import transformers
from torch import nn
from transformers.models.electra.modeling_electra import ElectraClassificationHead

HERE = pathlib.Path(__file__).parent / "files" / "tiny_mhs"
FILE = "cerberus_model.pt"
BODY, HEADS, HEAD_LAYERS = 2, 3, 1
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
QUESTIONS = ["how are glacier caves formed ?", "who wrote hamlet"]
CANDIDATES = [
    "Meltwater carves them.",
    "the moon",
    "Hamlet is a play by William Shakespeare, who lived from 1564 to 1616.",
    "a",
]


class Layers(nn.Module):
    """Consecutive layers."""

    def __init__(self, layers):
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(self, hidden, mask):
        for layer in self.layer:
            hidden = layer(hidden, mask)[0]
        return hidden


class RankingHead(Layers):
    """Layers and ELECTRA's classifier: the logits of the negative and the positive class."""

    def __init__(self, layers, config):
        super().__init__(layers)
        self.classifier = ElectraClassificationHead(config)

    def forward(self, hidden, mask):
        return self.classifier(super().forward(hidden, mask))


class Student(nn.Module):
    """A body and ranking heads; the first head has the layers of the encoder itself."""

    def __init__(self, config):
        super().__init__()
        self.core_base_model = transformers.ElectraModel(config)
        layers = list(self.core_base_model.encoder.layer)
        self.embeddings = self.core_base_model.embeddings
        self.cerberus_shared_encoder = Layers(layers[:BODY])
        heads = [RankingHead(layers[BODY:], config)]
        for _ in range(1, HEADS):
            layers = list(transformers.ElectraModel(config).encoder.layer)
            heads.append(RankingHead(layers[BODY:], config))
        self.cerberus_heads = nn.ModuleList(heads)

    def forward(self, token_ids, mask, token_types):
        mask = self.core_base_model.get_extended_attention_mask(mask, token_ids.shape)
        hidden = self.embeddings(input_ids=token_ids, token_type_ids=token_types)
        hidden = self.cerberus_shared_encoder(hidden, mask)
        logits = torch.stack([head(hidden, mask) for head in self.cerberus_heads], dim=1)
        return torch.softmax(logits.double(), dim=-1)[..., 1]  # (B, k)


def write_encoder():
    """Write configuration and vocabulary of the encoder; return its configuration."""
    letters = list(string.ascii_lowercase)
    words = ["is", "who", "the"]
    vocabulary = SPECIALS + letters + ["##" + letter for letter in letters] + words
    (HERE / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (HERE / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}) + "\n")
    config = transformers.ElectraConfig(
        vocab_size=len(vocabulary),
        embedding_size=16,
        hidden_size=16,
        num_hidden_layers=BODY + HEAD_LAYERS,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        num_labels=2,
    )
    config.save_pretrained(HERE)
    return config


def make():
    """Write the student and what it gives."""
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    torch.manual_seed(0)
    student, rng = Student(write_encoder()).eval(), np.random.default_rng(0)
    with torch.no_grad():  # the default initialisation leaves biases 0 and norms 1
        for parameter in student.parameters():
            noise = rng.normal(0, 0.3, tuple(parameter.shape))
            parameter.add_(torch.tensor(noise, dtype=torch.float32))
    torch.save(student.state_dict(), HERE / FILE)
    np.savez_compressed(
        HERE / "expected.npz",
        questions=QUESTIONS,
        candidates=CANDIDATES,
        probabilities=score(student, transformers.ElectraTokenizer.from_pretrained(HERE)),
    )


def score(student, tokenizer):
    """Probability of each head: (questions, candidates, heads)."""
    probabilities = []
    for question in QUESTIONS:
        pairs = [[question] * len(CANDIDATES), CANDIDATES]
        batch = tokenizer(*pairs, padding=True, truncation="only_second", return_tensors="pt")
        with torch.no_grad():
            inputs = (batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
            probabilities.append(student(*inputs).numpy())
    return np.stack(probabilities)


if __name__ == "__main__":
    make()
