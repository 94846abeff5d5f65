#!/usr/bin/env python3
"""Rank by oneDNN, and by a run's export in ONNX Runtime and in OpenVINO, in turn.

    wqa export RUN EXPORTED --format onnx
    python recipes/bench/onnx_speed.py RUN EXPORTED --data QUESTIONS --peers-python PYTHON

    wqa export RUN HUGGINGFACE --format huggingface
    python recipes/bench/onnx_speed.py RUN EXPORTED --data QUESTIONS --huggingface HUGGINGFACE ...

PYTHON is an environment with this package, onnxruntime and openvino, and no MXNet: OpenVINO's NumPy
may be newer than MXNet's. With a monolithic ranker's directory in Hugging Face's form, and PyTorch
and transformers in that environment, the graph that they write of the same weights runs as well.
Each contender is a process of its own in each round. It ranks the first question once to warm up,
then all questions, tokenization included. The table has the best round of each, and how many
rankings have the order and the exits of the first contender's.
"""

import argparse
import functools
import importlib.metadata
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, NamedTuple

import numpy as np
from machine import machine

from wqa import load_ranker, read_questions
from wqa.engines.onnx.inputs import graph_inputs
from wqa.evaluation import table


class Ranked(NamedTuple):
    """What of a ranking is compared."""

    order: np.ndarray
    exits: np.ndarray
    scores: np.ndarray


def by_stages(source, options):
    """Ranks by the package's own loop: oneDNN for a run, ONNX Runtime for an export."""
    ranker = load_ranker(source, drop_ratio=options.drop_ratio, threads=options.threads)
    return lambda question: ranker.rank(question.question, question.texts)


def inputs_of(ranker, question):
    """Inputs of a graph, all candidates of a question padded to the longest."""
    pairs = ranker.inputs.encode(question.question, question.texts)
    return graph_inputs(dict(zip(ranker.inputs.names, ranker.inputs.pad(pairs))))


def by_one_graph(source, options, compile_graph):
    """Ranks by the graph that drops inside."""
    ranker = load_ranker(source, threads=options.threads)  # for its inputs
    compute = compile_graph(f"{source}/dropping.onnx", options.threads)
    ratios = np.full(ranker.capabilities.stages, options.drop_ratio, np.float32)

    def rank(question):
        scores, exits, order = compute({**inputs_of(ranker, question), "drop_ratios": ratios})
        return Ranked(order, exits, scores)

    return rank


def by_graph(source, options, path=None):
    """Ranks without dropping by one graph of all layers: the export's, or that of a path."""
    ranker = load_ranker(source, threads=options.threads)  # for its inputs
    session = session_of(path or f"{source}/model.onnx", options.threads)
    names = {value.name for value in session.get_inputs()}

    def rank(question):
        inputs = inputs_of(ranker, question)
        scores = session.run(["logits"], {name: inputs[name] for name in names})[0].reshape(-1)
        exits = np.full(len(scores), ranker.capabilities.exits[-1])
        return Ranked(np.argsort(-scores, kind="stable"), exits, scores)

    return rank


def by_transformers(source, options):
    """`by_graph`, of the graph that PyTorch writes of the weights in Hugging Face's form."""
    from peer_models import export_graph

    ids = np.ones((2, 16), np.int64)
    batch = {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids * 0}
    with tempfile.TemporaryDirectory() as folder:
        export_graph(options.huggingface, f"{folder}/model.onnx", batch)
        return by_graph(source, options, f"{folder}/model.onnx")


def session_of(path, threads):
    """A session of ONNX Runtime."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


#: Outputs of the graph that drops inside.
OUTPUTS = ("scores", "exits", "order")


def in_onnxruntime(path, threads):
    """Function that computes a graph by ONNX Runtime."""
    session = session_of(path, threads)
    return lambda inputs: session.run(OUTPUTS, inputs)


def in_openvino(path, threads):
    """Function that computes a graph by OpenVINO, in float32 as the others."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    model = openvino.Core().compile_model(path, "CPU", settings)

    def compute(inputs):
        results = model(inputs)
        return [results[model.output(name)] for name in OUTPUTS]

    return compute


