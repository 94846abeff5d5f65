#!/usr/bin/env python3
"""Quantize an exported ranker to 8 bits by ONNX Runtime's own tool.

    wqa export runs/cascade exported --format onnx
    python recipes/bench/onnx_int8.py exported exported_int8 --data data/wikiqa/dev.jsonl
    wqa evaluate exported_int8 --data data/wikiqa/test.jsonl --drop-ratio 0.3

Products with weights are computed in 8 bits, with a scale for each output of a weight and one for
all inputs of a product, from questions that the float32 graphs rank (static quantization). Products
of attention stay in float32. The new folder has the graphs of the stages alone; every command that
ranks takes it.
"""

import argparse
import itertools
import json
import pathlib
import shutil

import onnx
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, quantize_static

from wqa import load_ranker, read_questions
from wqa.config import EngineConfig, config_digest
from wqa.config.runs import read_export_config
from wqa.data.digests import file_digests
from wqa.engines.onnx.sessions import GraphSessions, graph_inputs, mask_of
from wqa.errors import OptionError
from wqa.io.files import new_directory, write_json

#: How the range of a product's inputs follows from those that are seen.
METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}


class Inputs(CalibrationDataReader):
    """Inputs of a graph, one question after another."""

    def __init__(self, inputs):
        self._inputs = iter(inputs)

    def get_next(self):
        """Inputs of the next question; None after the last."""
        return next(self._inputs, None)


def calibration_inputs(folder, stages, questions):
    """Yield the inputs of the last of the stages for each question, by those before in float32."""
    ranker = load_ranker(folder)
    sessions = GraphSessions(folder, stages, EngineConfig(engine="onnxruntime"))
    for question in questions:
        pairs = ranker.inputs.encode(question.question, question.texts, question.id)
        inputs = graph_inputs(dict(zip(ranker.inputs.names, ranker.inputs.pad(pairs))))
        for stage in stages[:-1]:
            hidden = sessions.run(stage, inputs)["last_hidden_state"]
            lengths = [pair.length for pair in pairs]
            inputs = {"hidden": hidden, "attention_mask": mask_of(lengths, hidden.shape[1])}
        yield inputs


def products_with_weights(path):
    """Names of the nodes that multiply by a weight."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMul"]
    return [node.name for node in products if node.input[1] in weights]


def quantize(exported, out, questions, method="minmax"):
    """Write the 8-bit graphs of an exported folder as a new one."""
    exported = pathlib.Path(exported)
    config = read_export_config(exported / "config.json")
    if config.document_encoder or config.backbone is None:
        found = f"an export of the system {config.system}"
        raise OptionError("exported", found, "a ranker that reads question and candidate together")
    questions = list(questions)
    with new_directory(out) as folder:
        for number, stage in enumerate(config.stages, 1):
            path = exported / f"{stage}.onnx"
            quantize_static(
                str(path),
                str(folder / path.name),
                Inputs(calibration_inputs(exported, config.stages[:number], questions)),
                per_channel=True,
                nodes_to_quantize=products_with_weights(path),
                use_external_data_format=True,
                calibrate_method=METHODS[method],
            )
        for path in folder.glob("*.data"):  # the library's own mode is that of a temporary file
            shutil.copymode(folder / path.stem, path)
        shutil.copy(exported / "tokenizer.json", folder)
        values = json.loads((exported / "config.json").read_text(encoding="utf-8"))
        values["graphs"] = {stage: values["graphs"][stage] for stage in config.stages}
        names = [path.name for path in folder.iterdir()]
        digests = {**file_digests(folder, names), "config.json": config_digest(values)}
        write_json(folder / "config.json", {**values, "sha256": digests})


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("exported", help="folder of wqa export --format onnx")
    parser.add_argument("out", help="folder to write")
    parser.add_argument("--data", required=True, help="questions to calibrate on, canonical JSONL")
    parser.add_argument("--questions", type=int, default=100, help="number of them (100)")
    parser.add_argument("--method", choices=METHODS, default="minmax", help="ranges (minmax)")
    options = parser.parse_args()
    questions = itertools.islice(read_questions(options.data), options.questions)
    quantize(options.exported, options.out, questions, options.method)


if __name__ == "__main__":
    main()
