"""A model of transformers without dropout, for interpreters that have PyTorch."""

import numpy as np


def run(model, token_ids, token_types, valid_length):
    """Run a model of transformers; the result has all hidden states."""
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


def outputs(model, token_ids, token_types, valid_length):
    """Hidden states and, for a classifier, logits as arrays."""
    import torch

    with torch.no_grad():
        out = run(model, token_ids, token_types, valid_length)
    arrays = {"states": np.stack([state.numpy() for state in out.hidden_states])}
    if getattr(out, "logits", None) is not None:
        arrays["logits"] = out.logits.numpy()
    return arrays
