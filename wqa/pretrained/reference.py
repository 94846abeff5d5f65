#!/usr/bin/env python3
"""What the encoders' own library computes, for comparison; needs PyTorch and transformers, not
MXNet.

    python reference.py DIRECTORY CLASS INPUTS.npz OUTPUTS.npz

`wqa convert --check` and the tests run this file with an interpreter that has those two libraries:
they need a newer NumPy than MXNet takes. CLASS is the library's, such as RobertaModel. INPUTS holds
``token_ids``, ``token_types`` (B, L) and ``valid_length`` (B,). OUTPUTS repeats them beside
``states``, (1 + layers, B, L, C), and, for a classifier, ``logits``, (B, labels).
"""

from __future__ import annotations

import sys
from typing import Any, Dict

import numpy as np


def run(
    model: Any, token_ids: np.ndarray, token_types: np.ndarray, valid_length: np.ndarray
) -> Any:
    """Run a model of the reference library without dropout.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    token_ids, token_types : numpy.ndarray
        (B, L).
    valid_length : numpy.ndarray
        (B,).

    Returns
    -------
    transformers.utils.ModelOutput
    """
    import torch

    mask = (np.arange(token_ids.shape[1])[None] < valid_length[:, None]).astype(np.int64)
    return model.eval()(
        torch.tensor(token_ids, dtype=torch.long),
        attention_mask=torch.tensor(mask),
        token_type_ids=torch.tensor(token_types, dtype=torch.long),
        output_hidden_states=True,
    )


def outputs(
    model: Any, token_ids: np.ndarray, token_types: np.ndarray, valid_length: np.ndarray
) -> Dict[str, np.ndarray]:
    """Hidden states and, for a classifier, logits.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    token_ids, token_types : numpy.ndarray
        (B, L).
    valid_length : numpy.ndarray
        (B,).

    Returns
    -------
    dict of str to numpy.ndarray
    """
    import torch

    with torch.no_grad():
        out = run(model, token_ids, token_types, valid_length)
    arrays = {"states": np.stack([state.numpy() for state in out.hidden_states])}
    if getattr(out, "logits", None) is not None:
        arrays["logits"] = out.logits.numpy()
    return arrays


def main(directory: str, kind: str, inputs: str, target: str) -> None:
    """Run a directory's model on stored inputs.

    Parameters
    ----------
    directory, kind : str
        Where the model lies and the library's class for it.
    inputs, target : str
        Files in NumPy's .npz format.
    """
    import transformers

    given = dict(np.load(inputs))
    model = getattr(transformers, kind).from_pretrained(directory, local_files_only=True).float()
    np.savez(
        target,
        **given,
        **outputs(model, given["token_ids"], given["token_types"], given["valid_length"]),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