class Contender(NamedTuple):
    """What ranks, and by which library. A run needs MXNet, an export the other environment."""

    load: Callable[..., Any]
    library: str = "onnxruntime"
    ranks_export: bool = True


#: Contenders by name; those of all layers are for monolithic rankers.
CONTENDERS = {
    "oneDNN, run": Contender(by_stages, "onednn-cpu-gomp", ranks_export=False),
    "ONNX Runtime, stages": Contender(by_stages),
    "ONNX Runtime, one graph": Contender(
        functools.partial(by_one_graph, compile_graph=in_onnxruntime)
    ),
    "OpenVINO, one graph": Contender(
        functools.partial(by_one_graph, compile_graph=in_openvino), "openvino"
    ),
    "ONNX Runtime, all layers": Contender(by_graph),
    "ONNX Runtime, all layers by transformers": Contender(by_transformers),
}


def default_contenders(options):
    """Contenders that fit the export."""
    names = list(CONTENDERS)
    if pathlib.Path(options.exported, "dropping.onnx").exists():
        return names[:4]
    return [names[0], *names[4 : 6 if options.huggingface else 5]]


def work(options):
    """Rank by one contender, and print the seconds and the rankings."""
    contender = CONTENDERS[options.worker]
    source = options.exported if contender.ranks_export else options.run
    rank = contender.load(source, options)
    questions = list(itertools.islice(read_questions(options.data), options.questions))
    rank(questions[0])
    start = time.perf_counter()
    rankings = [rank(question) for question in questions]
    seconds = time.perf_counter() - start
    rows = []
    for ranking in rankings:
        rows.append([values.tolist() for values in (ranking.order, ranking.exits, ranking.scores)])
    result = {"seconds": seconds, "rankings": rows}
    result["candidates"] = sum(len(question.texts) for question in questions)
    try:
        result["version"] = importlib.metadata.version(contender.library)
    except importlib.metadata.PackageNotFoundError:
        result["version"] = "of no package"
    print(json.dumps(result))


def start(name, options):
    """Run a contender in a process, and return what it prints."""
    python = options.peers_python if CONTENDERS[name].ranks_export else sys.executable
    command = [python, __file__, options.run, options.exported, "--data", options.data]
    command += ["--questions", options.questions, "--drop-ratio", options.drop_ratio]
    command += ["--threads", options.threads, "--worker", name]
    if options.huggingface:
        command += ["--huggingface", options.huggingface]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        sys.exit(f"{name}: {last[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(options):
    """Rows of the contenders, by their names."""
    rounds = []
    for _ in range(options.rounds):
        rounds.append({name: start(name, options) for name in options.contenders})
    rows = []
    first = rounds[0][options.contenders[0]]
    for name in options.contenders:
        best = min(one[name]["seconds"] for one in rounds)
        same, worst = 0, 0.0
        for ours, theirs in zip(rounds[0][name]["rankings"], first["rankings"]):
            same += ours[:2] == theirs[:2]
            worst = max(worst, float(np.abs(np.subtract(ours[2], theirs[2])).max()))
        row = {"contender": name, "candidates/s": first["candidates"] / best, "same order": same}
        row.update(difference=f"{worst:.1e}", library=CONTENDERS[name].library)
        rows.append({**row, "version": rounds[0][name]["version"]})
    return rows


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run directory of a cascade, or of a monolithic ranker")
    parser.add_argument("exported", help="folder of wqa export --format onnx")
    parser.add_argument("--data", required=True, help="questions, canonical JSONL")
    parser.add_argument("--questions", type=int, default=100, help="number of them (100)")
    parser.add_argument("--drop-ratio", type=float, default=0.3, help="of each exit (0.3)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each (2)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument("--peers-python", default=sys.executable, help="other environment")
    parser.add_argument("--huggingface", help="the monolithic ranker in Hugging Face's form")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, metavar="NAME")
    parser.add_argument("--worker", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.contenders = options.contenders or default_contenders(options)
    loaders = [CONTENDERS[name].load for name in options.contenders]
    if by_transformers in loaders and not options.huggingface:
        parser.error("the graph of transformers needs --huggingface")
    if options.worker:
        work(options)
    else:
        print(machine())
        print(table(compare(options)))


if __name__ == "__main__":
    main()
