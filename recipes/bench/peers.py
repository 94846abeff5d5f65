"""A peer, for `compare.py`, in an environment of its own; it answers the commands of `ours.py`.

    python recipes/bench/peers.py DIRECTORY DATA PEER PRECISION

PEER is pytorch, onnxruntime or cross-encoder. The first two take encoded pairs, sorted by length
and padded to the longest of a batch, in batches of the size that is fastest on the first question,
with all threads. cross-encoder is sentence-transformers' CrossEncoder as it comes: text in, its own
batches of 32.
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
            texts = [candidate["text"] for candidate in record["candidates"]]
            questions.append([(record["question"], text) for text in texts])
    return questions


def split_by_question(scores, questions):
    """Split scores into those of each question.

    Parameters
    ----------
    scores : numpy.ndarray
        (pairs,) scores of all questions' pairs, one question after the other.
    questions : list of list
        Pairs of each question.

    Returns
    -------
    list of list of float
    """
    edges = np.cumsum([len(question) for question in questions])
    return [part.tolist() for part in np.split(scores, edges[:-1])]


class Pytorch:
    """The classifier by PyTorch.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    precision : {"float32", "bfloat16"}
        Type of the weights.
    """

    def __init__(self, directory, precision):
        from transformers import AutoModelForSequenceClassification

        load = AutoModelForSequenceClassification.from_pretrained
        self._model = load(directory, dtype=getattr(torch, precision)).eval()

    def scores(self, inputs):
        """Score a batch.

        Parameters
        ----------
        inputs : dict of str to numpy.ndarray
            (B, L) arrays by the model's names.

        Returns
        -------
        numpy.ndarray
            (B,) scores.
        """
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        with torch.inference_mode():
            return self._model(**tensors).logits[:, 0].float().numpy()


class OnnxRuntime:
    """The classifier by ONNX Runtime, on the graph that its own optimizer fuses.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    precision : {"float32", "int8"}
        int8 is ONNX Runtime's dynamic quantization.
    """

    def __init__(self, directory, precision):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        with tempfile.TemporaryDirectory() as folder:
            path = self._fused(directory, folder)
            if precision == "int8":
                path = self._quantized(path, folder)
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        self._names = {value.name for value in self._session.get_inputs()}

    @staticmethod
    def _fused(directory, folder):
        from onnxruntime.transformers.optimizer import optimize_model
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        load = AutoModelForSequenceClassification.from_pretrained
        model = load(directory, attn_implementation="eager").eval()
        sample = AutoTokenizer.from_pretrained(directory)([("a", "b")], return_tensors="pt")
        # In the order of the model's own arguments, by which the exporter names them.
        order = ("input_ids", "attention_mask", "token_type_ids")
        inputs = {name: sample[name] for name in order if name in sample}
        axes = {name: {0: "batch", 1: "length"} for name in inputs}
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
        fused = optimize_model(
            f"{folder}/model.onnx",
            model_type="bert",
            num_heads=model.config.num_attention_heads,
            hidden_size=model.config.hidden_size,
        )
        fused.save_model_to_file(f"{folder}/fused.onnx")
        return f"{folder}/fused.onnx"

    @staticmethod
    def _quantized(path, folder):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            path,
            f"{folder}/int8.onnx",
            weight_type=QuantType.QInt8,
            # The outputs of fused nodes have no inferred type.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        return f"{folder}/int8.onnx"

    def scores(self, inputs):
        """Score a batch.

        Parameters
        ----------
        inputs : dict of str to numpy.ndarray
            (B, L) arrays by the model's names.

        Returns
        -------
        numpy.ndarray
            (B,) scores.
        """
        known = {name: array for name, array in inputs.items() if name in self._names}
        return self._session.run(["logits"], known)[0][:, 0]


class EncodedPairs:
    """Ranks encoded pairs in batches of one size, sorted by length.

    Parameters
    ----------
    model : Pytorch or OnnxRuntime
        What scores a batch.
    directory : str
        Directory of the tokenizer.
    questions : list of list of (str, str)
        Pairs of each question.
    """

    def __init__(self, model, directory, questions):
        from transformers import AutoTokenizer

        self._model = model
        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        names = self._tokenizer.model_input_names
        self._names = [name for name in names if name != "attention_mask"]
        self._questions = [self._encode(pairs) for pairs in questions]
        seconds = {}
        self.batch = BATCHES[0]
        self(0, 1)  # warms up
        for self.batch in BATCHES:
            start = time.perf_counter()
            self(0, 1)
            seconds[self.batch] = time.perf_counter() - start
        self.batch = min(seconds, key=seconds.get)

    def _encode(self, pairs):
        encoded = self._tokenizer(
            [question for question, _ in pairs],
            [candidate for _, candidate in pairs],
            truncation="only_second",
            max_length=MAX_LENGTH,
        )
        columns = [encoded[name] for name in self._names]
        return [dict(zip(self._names, values)) for values in zip(*columns)]

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

    def __call__(self, begin, end):
        """Rank a range of questions.

        Parameters
        ----------
        begin, end : int
            The first one, and the one after the last.

        Returns
        -------
        list of list of float
            Scores of each question's candidates.
        """
        questions = self._questions[begin:end]
        pairs = [pair for question in questions for pair in question]
        order = np.argsort([len(pair["input_ids"]) for pair in pairs], kind="stable")
        scores = np.empty(len(pairs), np.float32)
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            scores[rows] = self._model.scores(self._padded([pairs[row] for row in rows]))
        return split_by_question(scores, questions)


class Text:
    """sentence-transformers' CrossEncoder as it comes, from text.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    questions : list of list of (str, str)
        Pairs of each question.
    """

    def __init__(self, directory, questions):
        from sentence_transformers import CrossEncoder

        self.batch = 32
        self._questions = questions
        self._model = CrossEncoder(directory, max_length=MAX_LENGTH, device="cpu")
        self._model.predict(questions[0])

    def __call__(self, begin, end):
        """Rank a range of questions.

        Parameters
        ----------
        begin, end : int
            The first one, and the one after the last.

        Returns
        -------
        list of list of float
            Scores of each question's candidates.
        """
        questions = self._questions[begin:end]
        pairs = [pair for question in questions for pair in question]
        scores = self._model.predict(pairs, show_progress_bar=False)
        return split_by_question(np.asarray(scores), questions)


def load(directory, questions, peer, precision):
    """Load a peer and rank the first question.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    questions : list of list of (str, str)
        Pairs of each question.
    peer : {"pytorch", "onnxruntime", "cross-encoder"}
        The library.
    precision : str
        What it computes in.

    Returns
    -------
    callable
        Ranks a range of questions.
    """
    if peer == "cross-encoder":
        return Text(directory, questions)
    model = {"pytorch": Pytorch, "onnxruntime": OnnxRuntime}[peer](directory, precision)
    return EncodedPairs(model, directory, questions)


def lacks_instructions(error):
    """Whether an error may come from instructions that the processor does not have.

    Parameters
    ----------
    error : Exception
        What a peer raised. The libraries have no type of their own for it: PyTorch raises
        RuntimeError, ONNX Runtime a NotImplemented, Fail or RuntimeException of its own.

    Returns
    -------
    bool
    """
    return isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime")


def main(directory, data, peer, precision):
    """Answer the commands on standard input.

    Parameters
    ----------
    directory : str
        The classifier in Hugging Face's form.
    data : str
        Questions, canonical JSONL.
    peer, precision : str
        Parameters of `load`.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    questions = read(data)
    try:
        rank = load(directory, questions, peer, precision)
    except Exception as error:
        if not lacks_instructions(error):
            raise
        print(json.dumps({"left_out": str(error)}), flush=True)
        return
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
