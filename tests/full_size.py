#!/usr/bin/env python3
"""Hold every family at full size against its own library; too big for the test suite.

    python tests/full_size.py REFERENCE_PYTHON [NAME ...] > recipes/encoders/logs/full_size.txt

REFERENCE_PYTHON is an interpreter with PyTorch and transformers. For each encoder it writes a
classifier with random weights to a scratch folder, with its hidden states, its score and the
gradient of a loss with respect to the word embeddings. A fresh process of this package then loads
the folder, is timed and weighed while it does so, and compares: all rows padded, and one row alone.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
LARGE["num_attention_heads"] = 16
XLARGE = {**LARGE, "hidden_size": 2048, "intermediate_size": 8192}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "layer_norm_eps": 1e-5}
ROBERTA["type_vocab_size"] = 1
MPNET = {"vocab_size": 30527, "max_position_embeddings": 514, "layer_norm_eps": 1e-5}
BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}

#: Name -> family, sizes of its configuration, and the form of its weights.
ENCODERS = {
    "bert-base": ("Bert", {}, "safetensors"),
    "bert-base, pytorch_model.bin": ("Bert", {}, "zip"),
    "bert-base, pytorch_model.bin of before 2020": ("Bert", {}, "legacy"),
    "bert-large": ("Bert", LARGE, "safetensors"),
    "roberta-base": ("Roberta", ROBERTA, "safetensors"),
    "roberta-large": ("Roberta", {**ROBERTA, **LARGE}, "safetensors"),
    "xlm-roberta-base": ("XLMRoberta", {**ROBERTA, "vocab_size": 250002}, "safetensors"),
    "mpnet-base": ("MPNet", MPNET, "safetensors"),
    "distilbert-base": ("DistilBert", {}, "safetensors"),
    "electra-small": ("Electra", {}, "safetensors"),
    "electra-base": ("Electra", {**BASE, "embedding_size": 768}, "safetensors"),
    "electra-large": ("Electra", {**LARGE, "embedding_size": 1024}, "safetensors"),
    "albert-base-v1": ("Albert", {**BASE, "hidden_act": "gelu"}, "safetensors"),
    "albert-base-v2": ("Albert", BASE, "safetensors"),
    "albert-large-v2": ("Albert", LARGE, "safetensors"),
    "albert-xlarge-v2": ("Albert", XLARGE, "safetensors"),
    "albert-xxlarge-v2": ("Albert", {}, "safetensors"),
}
LENGTHS = np.array([48, 33, 16, 5])


def write_reference(name, folder):
    """Runs in the reference's interpreter."""
    import reference
    import torch
    import transformers

    family, sizes, form = ENCODERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes)
    model, rng = (
        getattr(transformers, f"{family}ForSequenceClassification")(config),
        np.random.default_rng(0),
    )
    with torch.no_grad():  # biases of 0 and norms of 1 would hide mistakes
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    if form == "safetensors":
        model.save_pretrained(folder, max_shard_size="50GB")
    else:
        config.save_pretrained(folder)
        torch.save(
            model.state_dict(),
            f"{folder}/pytorch_model.bin",
            _use_new_zipfile_serialization=form == "zip",
        )
    token_ids = rng.integers(5, config.vocab_size, (len(LENGTHS), LENGTHS.max()))
    real = np.arange(LENGTHS.max())[None] < LENGTHS[:, None]
    token_ids[~real] = config.pad_token_id
    token_types = real * rng.integers(0, getattr(config, "type_vocab_size", 1), token_ids.shape)
    weights = (
        rng.normal(size=(*token_ids.shape, config.hidden_size)).astype(np.float32) * real[..., None]
    )
    out = reference.run(model, token_ids, token_types, LENGTHS)
    (out.hidden_states[-1] * torch.tensor(weights)).sum().backward()
    gradient = model.get_input_embeddings().weight.grad.numpy()
    used = np.unique(token_ids[real])
    encoder = getattr(model, model.base_model_prefix)
    np.savez(
        f"{folder}/reference.npz",
        token_ids=token_ids,
        token_types=token_types,
        valid_length=LENGTHS,
        weights=weights,
        used=used,
        gradient=gradient[used],
        states=np.stack([state.detach().numpy() for state in out.hidden_states]),
        logits=out.logits.detach().numpy(),
        parameters=sum(
            parameter.numel()
            for key, parameter in encoder.named_parameters()
            if "pooler" not in key
        ),
    )


