"""PyTorch's training of the same classifier on the same batches, for `compare_training.py`.

    python recipes/bench/train_peer.py DIRECTORY BATCHES.npz PRECISION [compiled]

Each line on standard input is two numbers: the first batch, and the one after the last. The answer
is a line of JSON with the seconds. bfloat16 runs under autocast, as PyTorch advises; ``compiled``
is ``torch.compile`` for shapes that change.
"""

import os
import sys
import time

import numpy as np
import torch
from machine import answer, say
from transformers import AutoModelForSequenceClassification


class Training:
    """A classifier and its optimizer.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    batches : str
        Mini-batches, as ``corpus.py batches`` writes them.
    precision : {"float32", "bfloat16"}
        What the layers compute in.
    compiled : bool
        Whether Inductor compiles the classifier.
    """

    def __init__(self, directory, batches, precision, compiled):
        torch.manual_seed(0)
        self._arrays = np.load(batches)
        self._model = AutoModelForSequenceClassification.from_pretrained(directory).train()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-5, fused=True)
        self._typed = self._model.config.type_vocab_size > 1
        self._autocast = precision == "bfloat16"
        if compiled:
            self._model = torch.compile(self._model, dynamic=True)

    def backward(self, number):
        """Compute the gradients of one mini-batch.

        Parameters
        ----------
        number : int
            Index of the mini-batch.
        """
        ids, types, lengths, labels = (
            torch.from_numpy(self._arrays[f"{number}_{name}"])
            for name in ("ids", "types", "lengths", "labels")
        )
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        inputs = {"input_ids": ids.long(), "attention_mask": mask.long()}
        if self._typed:
            inputs["token_type_ids"] = types.long()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
            scores = self._model(**inputs).logits[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores.float(), labels.float())
        self._optimizer.zero_grad()
        loss.backward()

    def update(self, number):
        """Take one step of the optimizer.

        Parameters
        ----------
        number : int
            Index of the mini-batch.
        """
        self.backward(number)
        self._optimizer.step()


def main(directory, batches, precision, compiled=""):
    """Answer the commands on standard input.

    Parameters
    ----------
    directory, batches, precision, compiled : str
        Parameters of `Training`.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    training = Training(directory, batches, precision, bool(compiled))
    try:
        training.backward(0)
    except RuntimeError as error:  # PyTorch has no type of its own for missing instructions
        return say(left_out=f"{type(error).__name__}: {error}")

    def work(begin, end):
        start = time.perf_counter()
        for number in range(begin, end):
            training.update(number)
        return {"seconds": time.perf_counter() - start}

    say(ready=True)
    return answer(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
