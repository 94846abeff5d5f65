#!/usr/bin/env python3
"""What the encoders' own library computes, for comparison; needs PyTorch and transformers, not MXNet.

    python reference.py DIRECTORY INPUTS.npz OUTPUTS.npz

`wqa convert --check` and the tests run this file with an interpreter that has those two libraries: they
need a newer NumPy than MXNet takes. INPUTS holds ``token_ids``, ``token_types`` (B, L) and
``valid_length`` (B,). OUTPUTS repeats them beside ``states``, (1 + layers, B, L, C), and, for a
classifier, ``logits``, (B, labels).
"""
from __future__ import annotations

import sys
from typing import Any, Dict

import numpy as np


def run(model: Any, token_ids: np.ndarray, token_types: np.ndarray, valid_length: np.ndarray) -> Any:
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
    return model.eval()(torch.tensor(token_ids, dtype=torch.long), attention_mask=torch.tensor(mask),
                        token_type_ids=torch.tensor(token_types, dtype=torch.long), output_hidden_states=True)


def outputs(model: Any, token_ids: np.ndarray, token_types: np.ndarray, valid_length: np.ndarray) -> Dict[str, np.ndarray]:
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


def main(directory: str, inputs: str, target: str) -> None:
    """Run a directory's model on stored inputs.

    Parameters
    ----------
    directory : str
    inputs, target : str
        Files in NumPy's .npz format.
    """
    import transformers

    config = transformers.AutoConfig.from_pretrained(directory)
    is_classifier = any("ForSequenceClassification" in name for name in config.architectures or ())
    kind = transformers.AutoModelForSequenceClassification if is_classifier else transformers.AutoModel
    given = dict(np.load(inputs))
    model = kind.from_pretrained(directory, local_files_only=True, torch_dtype="float32")
    np.savez(target, **given, **outputs(model, given["token_ids"], given["token_types"], given["valid_length"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
