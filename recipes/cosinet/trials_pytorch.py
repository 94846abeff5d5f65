#!/usr/bin/env python3
"""Cosinet and Compare-Aggregate once more, in plain PyTorch, to find what their MAP depends on.

    PYTHONPATH=. python recipes/cosinet/trials_pytorch.py WORDS data/wikiqa [OPTIONS]

It shares no line with `wqa.systems.cosinet`, so that it also tells whether that is at fault. One
factor at a time is changed from what the paper says, or from what Torch does where the paper is
silent. Each of three trainings leaves out a third of the training questions with an answer. The
script prints the MAP of all 873 left-out questions, which is less noisy than that of the 126 of
dev, and then that of dev with its deviation. No test question is read. WORDS is a table that
`wqa embed-words` wrote. The script needs an environment with torch.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from wqa.data.word_vectors import read_word_vectors

PARTS, BUCKETS = 3, 1024
#: Peaks of the learning rate (section 5.2), and pairs or lists of an update.
RATES = {"pointwise": 2e-3, "listwise": 2e-4}
BATCHES = {"pointwise": 60, "listwise": 3}


def read(path, ids, answered):
    """Questions as (ids of words, ids of each candidate's words, labels)."""
    questions = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        candidates = [item for item in entry["candidates"] if item["text"].strip()]
        labels = np.array([item["label"] for item in candidates], np.float32)
        if len(candidates) and (labels.any() or not answered):
            texts = [ids(item["text"]) for item in candidates]
            questions.append((ids(entry["question"]), texts, labels))
    return questions


def embeddings(table, options):
    """The matrix of word vectors, and what gives the ids of a text."""
    vectors = table.vectors.astype(np.float32)
    if options.length:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = options.length * vectors / np.maximum(norms, 1e-12)
    rng = np.random.default_rng(1)
    mean = np.linalg.norm(vectors, axis=1).mean()
    unknown = rng.standard_normal((BUCKETS, vectors.shape[1])).astype(np.float32)
    unknown *= mean / np.linalg.norm(unknown, axis=1, keepdims=True)
    known = {word: row for row, word in enumerate(table.words, 1)}

    def ids(text):
        words = re.findall(r"\w+|[^\w\s]", text.lower())[:200]
        after = 1 + len(known)
        return [known.get(word) or after + zlib.crc32(word.encode()) % BUCKETS for word in words]

    padding = np.zeros((1, vectors.shape[1]), np.float32)
    return torch.from_numpy(np.concatenate([padding, vectors, unknown])), ids


def padded(texts):
    """Texts as rows of equal length; one of fewer than five words is padded to five."""
    rows = np.zeros((len(texts), max(5, *map(len, texts))), np.int64)
    for row, text in zip(rows, texts):
        row[: len(text)] = text
    return torch.from_numpy(rows)


ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "none": lambda outputs: outputs}


def greatest(outputs, padding):
    """Greatest output of each filter at a word."""
    return outputs.masked_fill(padding[:, None], -1e4).amax(2)


class Cosinet(nn.Module):
    """Section 4.1; the vectors of two texts become one of their pair."""

    units, recurrent_units = 600, 300

    def __init__(self, words, options):
        super().__init__()
        self.words, self.options = words, options
        width = words.shape[1] + 1
        self.question, self.candidate = (nn.Conv1d(width, 300, 5, padding=2) for _ in range(2))

    def forward(self, questions, candidates):
        """Encode pairs of rows of ids."""
        texts = [functional.embedding(ids, self.words) for ids in (questions, candidates)]
        absent = [ids == 0 for ids in (questions, candidates)]
        units = [functional.normalize(text, dim=2) for text in texts]
        cosines = units[0] @ units[1].transpose(1, 2)
        related = [
            cosines.masked_fill(absent[1][:, None], -2).amax(2),
            cosines.masked_fill(absent[0][:, :, None], -2).amax(1),
        ]
        encoded = []
        for filters, text, relatedness, padding in zip(
            (self.question, self.candidate), texts, related, absent
        ):
            relatedness = relatedness.masked_fill(padding, 0)
            channels = torch.cat([text, relatedness[..., None]], 2).transpose(1, 2)
            outputs = greatest(filters(channels), padding)
            encoded.append(ACTIVATIONS[self.options.activation](outputs))
        first, second = encoded
        return torch.cat([first * second, first - second], 1)


class CompareAggregate(nn.Module):
    """Wang and Jiang 2017, as `wqa.systems.cosinet.compare_aggregate` describes it."""

    units, recurrent_units = 3000, 600

    def __init__(self, words, options):
        super().__init__()
        self.words, self.options = words, options
        self.gate, self.update = (nn.Linear(words.shape[1], 300) for _ in range(2))
        self.question, self.candidate = (
            nn.ModuleList(nn.Conv1d(300, 300, window) for window in range(1, 6)) for _ in range(2)
        )

    def forward(self, questions, candidates):
        """Encode pairs of rows of ids."""
        absent = [ids == 0 for ids in (questions, candidates)]
        texts = []
        for ids, padding in zip((questions, candidates), absent):
            words = functional.embedding(ids, self.words)
            projected = torch.sigmoid(self.gate(words)) * torch.tanh(self.update(words))
            texts.append(projected.masked_fill(padding[..., None], 0))
        scores = texts[0] @ texts[1].transpose(1, 2)
        of_candidate = torch.softmax(scores.masked_fill(absent[1][:, None], -1e4), 2) @ texts[1]
        of_question = torch.softmax(scores.masked_fill(absent[0][:, :, None], -1e4), 1)
        of_question = of_question.transpose(1, 2) @ texts[0]
        compared = (texts[0] * of_candidate, texts[1] * of_question)
        outputs = []
        for convolutions, text, padding in zip((self.question, self.candidate), compared, absent):
            for convolution in convolutions:
                of_words = convolution(text.transpose(1, 2))
                beyond = padding[:, padding.shape[1] - of_words.shape[2] :].clone()
                beyond[:, 0] = False  # a text that is shorter than the window has one
                outputs.append(ACTIVATIONS[self.options.activation](greatest(of_words, beyond)))
        return torch.cat(outputs, 1)


