#!/usr/bin/env python3
"""Hidden states and logits by PyTorch and transformers, for comparison.

    python reference.py DIRECTORY CLASS INPUTS.npz OUTPUTS.npz

`wqa convert --reference` and the tests run this file with another interpreter, because the two
libraries need a newer NumPy than MXNet takes. It imports neither MXNet nor this package. CLASS is a
class of transformers, such as RobertaModel. INPUTS holds ``token_ids`` and ``token_types``, (B, L),
and ``valid_length``, (B,). OUTPUTS holds these arrays, ``states``, (1 + layers, B, L, C), and for a
classifier ``logits``, (B, labels).
"""

from __future__ import annotations

import sys
from typing import Any, Dict

import numpy as np


def run(
    model: Any, token_ids: np.ndarray, token_types: np.ndarray, valid_length: np.ndarray
) -> Any:
    """Run a model of transformers without dropout."""
    import torch

    mask = (np.arange(token_ids.shape[1])[None] < valid_length[:, None]).astype(np.int64)
    types = {}
    if hasattr(model.config, "type_vocab_size"):
        types["token_type_ids"] = torch.tensor(token_types, dtype=torch.long)
    return model.eval()(
        torch.tensor(token_ids, dtype=torch.long),
        attention_mask=torch.tensor(mask),
        output_hidden_states=True,
        **types,
    )


def outputs(
    model: Any, token_ids: np.ndarray, token_types: np.ndarray, valid_length: np.ndarray
) -> Dict[str, np.ndarray]:
    """Hidden states and, for a classifier, logits."""
    import torch

    with torch.no_grad():
        out = run(model, token_ids, token_types, valid_length)
    arrays = {"states": np.stack([state.numpy() for state in out.hidden_states])}
    if getattr(out, "logits", None) is not None:
        arrays["logits"] = out.logits.numpy()
    return arrays


def main(directory: str, kind: str, inputs: str, target: str) -> None:
    """Run a directory's model on stored inputs."""
    import transformers

    arrays = dict(np.load(inputs))
    model_class = getattr(transformers, kind)
    model = model_class.from_pretrained(directory, local_files_only=True).float()
    rows = [arrays[name] for name in ("token_ids", "token_types", "valid_length")]
    np.savez(target, **arrays, **outputs(model, *rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