def compare(folder):
    """Runs in a fresh process of this package; prints one line of JSON."""
    import mxnet as mx  # noqa: I001 - after the package, which prepares the process

    from wqa.pretrained import load_backbone
    from wqa.systems.checkpoints import load_classifier

    size = max(
        path.stat().st_size
        for path in pathlib.Path(folder).iterdir()
        if path.suffix in (".safetensors", ".bin")
    )
    mx.nd.ones((1,)).asnumpy()  # MXNet's threads start here, not while the encoder loads
    before, begin = resident(), time.perf_counter()
    backbone = load_backbone(folder)
    mx.nd.waitall()
    seconds, peak = (
        time.perf_counter() - begin,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before,
    )
    expected = dict(np.load(f"{folder}/reference.npz"))
    ids, types = (mx.nd.array(expected[key], dtype="int32") for key in ("token_ids", "token_types"))
    lengths, real = mx.nd.array(LENGTHS), np.arange(LENGTHS.max())[None] < LENGTHS[:, None]
    padded = max(
        float(abs(ours.asnumpy() - theirs)[real].max())
        for ours, theirs in zip(backbone.hidden_states(ids, lengths, types), expected["states"])
    )
    alone = max(
        float(abs(ours.asnumpy()[0] - theirs[1, : LENGTHS[1]]).max())
        for ours, theirs in zip(
            backbone.hidden_states(ids[1:2, : LENGTHS[1]], lengths[1:2], types[1:2, : LENGTHS[1]]),
            expected["states"],
        )
    )
    with mx.autograd.record(train_mode=False):
        total = (backbone(ids, types, lengths) * mx.nd.array(expected["weights"])).sum()
    total.backward()
    ours = backbone.embeddings.word.weight.grad().asnumpy()[expected["used"]]
    logits = expected["logits"]
    scores = load_classifier(folder)(ids, types, lengths).asnumpy() - (logits[:, 1] - logits[:, 0])
    count = backbone.parameter_count()
    if not backbone.config.family.has_token_types:  # the one row of zeros is ours
        count -= backbone.embeddings.token_type.weight.data().size
    row = {"parameters": count - int(expected["parameters"]), "padded": padded, "alone": alone}
    row["gradient"] = float(abs(ours - expected["gradient"]).max())
    row.update(greatest=float(abs(ours).max()), scores=float(abs(scores).max()))
    print(json.dumps({**row, "count": count, "seconds": seconds, "memory": peak / size}))


def resident():
    """Bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(python, names):
    print(
        "Random weights at full size against transformers, float32: greatest differences "
        "over real positions."
    )
    print(
        f"{'encoder':44} {'parameters':>11} {'padded':>8} {'alone':>8} {'gradient':>8} of up "
        f"to {'scores':>8} "
        f"{'seconds':>7} {'memory / file':>13}"
    )
    for name in names or ENCODERS:
        with tempfile.TemporaryDirectory() as folder:
            write = [python, __file__, "--write", name, folder]
            subprocess.run(write, check=True, capture_output=True)
            compare = [sys.executable, __file__, "--compare", folder]
            printed = subprocess.check_output(compare, text=True)
        row = json.loads(printed.splitlines()[-1])
        assert row["parameters"] == 0 and max(row["padded"], row["alone"]) <= 1e-4, row
        assert row["gradient"] <= 1e-3, row
        print(
            f"{name:44} {row['count']:11,} {row['padded']:8.1e} {row['alone']:8.1e} "
            f"{row['gradient']:8.1e} {row['greatest']:8.2f} {row['scores']:8.1e} "
            f"{row['seconds']:7.2f} {row['memory']:13.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write_reference(*sys.argv[2:])
    elif sys.argv[1] == "--compare":
        compare(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2:])
