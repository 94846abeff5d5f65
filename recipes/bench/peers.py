"""A peer, for `compare.py`, in an environment of its own; it answers the commands of `ours.py`.

    python recipes/bench/peers.py DIRECTORY DATA PEER PRECISION

PEER is a model of `peer_models.py`, or cross-encoder. The former take encoded pairs, sorted by
length and padded to the longest of a batch, with all threads, in the setting and in batches of the
size that are fastest on the first question. cross-encoder and cross-encoder.openvino are
sentence-transformers' CrossEncoder by PyTorch and OpenVINO, as they come: text in, batches of 32.
"""

import importlib.metadata
import json
import os
import sys
import time

import numpy as np
import torch
from machine import answer, resident, say
from peer_models import MODELS

MAX_LENGTH = 128
CROSS_ENCODERS = {"cross-encoder": "torch", "cross-encoder.openvino": "openvino"}  # to backends
BATCHES = (16, 32, 64, 128)
CALIBRATED = 2  # questions on which int8 is calibrated, where it is calibrated


def read(path):
    """Read questions.

    Parameters
    ----------
    path : str
        Canonical JSONL.

    Returns
    -------
    list of list of (str, str)
        Pairs of each question.
    """
    questions = []
    with open(path, encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            candidates = record["candidates"]
            questions.append([(record["question"], candidate["text"]) for candidate in candidates])
    return questions


class EncodedPairs:
    """Ranks encoded pairs in batches of one size, sorted by length.

    Of the settings of the model and the sizes of batches, the fastest on the first question is
    taken.

    Parameters
    ----------
    build : callable
        Builds a model of `peer_models` from its directory, a precision and batches to calibrate on.
    directory : str
        Directory of the classifier and its tokenizer.
    precision : str
        What the model computes in.
    questions : list of list of (str, str)
        Pairs of each question.
    """

    def __init__(self, build, directory, precision, questions):
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        names = self._tokenizer.model_input_names
        self._names = [name for name in names if name != "attention_mask"]
        self.questions = [self._encode(pairs) for pairs in questions]
        self.batch = BATCHES[0]
        calibration = []
        for pairs in self.questions[:CALIBRATED]:
            calibration += [self._padded(rows) for rows in self._batches(pairs)]
        self._model = build(directory, precision, calibration)
        setting, self.batch = self._fastest()
        version = importlib.metadata.version(build.LIBRARY)
        self.setting = f"{version}, batches of {self.batch}{setting and f', {setting}'}"

    def _fastest(self):
        seconds = {}
        for setting in self._model.SETTINGS:
            self._model.choose(setting)
            self.scores(self.questions[0])  # warms up
            for self.batch in BATCHES:
                self.scores(self.questions[0])
                start = time.perf_counter()
                self.scores(self.questions[0])
                seconds[setting, self.batch] = time.perf_counter() - start
        setting, batch = min(seconds, key=seconds.get)
        self._model.choose(setting)
        return setting, batch

    def _encode(self, pairs):
        encoded = self._tokenizer(
            [question for question, _ in pairs],
            [candidate for _, candidate in pairs],
            truncation="only_second",
            max_length=MAX_LENGTH,
        )
        columns = [encoded[name] for name in self._names]
        return [dict(zip(self._names, values)) for values in zip(*columns)]

    def _batches(self, pairs):
        return [pairs[start : start + self.batch] for start in range(0, len(pairs), self.batch)]

    def _padded(self, pairs):
        length = max(len(pair["input_ids"]) for pair in pairs)
        inputs = {}
        for name in (*self._names, "attention_mask"):
            inputs[name] = np.zeros((len(pairs), length), np.int64)
        inputs["input_ids"][:] = self._tokenizer.pad_token_id
        for row, pair in enumerate(pairs):
            size = len(pair["input_ids"])
            for name in self._names:
                inputs[name][row, :size] = pair[name]
            inputs["attention_mask"][row, :size] = 1
        return inputs

    def scores(self, pairs):
        """Score encoded pairs.

        Parameters
        ----------
        pairs : list of dict
            Pairs of ``questions``.

        Returns
        -------
        numpy.ndarray
            (pairs,) float32.
        """
        order = np.argsort([-len(pair["input_ids"]) for pair in pairs], kind="stable")
        batches = self._batches([pairs[row] for row in order])
        scores = np.empty(len(pairs), np.float32)
        scores[order] = np.concatenate(self._model.scores([self._padded(rows) for rows in batches]))
        return scores


class Text:
    """sentence-transformers' CrossEncoder as it comes, from text.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    questions : list of list of (str, str)
        Pairs of each question.
    backend : str
        What computes, a name of sentence-transformers, such as ``"torch"`` or ``"openvino"``.
    """

    def __init__(self, directory, questions, backend):
        from sentence_transformers import CrossEncoder

        self.setting = f"{importlib.metadata.version('sentence-transformers')}, batches of 32"
        self.questions = questions
        self._model = CrossEncoder(directory, max_length=MAX_LENGTH, device="cpu", backend=backend)
        self._model.predict(questions[0])

    def scores(self, pairs):
        """Score pairs of texts.

        Parameters
        ----------
        pairs : list of (str, str)
            Pairs of ``questions``.

        Returns
        -------
        numpy.ndarray
            (pairs,) float32.
        """
        return np.asarray(self._model.predict(pairs, show_progress_bar=False))


def main(directory, data, peer, precision):
    """Answer the commands on standard input.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    data : str
        Questions, canonical JSONL.
    peer : str
        A name of `peer_models.MODELS` or `CROSS_ENCODERS`.
    precision : str
        What it computes in.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    questions = read(data)
    try:
        if peer in CROSS_ENCODERS:
            ranker = Text(directory, questions, CROSS_ENCODERS[peer])
        else:
            ranker = EncodedPairs(MODELS[peer], directory, precision, questions)
    except Exception as error:  # of any library, such as for instructions that are missing
        return say(left_out=f"{type(error).__name__}: {error}")

    def work(begin, end):
        start = time.perf_counter()
        chunk = ranker.questions[begin:end]
        scores = ranker.scores([pair for pairs in chunk for pair in pairs])
        parts = np.split(scores, np.cumsum(list(map(len, chunk)))[:-1])
        row = {"drop_ratio": 0.0, "seconds": time.perf_counter() - start}
        row["scores"] = [part.tolist() for part in parts]
        return {"rows": [row], "memory_mib": resident()}

    say(setting=ranker.setting)
    return answer(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
