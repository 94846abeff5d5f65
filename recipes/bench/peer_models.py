"""The same classifier by other libraries, for `peers.py`: what scores padded batches.

A model is made of the classifier's directory in Hugging Face's form, a precision, and batches on
which int8 may be calibrated. ``scores`` takes the batches of one ranking, dicts of (B, L) int64
arrays by the names of the classifier's inputs, and gives their (B,) scores. ``SETTINGS`` are those
between which `peers.py` chooses the fastest; `choose` sets one.
"""

import os
import tempfile

import numpy as np
import torch


def classifier(directory, **options):
    """Load the classifier by transformers."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(directory, **options).eval()


def export_graph(directory, path, batch):
    """Write the classifier's graph by PyTorch's export, for any sizes; return its config."""
    model = classifier(directory, attn_implementation="eager")
    inputs = named(model, {name: torch.from_numpy(array) for name, array in batch.items()})
    axes = {name: {0: "batch", 1: "length"} for name in inputs}
    torch.onnx.export(
        model,
        (inputs,),
        path,
        input_names=list(inputs),
        output_names=["logits"],
        dynamic_axes={**axes, "logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    return model.config


def named(model, batch):
    """The inputs that a model of transformers takes, in the order of its own arguments."""
    order = ("input_ids", "attention_mask", "token_type_ids")
    return {name: batch[name] for name in order if name in batch}


class Model:
    """A model with one setting, which scores one batch after another."""

    LIBRARY = ""
    SETTINGS = ("",)

    def choose(self, setting):
        """Choose one of the settings."""

    def scores(self, batches):
        """Score batches."""
        return [self._scores(batch) for batch in batches]


class Pytorch(Model):
    """PyTorch, float32 or bfloat16, as it comes or compiled by Inductor."""

    LIBRARY = "torch"
    COMPILED = False

    def __init__(self, directory, precision, batches):
        self._model = classifier(directory, dtype=getattr(torch, precision))
        if self.COMPILED:
            self._model = torch.compile(self._model, dynamic=True)

    def _scores(self, batch):
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        with torch.inference_mode():
            return self._model(**tensors).logits[:, 0].float().numpy()


class CompiledPytorch(Pytorch):
    """PyTorch with ``torch.compile``, for shapes that change."""

    COMPILED = True


class OnnxRuntime(Model):
    """ONNX Runtime on the graph that its own optimizer fuses; int8 is its dynamic quantization."""

    LIBRARY = "onnxruntime"

    def __init__(self, directory, precision, batches):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        with tempfile.TemporaryDirectory() as folder:
            path = self._fused(directory, folder, batches[0])
            if precision == "int8":
                path = self._quantized(path, folder)
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )

    @staticmethod
    def _fused(directory, folder, batch):
        from onnxruntime.transformers.optimizer import optimize_model

        config = export_graph(directory, f"{folder}/model.onnx", batch)
        fused = optimize_model(
            f"{folder}/model.onnx",
            model_type="bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
        )
        fused.save_model_to_file(f"{folder}/fused.onnx")
        return f"{folder}/fused.onnx"

    @staticmethod
    def _quantized(path, folder):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        out = f"{folder}/int8.onnx"
        # The outputs of fused nodes have no inferred type.
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(path, out, weight_type=QuantType.QInt8, extra_options=options)
        return out

    def _scores(self, batch):
        return self._session.run(["logits"], batch)[0][:, 0]


class OpenVino(Model):
    """OpenVINO on the PyTorch model; int8 by NNCF's static quantization for transformers.

    The settings are its hints of performance. For throughput, batches run side by side, each on a
    part of the threads.
    """

    LIBRARY = "openvino"
    SETTINGS = ("hint LATENCY", "hint THROUGHPUT")

    def __init__(self, directory, precision, batches):
        import openvino

        model = classifier(directory, attn_implementation="sdpa")
        example = named(
            model, {name: torch.from_numpy(array) for name, array in batches[0].items()}
        )
        self._model = openvino.convert_model(model, example_input=example)
        if precision == "int8":
            import nncf

            self._model = nncf.quantize(
                self._model,
                nncf.Dataset(batches),
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(batches),
            )
        # By default float32 is computed in bfloat16 where the processor has it.
        self._hint = {"float32": "f32", "bfloat16": "bf16", "int8": None}[precision]

    def choose(self, setting):
        """Compile the model for a hint."""
        import openvino

        config = {
            "PERFORMANCE_HINT": setting.split()[-1],
            "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
        }
        if self._hint:
            config["INFERENCE_PRECISION_HINT"] = self._hint
        self._queue = openvino.AsyncInferQueue(
            openvino.Core().compile_model(self._model, "CPU", config)
        )

    def scores(self, batches):
        """Score batches, as many side by side as the hint gives."""
        results = [None] * len(batches)

        def keep(request, number):
            results[number] = request.get_output_tensor().data[:, 0].copy()

        self._queue.set_callback(keep)
        for number, batch in enumerate(batches):
            self._queue.start_async(batch, number)
        self._queue.wait_all()
        return results


class CTranslate2(Model):
    """CTranslate2, which computes no padding; the classifier's head is PyTorch's.

    The settings are the numbers of batches that run side by side, each on a part of the threads.
    """

    LIBRARY = "ctranslate2"
    SETTINGS = ("1 at once", "2 at once")

    def __init__(self, directory, precision, batches):
        import ctranslate2
        from transformers import AutoTokenizer

        self._kind = precision
        self._folder = tempfile.TemporaryDirectory()
        self._path = f"{self._folder.name}/model"
        model = classifier(directory)
        model.config.position_embedding_type = "absolute"  # read, but no longer written
        plain = f"{self._folder.name}/transformers"
        model.save_pretrained(plain)
        tokenizer = AutoTokenizer.from_pretrained(directory)
        tokenizer.unk_token = tokenizer.convert_ids_to_tokens(0)  # it must be set, and is not used
        tokenizer.save_pretrained(plain)
        ctranslate2.converters.TransformersConverter(plain).convert(self._path)
        self._reads_pooled = not hasattr(model.classifier, "dense")
        self._head = model.classifier

    def choose(self, setting):
        """Load the encoder for so many batches side by side."""
        import ctranslate2

        self._at_once = int(setting.split()[0])
        self._encoder = ctranslate2.Encoder(
            self._path,
            compute_type=self._kind,
            inter_threads=self._at_once,
            intra_threads=max(1, torch.get_num_threads() // self._at_once),
        )

    def scores(self, batches):
        """Score batches."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self._at_once) as pool:
            return list(pool.map(self._scores, batches))

    def _scores(self, batch):
        import ctranslate2

        ids = ctranslate2.StorageView.from_array(batch["input_ids"].astype(np.int32))
        lengths = batch["attention_mask"].sum(axis=1).astype(np.int32)
        types = batch.get("token_type_ids")
        output = self._encoder.forward_batch(
            ids,
            ctranslate2.StorageView.from_array(lengths),
            None if types is None else types.tolist(),
        )
        with torch.inference_mode():
            states = output.pooler_output if self._reads_pooled else output.last_hidden_state
            rows = torch.from_numpy(np.array(states)).float()
            return self._head(rows)[:, 0].numpy()


MODELS = {
    "pytorch": Pytorch,
    "torch.compile": CompiledPytorch,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "ctranslate2": CTranslate2,
}
