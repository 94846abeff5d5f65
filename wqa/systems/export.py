"""Export of a run: MXNet's symbols and parameters, or a Hugging Face directory."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, Union

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import PAIR_FORMS
from wqa.errors import OptionError
from wqa.io.files import PathLike, new_directory, write_json
from wqa.models.exits import ExitNetwork
from wqa.pretrained.configs import to_huggingface
from wqa.pretrained.load import write_checked, write_tensors
from wqa.pretrained.names import HUGGINGFACE, huggingface_names
from wqa.systems.run_directory import LoadedRun, load_run
from wqa.systems.saving import write_model_card

#: Ids of special tokens that a tokenizer may have.
SPECIAL_IDS = ("start_id", "separator_id", "padding_id")


def export_mxnet(run: PathLike, out: PathLike) -> List[str]:
    """Write the network of a run as symbols and parameters.

    MXNet's bindings of other languages and `SymbolBlock.imports` read them. ``model-symbol.json``
    and ``model-0000.params`` compute the score of the last exit. A cascade is also written stage by
    stage, in ``exit_2-symbol.json`` and so on. A stage takes the encodings of the stage before and
    returns its own encodings and scores, so that a program can drop candidates between stages. A
    network that encodes texts apart is one symbol. ``export.json`` holds the names and types of
    inputs and outputs, and the ids of the special tokens. ``tokenizer.json`` is the run's.
    """
    loaded = load_run(run, computes="scores")
    network, inputs, tokenizer = loaded.network, loaded.inputs, loaded.inputs.tokenizer
    parameters = network._collect_params_with_prefix()
    names = {parameter.name: name for name, parameter in parameters.items()}
    stages = network.stages()
    blocks = {"model": network}
    types = inputs.array_types()
    networks = {"model": {"inputs": list(inputs.names), "outputs": ["scores"]}}
    if len(stages) > 1 and stages[0].embeddings is not None:
        types["hidden"] = f"float32 (B, L, {network.config.units})"
        read = list(inputs.names)
        for layer, stage in zip(network.exits, stages):
            blocks[f"exit_{layer}"] = stage
            networks[f"exit_{layer}"] = {"inputs": read, "outputs": ["hidden", "scores"]}
            read = ["hidden", "valid_length"]
    manifest = {"networks": networks, "types": types, "pair_form": tokenizer.pair_form}
    for name in SPECIAL_IDS:
        if hasattr(tokenizer, name):  # a tokenizer of words has padding alone
            manifest[name] = getattr(tokenizer, name)
    manifest["max_length"] = inputs.max_length
    with new_directory(out) as folder:
        for prefix, block in blocks.items():
            _write_network(block, networks[prefix]["inputs"], names, folder / prefix)
        tokenizer.save(folder / "tokenizer.json")
        write_json(folder / "export.json", manifest)
        write_model_card(folder, loaded.config, "mxnet", pathlib.Path(out).absolute().name)
        return sorted(path.name for path in folder.iterdir())


def _write_network(
    block: HybridBlock, inputs: List[str], names: Dict[str, str], prefix: pathlib.Path
) -> None:
    outputs = block(*[mx.sym.var(name) for name in inputs])
    symbol = mx.sym.Group(list(outputs)) if isinstance(outputs, tuple) else outputs
    graph = json.loads(symbol.tojson())
    for node in graph["nodes"]:
        # Gluon's names depend on the number of blocks created before; a run's names do not.
        if node["op"] == "null":
            node["name"] = names.get(node["name"], node["name"])
    write_json(f"{prefix}-symbol.json", graph)
    arrays = {}
    used = set(symbol.list_inputs())
    for name, parameter in block.collect_params().items():
        if name in used:
            arrays[f"arg:{names[name]}"] = parameter.data()
    path = prefix.with_name(f"{prefix.name}-0000.params")
    write_checked(lambda name: mx.nd.save(name, arrays), path)


def export_huggingface(run: PathLike, out: PathLike) -> List[str]:
    """Write a monolithic ranker as a Hugging Face directory.

    It holds a sequence classifier with one output, the score of this package.
    """
    loaded = load_run(run, computes="scores")
    network = loaded.network
    if len(network.heads) != 1 or not network.heads[0].is_sequence_classifier:
        problem = f"huggingface for a run of the system {loaded.config.system}"
        raise OptionError("format", problem, "a monolithic ranker", "take the format mxnet")
    with new_directory(out) as folder:
        write_tensors(huggingface_tensors(network), folder / "model.safetensors", {"format": "pt"})
        config = to_huggingface(network.config)
        settings = HUGGINGFACE[network.config.layout].settings
        config[settings.get("num_hidden_layers", "num_hidden_layers")] = network.exits[-1]
        write_json(folder / "config.json", config)
        write_json(folder / "tokenizer_config.json", _tokenizer_config(loaded))
        loaded.inputs.tokenizer.save(folder / "tokenizer.json")
        write_model_card(folder, loaded.config, "huggingface", pathlib.Path(out).absolute().name)
        return sorted(path.name for path in folder.iterdir())


def huggingface_tensors(model: ExitNetwork) -> Dict[str, np.ndarray]:
    """Parameters of a monolithic ranker by Hugging Face's names."""
    family, tensors = HUGGINGFACE[model.config.layout], {}
    # The layers above the exit are left out.
    parameters = model.path(0)._collect_params_with_prefix()
    names = huggingface_names(model.config)
    for ours, theirs in names.items():
        if theirs and ours in parameters:
            values = parameters[ours].data().asnumpy()
            if ours == "embeddings.word.weight" and not names["embeddings.token_type.weight"]:
                # The family has no token types, so the one row, which training changes, is added
                # to all words.
                values = values + parameters["embeddings.token_type.weight"].data().asnumpy()
            for name, part in zip(theirs, np.split(values, len(theirs))):
                tensors[f"{family.prefix}.{name}"] = part
    for ours, name in family.classifier.items():
        # Hugging Face counts a pooler as a part of the encoder.
        is_pooler = ours == "dense" and model.config.family.has_pooler
        start = f"{family.prefix}.{name}" if is_pooler else name
        for kind, parameter in getattr(model.head(0), ours)._collect_params_with_prefix().items():
            tensors[f"{start}.{kind}"] = parameter.data().asnumpy()
    return tensors


def _tokenizer_config(run: LoadedRun) -> Dict[str, Union[str, int, List[str]]]:
    tokenizer = run.inputs.tokenizer
    names: Dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": run.inputs.max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    has_types = run.network.config.family.has_token_types
    if not (has_types and PAIR_FORMS[tokenizer.pair_form].typed):
        names["model_input_names"].remove("token_type_ids")
    for key, name in zip(("cls_token", "sep_token", "pad_token"), SPECIAL_IDS):
        names[key] = tokenizer.token(getattr(tokenizer, name))
    return names