class Ranker(nn.Module):
    """An encoder of pairs, a recurrent layer over the candidates, and the score (section 4.2)."""

    def __init__(self, words, options):
        super().__init__()
        self.encoder = {"cosinet": Cosinet, "ca": CompareAggregate}[options.model](words, options)
        self.recurrent = None
        units, kind = self.encoder.units, options.recurrent
        if kind != "none":
            is_double = kind.startswith("bi")
            layer = nn.LSTM if kind.endswith("lstm") else nn.RNN
            each = self.encoder.recurrent_units // (2 if is_double else 1)
            self.recurrent = layer(units, each, batch_first=True, bidirectional=is_double)
            units = self.encoder.recurrent_units
        self.score = nn.Linear(units, 1)
        for parameter in self.parameters():
            if parameter.dim() == 1 and options.initialization != "torch":
                nn.init.zeros_(parameter)
            elif options.initialization == "glorot" and parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, questions):
        """Scores of the candidates of each question."""
        counts = [len(texts) for _, texts, _ in questions]
        rows = [text for text, texts, _ in questions for _ in texts]
        candidates = padded([text for _, texts, _ in questions for text in texts])
        lists = self.encoder(padded(rows), candidates).split(counts)
        if self.recurrent is not None:
            packed = nn.utils.rnn.pack_sequence(lists, enforce_sorted=False)
            outputs, _ = nn.utils.rnn.pad_packed_sequence(
                self.recurrent(packed)[0], batch_first=True
            )
            lists = [output[:count] for output, count in zip(outputs, counts)]
        return [self.score(pairs)[:, 0] for pairs in lists]


def mean_average_precision(ranker, questions):
    """MAP in per cent."""
    ranker.eval()
    precisions = []
    with torch.no_grad():
        for start in range(0, len(questions), 50):
            part = questions[start : start + 50]
            for (_, _, labels), scores in zip(part, ranker(part)):
                ranked = labels[np.argsort(-scores.numpy(), kind="stable")]
                at = np.flatnonzero(ranked) + 1
                precisions.append(np.mean(np.arange(1, len(at) + 1) / at))
    return 100 * statistics.fmean(precisions)


def loss_of(scores, labels, loss):
    """Binary cross-entropy of pairs, or cross-entropy of the softmax with the labels."""
    labels = torch.from_numpy(labels)
    if loss == "pointwise":
        return functional.binary_cross_entropy_with_logits(scores, labels)
    return -(labels / labels.sum() * torch.log_softmax(scores, 0)).sum()


def train(words, questions, seed, options):
    """Train a ranker on the slanted triangular schedule."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    ranker = Ranker(words, options)
    optimizer = torch.optim.Adam(ranker.parameters(), options.rate)
    if options.loss == "pointwise":  # a pair is a list of one candidate
        questions = [
            (question, [text], labels[index : index + 1])
            for question, texts, labels in questions
            for index, text in enumerate(texts)
        ]
    updates = math.ceil(len(questions) / options.batch)
    total, cut = options.epochs * updates, options.epochs * updates // 10
    for update in range(total):
        if update % updates == 0:
            order = rng.permutation(len(questions))
            ranker.train()
        start = update % updates * options.batch
        part = [questions[index] for index in order[start : start + options.batch]]
        share = update / cut if update < cut else 1 - (update - cut) / (total - cut)
        optimizer.param_groups[0]["lr"] = options.rate * (1 + 31 * share) / 32
        losses = [
            loss_of(scores, item[2], options.loss) for scores, item in zip(ranker(part), part)
        ]
        optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        optimizer.step()
    return ranker


def main():
    """Print the figures of one setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words")
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--model", default="cosinet", choices=("cosinet", "ca"))
    parser.add_argument("--loss", default="listwise", choices=tuple(RATES))
    kinds = ("none", "rnn", "birnn", "lstm", "bilstm")
    parser.add_argument("--recurrent", default="none", choices=kinds)
    parser.add_argument("--initialization", default="torch", choices=("torch", "no_bias", "glorot"))
    parser.add_argument("--activation", default="relu", choices=tuple(ACTIVATIONS))
    parser.add_argument("--length", type=float, default=0, help="of word vectors; 0: as they are")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--unanswered", action="store_true", help="train on all questions")
    options = parser.parse_args()
    if options.unanswered and options.loss == "listwise":
        parser.error("--unanswered: a list without a positive candidate has no target")
    options.rate = options.rate or RATES[options.loss]
    options.batch = options.batch or BATCHES[options.loss]
    words, ids = embeddings(read_word_vectors(options.words), options)
    training = read(options.corpus / "train.jsonl", ids, not options.unanswered)
    dev = read(options.corpus / "dev.jsonl", ids, True)
    left_out, on_dev = [], []
    answered = [item for item in training if item[2].any()]
    unanswered = [item for item in training if not item[2].any()]
    for part in range(PARTS):
        others = answered[part::PARTS]
        kept = [item for index, item in enumerate(answered) if index % PARTS != part] + unanswered
        ranker = train(words, kept, part, options)
        left_out.append(mean_average_precision(ranker, others))
        on_dev.append(mean_average_precision(ranker, dev))
    deviation = statistics.stdev(on_dev)
    print(f"{statistics.fmean(left_out):.2f}\t{statistics.fmean(on_dev):.2f} ({deviation:.2f})")


if __name__ == "__main__":
    main()
