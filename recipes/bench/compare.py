#!/usr/bin/env python3
"""Compare the speed of ranking the same candidates by the same weights: wqa and peers, in turn.

    python recipes/bench/compare.py --peers-python .venv-peers/bin/python --json bench.json
    python recipes/bench/compare.py --peers-python .venv-peers/bin/python \\
        --pairwise runs/wikiqa_pairwise --cascade runs/wikiqa_cascade \\
        --data data/wikiqa/test.jsonl --calibration data/wikiqa/dev.jsonl

Without runs it writes rankers of RoBERTa-base's size with random weights, and questions whose
lengths follow WikiQA's (`corpus.py`). Every contender is a process of its own that loads once.
Those of one precision, and PyTorch in float32, take turns of a few questions, so that what else the
machine does slows all of them; a ratio is the median over the turns. Between precisions it is the
quotient of the ratios to PyTorch in float32. Candidates and tokens a second are over all turns; a
cascade's include the candidates that it drops. What cannot run is left out, and the output says
why.
"""

import contextlib
import json
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from contenders import HERE, Contender, lines_of, make_parser, prepare, start_all
from machine import machine
from scipy.stats import spearmanr

from wqa.data import read_questions
from wqa.errors import run_script
from wqa.evaluation import table
from wqa.evaluation.metrics import average_precision

#: What all groups have, by which they are compared.
LINK = ("pytorch", "float32")
#: Peers by precision; they are in the environment of peers.txt.
PEERS = {
    "float32": ("onnxruntime", "openvino", "cross-encoder", "cross-encoder.openvino"),
    "bfloat16": ("pytorch", "torch.compile", "openvino"),
    "int8": ("onnxruntime", "openvino", "ctranslate2"),
}
PRECISIONS = tuple(PEERS)
CALIBRATED = 3  # random questions that int8 is calibrated on
DROP_RATIOS = {"pairwise": ("0",), "cascade": ("0", "0.3", "0.5")}


def rankers(options, runs, precision):
    """List the contenders of a precision, the link first.

    Parameters
    ----------
    options : argparse.Namespace
        The script's options.
    runs : dict of str to path-like
        Directories of `contenders.prepare`.
    precision : str
        A key of `PEERS`.

    Yields
    ------
    Contender
        A ranker that is not started yet.
    """
    if options.peers_python:
        command = [options.peers_python, HERE / "peers.py", runs["huggingface"], options.data]
        for key in (LINK, *((name, precision) for name in PEERS[precision])):
            yield Contender(*key, [*command, *key])
    for system, drop_ratios in DROP_RATIOS.items():
        command = [sys.executable, HERE / "ours.py", runs[system], options.data]
        yield Contender(f"wqa {system}", precision, [*command, precision, *drop_ratios])


def measure(contenders, questions, chunk):
    """Let the contenders take turns; the first turn warms up and is not counted.

    Parameters
    ----------
    contenders : list of Contender
        The rankers.
    questions : int
        The number of questions.
    chunk : int
        Questions of a turn.
    """
    for contender in contenders:
        contender.work(0, min(chunk, questions))
    for number, begin in enumerate(range(0, questions, chunk)):
        end = min(begin + chunk, questions)
        for contender in contenders if number % 2 else contenders[::-1]:
            contender.turns.append(contender.work(begin, end))
        print(f"{end} of {questions} questions", file=sys.stderr, flush=True)


def ratio(numerators, denominators):
    """Median of quotients.

    Parameters
    ----------
    numerators, denominators : sequence of float
        One a turn.

    Returns
    -------
    float
    """
    return statistics.median(above / below for above, below in zip(numerators, denominators))


def agreement(scores, reference):
    """Compare two rankers' scores.

    Parameters
    ----------
    scores, reference : list of list of float
        Scores of each question's candidates.

    Returns
    -------
    float
        Mean over the questions of Spearman's rho.
    float
        Share of the questions with the same first candidate.
    """
    rho = []
    same_first = []
    for one, two in zip(scores, reference):
        if len(one) > 1:
            with np.errstate(all="ignore"):
                rho.append(spearmanr(one, two)[0])
        same_first.append(np.argmax(one) == np.argmax(two))
    return float(np.nanmean(rho)), float(np.mean(same_first))


def mean_average_precision(scores, labels):
    """MAP of a ranker over the questions with a correct candidate.

    Parameters
    ----------
    scores : list of list of float
        Scores of each question's candidates.
    labels : list of list of int
        Their labels.

    Returns
    -------
    float or None
        None where no candidate is correct.
    """
    values = []
    for own, judged in zip(scores, labels):
        if any(judged):
            ranked = [judged[index] for index in np.argsort(-np.array(own), kind="stable")]
            values.append(average_precision(ranked, judged))
    return statistics.mean(values) if values else None


