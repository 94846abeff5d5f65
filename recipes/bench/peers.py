"""One of the peers, for `compare.py`, in an environment of its own: the same protocol as `ours.py`.

    python recipes/bench/peers.py DIRECTORY DATA PEER PRECISION

PEER is pytorch, onnxruntime or cross-encoder. The first two take encoded pairs, sorted by length,
padded to the longest of a batch, in batches of the size that was fastest on the first question; all
threads. cross-encoder is sentence-transformers' CrossEncoder as it comes: text in, its own batches
of 32.
"""

import json
import os
import sys
import tempfile
import time

import numpy as np
import torch

MAX_LENGTH = 128
BATCHES = (16, 32, 64, 128)


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [
            [(record["question"], candidate["text"]) for candidate in record["candidates"]]
            for record in map(json.loads, lines)
        ]


class Pytorch:
    def __init__(self, directory, precision):
        from transformers import AutoModelForSequenceClassification

        self.model = AutoModelForSequenceClassification.from_pretrained(
            directory, dtype=getattr(torch, precision)
        ).eval()

    def scores(self, inputs):
        with torch.inference_mode():
            return (
                self.model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
                .logits[:, 0]
                .float()
                .numpy()
            )


class OnnxRuntime:
    def __init__(self, directory, precision):
        import onnx
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.transformers.optimizer import optimize_model
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        model = AutoModelForSequenceClassification.from_pretrained(
            directory, attn_implementation="eager"
        ).eval()
        sample = AutoTokenizer.from_pretrained(directory)([("a", "b")], return_tensors="pt")
        # In the order of the model's own arguments, by which the exporter names them.
        inputs = {
            name: sample[name]
            for name in ("input_ids", "attention_mask", "token_type_ids")
            if name in sample
        }
        axes = {name: {0: "batch", 1: "length"} for name in inputs}
        with tempfile.TemporaryDirectory() as folder:
            torch.onnx.export(
                model,
                (inputs,),
                f"{folder}/model.onnx",
                input_names=list(inputs),
                output_names=["logits"],
                dynamic_axes={**axes, "logits": {0: "batch"}},
                opset_version=17,
                dynamo=False,
            )
            path = f"{folder}/model.onnx"
            fused = optimize_model(
                path,
                model_type="bert",
                num_heads=model.config.num_attention_heads,
                hidden_size=model.config.hidden_size,
            )
            fused.save_model_to_file(f"{folder}/fused.onnx")
            path = f"{folder}/fused.onnx"
            if precision == "int8":
                untyped = {
                    "DefaultTensorType": onnx.TensorProto.FLOAT
                }  # fused nodes have no inferred type
                quantize_dynamic(
                    path, f"{folder}/int8.onnx", weight_type=QuantType.QInt8, extra_options=untyped
                )
                path = f"{folder}/int8.onnx"
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
            self.session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        self.names = {value.name for value in self.session.get_inputs()}

    def scores(self, inputs):
        return self.session.run(
            ["logits"], {name: inputs[name] for name in inputs if name in self.names}
        )[0][:, 0]


class Encoded:
    """Ranks encoded pairs in batches of one size, sorted by length."""

    def __init__(self, peer, directory, questions):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(directory)
        self.peer, self.padding = peer, tokenizer.pad_token_id
        self.names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
        self.pairs = [
            [
                dict(zip(self.names, values))
                for values in zip(*(encoded[name] for name in self.names))
            ]
            for encoded in (
                tokenizer(
                    [q for q, _ in pairs],
                    [c for _, c in pairs],
                    truncation="only_second",
                    max_length=MAX_LENGTH,
                )
                for pairs in questions
            )
        ]
        self.batch, first = BATCHES[0], (0, 1)
        self(*first)
        seconds = {}
        for self.batch in BATCHES:
            begin = time.perf_counter()
            self(*first)
            seconds[self.batch] = time.perf_counter() - begin
        self.batch = min(seconds, key=seconds.get)

    def __call__(self, begin, end):
        pairs = [pair for question in self.pairs[begin:end] for pair in question]
        lengths = np.array([len(pair["input_ids"]) for pair in pairs])
        order, scores = np.argsort(lengths, kind="stable"), np.empty(len(pairs), np.float32)
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            length = lengths[rows[-1]]
            inputs = {
                name: np.full(
                    (len(rows), length), self.padding if name == "input_ids" else 0, np.int64
                )
                for name in (*self.names, "attention_mask")
            }
            for row, pair in enumerate(rows):
                for name in self.names:
                    inputs[name][row, : lengths[pair]] = pairs[pair][name]
                inputs["attention_mask"][row, : lengths[pair]] = 1
            scores[rows] = self.peer.scores(inputs)
        edges = np.cumsum([len(question) for question in self.pairs[begin:end]])
        return [part.tolist() for part in np.split(scores, edges[:-1])]


class AsItComes:
    """sentence-transformers' CrossEncoder, nothing set."""

    def __init__(self, directory, questions):
        from sentence_transformers import CrossEncoder

        self.model, self.questions, self.batch = (
            CrossEncoder(directory, max_length=MAX_LENGTH, device="cpu"),
            questions,
            32,
        )
        self.model.predict(questions[0])

    def __call__(self, begin, end):
        pairs = [pair for question in self.questions[begin:end] for pair in question]
        scores = self.model.predict(pairs, show_progress_bar=False)
        edges = np.cumsum([len(question) for question in self.questions[begin:end]])
        return [part.tolist() for part in np.split(np.asarray(scores), edges[:-1])]


def main(directory, data, peer, precision):
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    questions = read(data)
    if peer == "cross-encoder":
        rank = AsItComes(directory, questions)
    else:
        rank = Encoded(
            {"pytorch": Pytorch, "onnxruntime": OnnxRuntime}[peer](directory, precision),
            directory,
            questions,
        )
    print(json.dumps({"ready": True, "batch": rank.batch}), flush=True)
    for line in sys.stdin:
        begin, end = map(int, line.split())
        start = time.perf_counter()
        scores = rank(begin, end)
        seconds = time.perf_counter() - start
        with open("/proc/self/statm", encoding="ascii") as file:
            memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        rows = [{"drop_ratio": 0.0, "seconds": seconds, "scores": scores}]
        print(json.dumps({"rows": rows, "memory_mib": memory}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
