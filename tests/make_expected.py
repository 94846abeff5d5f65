#!/usr/bin/env python3
"""Make the arrays that the parity tests expect, with PyTorch and transformers.

    python tests/make_expected.py MINILM_DIR

Run in an environment of its own (`pip install torch transformers`); the tests read the files that it
wrote and need neither. It writes under tests/data/: a tiny BERT and a tiny RoBERTa with random weights,
as Hugging Face directories with their hidden states and gradients, and hidden states of MiniLM on real pairs.
"""
import pathlib
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent / "data"
SIZES = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
PAIRS = [
    ("how are glacier caves formed ?", "Meltwater that runs through or under a glacier carves its caves."),
    ("who wrote hamlet ?", "Hamlet, prince of Denmark, speaks to his father's ghost on the walls of Elsinore; "
                           "the play is by William Shakespeare (about 1600)."),
    ("what is naïve Bayes ?", "日本語 and emoji 🙂 are unknown to some vocabularies, Zürich is not."),
]


def states(model, token_ids, token_types, valid_length):
    """Embeddings' and every layer's output, (layers + 1, batch, length, units)."""
    mask = (np.arange(token_ids.shape[1])[None] < valid_length[:, None]).astype(np.int64)
    with torch.no_grad():
        out = model.eval()(torch.tensor(token_ids), attention_mask=torch.tensor(mask),
                           token_type_ids=torch.tensor(token_types), output_hidden_states=True)
    return np.stack([state.numpy() for state in out.hidden_states])


def gradients(model, token_ids, token_types, valid_length, weights):
    """Gradients of the weighted sum of the last layer's real positions, by parameter."""
    mask = (np.arange(token_ids.shape[1])[None] < valid_length[:, None]).astype(np.int64)
    out = model.eval()(torch.tensor(token_ids), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(token_types))
    (out.last_hidden_state * torch.tensor(weights * mask[..., None])).sum().backward()
    parameters, layer = dict(model.named_parameters()), "encoder.layer.1"
    qkv = [parameters[f"{layer}.attention.self.{part}.weight"].grad.numpy() for part in ("query", "key", "value")]
    return {"gradient_of_words": parameters["embeddings.word_embeddings.weight"].grad.numpy(),
            "gradient_of_ffn_1": parameters[f"{layer}.intermediate.dense.weight"].grad.numpy(),
            "gradient_of_qkv": np.concatenate(qkv),
            "gradient_of_norm": parameters[f"{layer}.attention.output.LayerNorm.weight"].grad.numpy()}


def tiny(name, model, first_id):
    rng = np.random.default_rng(0)
    with torch.no_grad():  # the default initialisation leaves biases 0 and norms 1, which would hide mistakes
        for parameter in model.parameters():
            parameter.add_(torch.tensor(rng.normal(0, 0.1, tuple(parameter.shape)), dtype=torch.float32))
    model.save_pretrained(HERE / name)
    lengths = np.array([9, 5, 12])
    token_ids = rng.integers(first_id, SIZES["vocab_size"], (3, 12))
    token_ids[np.arange(12)[None] >= lengths[:, None]] = model.config.pad_token_id
    token_types = np.zeros_like(token_ids)
    if model.config.type_vocab_size > 1:
        token_types[:, 4:] = 1
    weights = rng.normal(size=(3, 12, SIZES["hidden_size"])).astype(np.float32)
    np.savez_compressed(HERE / name / "expected.npz", token_ids=token_ids, token_types=token_types, valid_length=lengths,
                        states=states(model, token_ids, token_types, lengths), weights=weights,
                        **gradients(model, token_ids, token_types, lengths, weights))


def minilm(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    batch = tokenizer([q for q, _ in PAIRS], [c for _, c in PAIRS], padding=True, return_tensors="np")
    lengths = batch["attention_mask"].sum(1)
    found = states(transformers.BertModel.from_pretrained(directory), batch["input_ids"], batch["token_type_ids"], lengths)
    # Every fourth unit is enough to tell, and keeps the file small.
    np.savez_compressed(HERE / "minilm_expected.npz", token_ids=batch["input_ids"], token_types=batch["token_type_ids"],
                        valid_length=lengths, states=found[..., ::4], questions=[q for q, _ in PAIRS],
                        candidates=[c for _, c in PAIRS])


if __name__ == "__main__":
    torch.manual_seed(0)
    tiny("tiny_bert", transformers.BertModel(transformers.BertConfig(max_position_embeddings=32, **SIZES)), 5)
    tiny("tiny_roberta", transformers.RobertaModel(transformers.RobertaConfig(
        max_position_embeddings=34, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1, **SIZES)), 5)
    minilm(sys.argv[1])