class Measured:
    """Figures of one contender at one drop ratio.

    Parameters
    ----------
    contender : Contender
        The ranker, with its turns.
    index : int
        Index of the drop ratio in the ranker's answers.
    group : list of Measured
        Figures of all that took the same turns, to which these are added.
    """

    def __init__(self, contender, index, group):
        rows = [turn["rows"][index] for turn in contender.turns]
        self.key = (contender.name, contender.precision, rows[0]["drop_ratio"])
        group.append(self)
        self.group = group
        self.memory = max(turn["memory_mib"] for turn in contender.turns)
        self.seconds = [row["seconds"] for row in rows]
        self.scores = [scores for row in rows for scores in row["scores"]]
        whole = [row.get("end_to_end") for row in rows]
        self.end_to_end = None if None in whole else whole

    def over(self, other):
        """How many times as fast as another one this one is.

        Parameters
        ----------
        other : Measured
            Figures of the other one. In other turns, both are compared with PyTorch in float32.

        Returns
        -------
        float or None
            None where PyTorch was left out of the turns of one of them.
        """
        if other.group is self.group:
            # A CrossEncoder starts from text, so from text if that was timed.
            from_text = other.key[0].startswith("cross-encoder") and self.end_to_end is not None
            return ratio(other.seconds, self.end_to_end if from_text else self.seconds)
        links = [self.link(), other.link()]
        if None in links:
            return None
        return self.over(links[0]) / other.over(links[1])

    def link(self):
        """Figures of PyTorch in float32 in the same turns, or None."""
        return next((one for one in self.group if one.key == (*LINK, 0.0)), None)


def rows_of(groups, questions):
    """Compute the table's figures.

    Parameters
    ----------
    groups : list of list of Contender
        The rankers that took turns with one another, with their turns.
    questions : list of (list of str, list of int)
        Candidates of each question, and their labels.

    Returns
    -------
    list of dict
        One row for each contender and drop ratio.
    """
    measured = {}
    tokens = 0
    for contenders in groups:
        group = []
        for contender in contenders:
            tokens = max(tokens, sum(turn.get("tokens", 0) for turn in contender.turns))
            for index in range(len(contender.turns[0]["rows"])):
                figures = Measured(contender, index, group)
                measured.setdefault(figures.key, figures)
    candidates = sum(len(texts) for texts, _ in questions)
    peers = {}
    for (name, precision, _), figures in measured.items():
        if not name.startswith("wqa"):
            peers[f"{name} {precision}"] = figures
    rows = []
    for (name, precision, drop_ratio), figures in measured.items():
        baseline = measured[name, precision, 0.0]
        reference = measured.get(("pytorch", "float32", 0.0))
        if reference is None or name == "wqa cascade":
            reference = measured.get((name, "float32", 0.0), baseline)
        spearman, same_first = agreement(figures.scores, reference.scores)
        end_to_end = None
        if figures.end_to_end is not None:
            end_to_end = ratio(figures.end_to_end, figures.seconds)
        row = {
            "name": name,
            "precision": precision,
            "drop_ratio": drop_ratio,
            "candidates_per_s": candidates / sum(figures.seconds),
            "tokens_per_s": tokens / sum(figures.seconds),
            "memory_mib": figures.memory,
            "end_to_end": end_to_end,
            "over": {title: figures.over(peer) for title, peer in peers.items()},
            "time_over_0": ratio(figures.seconds, baseline.seconds),
            "spearman": spearman,
            "same_first": same_first,
            "map": mean_average_precision(figures.scores, [labels for _, labels in questions]),
        }
        rows.append(row)
    return rows


def flat(row):
    """A row of `rows_of` as the table shows it, each ratio in a column of its own."""
    over = {f"over {title}": value for title, value in row["over"].items()}
    return {**{name: value for name, value in row.items() if name != "over"}, **over}


def settings_of(groups):
    """Say what the contenders have chosen, one a line.

    Parameters
    ----------
    groups : list of list of Contender
        As `rows_of` takes them.

    Returns
    -------
    list of str
        Lines for the report.
    """
    contenders = [contender for group in groups for contender in group if contender.setting]
    return list(dict.fromkeys(f"{contender}: {contender.setting}" for contender in contenders))


def main():
    """Parse the options, measure, and print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--calibration", help="questions to calibrate int8 on, for runs")
    parser.add_argument(
        "--precision",
        action="append",
        choices=PRECISIONS,
        help="of wqa's rankers; give it once for each (default: all)",
    )
    parser.add_argument(
        "--questions", type=int, default=100, help="with random weights (default: 100)"
    )
    parser.add_argument(
        "--candidates", type=int, default=100, help="with random weights (default: 100)"
    )
    parser.add_argument("--chunk", type=int, default=5, help="questions a turn (default: 5)")
    parser.add_argument("--json", help="write the figures here too")
    options = parser.parse_args()
    options.precision = options.precision or PRECISIONS
    calibrated = CALIBRATED if "int8" in options.precision else 0
    size = (options.questions, options.candidates, calibrated)
    groups, left_out = [], []
    with tempfile.TemporaryDirectory() as name:
        runs = prepare(options, pathlib.Path(name), *size)
        questions = []
        for question in read_questions(options.data):
            questions.append((list(question.texts), list(question.labels)))
        for precision in options.precision:
            with contextlib.ExitStack() as stack:
                ready, others = start_all(rankers(options, runs, precision), stack)
                left_out += others
                if ready:
                    measure(ready, len(questions), options.chunk)
                    groups.append(ready)
    if not groups:
        sys.exit("\n".join(lines_of(left_out)))
    rows = rows_of(groups, questions)
    candidates = sum(len(texts) for texts, _ in questions)
    print(machine())
    print(f"{len(questions)} questions, {candidates} candidates, {options.chunk} questions a turn")
    print(table(list(map(flat, rows))), *settings_of(groups), *lines_of(left_out), sep="\n")
    if options.json:
        content = json.dumps({"rows": rows, "left_out": left_out}, indent=2) + "\n"
        pathlib.Path(options.json).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
