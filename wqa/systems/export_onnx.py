"""Export of a run to ONNX: its graphs, their weights, and what serves them.

A folder holds one graph for each part of the network, ``config.json``, which describes them, and
the run's tokenizer. The graphs share the file of the weights.
"""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import wqa
from wqa.config.runs import ExportConfig, as_json, config_digest
from wqa.data.digests import file_digests, ranker_digest
from wqa.data.probe import probe
from wqa.engines.onnx.dropping import dropping_graph
from wqa.engines.onnx.graph import OPSET, Graph, WeightFile, check_graphs, write_graph
from wqa.engines.onnx.networks import parameters_of, part_graph
from wqa.engines.onnx.sessions import WEIGHTS
from wqa.inference.calibrated import Calibration, read_calibration
from wqa.inference.document_encoder import encoder_digest
from wqa.io.files import PathLike, new_directory, write_json
from wqa.models.network import ENCODINGS_AND_SCORES
from wqa.systems.registry import read_tuned
from wqa.systems.run_directory import LoadedRun, load_run
from wqa.systems.saving import write_model_card

#: Graph of a cascade with the drops inside.
DROPPING = "dropping"


def export_onnx(run: PathLike, out: PathLike) -> List[str]:
    """Write the network of a run as ONNX graphs.

    Parameters
    ----------
    run : str or path-like
        Run directory of a ranker, a reader or a verifier, or a fine-tuned classifier.
    out : str or path-like
        New folder to write. It is whole, or not there.

    Returns
    -------
    list of str
        Names of the files: a graph for each part of the network, ``dropping.onnx`` for one with
        several exits, their weights, ``config.json``, ``tokenizer.json`` and the model card.

    Raises
    ------
    OptionError
        If the network has an operator without a translation; the message names it.
    RunDirectoryError
        If the run cannot be loaded.
    MissingDependency
        If the extra ``onnx`` is not installed.
    StorageError
        If the folder cannot be written.
    """
    loaded = load_run(run)
    system, computes = loaded.config.system, loaded.network.computes
    types = loaded.inputs.array_types()
    parts = loaded.network.graph_parts({name: types[name] for name in loaded.inputs.names})
    parameters = parameters_of(loaded.network)
    graphs = {part.name: part_graph(part, parameters) for part in parts}
    # Between these parts candidates can be dropped.
    stages = [part for part in parts if part.outputs == ENCODINGS_AND_SCORES]
    if len(stages) > 1:
        graphs[DROPPING] = dropping_graph(stages, loaded.network.exits, parameters)
    digest = ranker_digest(run)
    metadata = {
        "wqa_version": wqa.__version__,
        "system": system,
        "run_sha256": digest,
        "max_length": str(loaded.inputs.max_length),
        "opset": str(OPSET),
    }
    with new_directory(out) as folder:
        with open(folder / WEIGHTS, "xb") as file:
            weights = WeightFile(file)
            for name, graph in graphs.items():
                write_graph(graph, folder / f"{name}.onnx", weights, metadata)
        check_graphs(folder)
        loaded.inputs.tokenizer.save(folder / "tokenizer.json")
        config = _config(run, loaded, graphs, digest)
        names = [*(f"{name}.onnx" for name in graphs), WEIGHTS, "tokenizer.json"]
        digests = {**file_digests(folder, names), "config.json": config_digest(config)}
        write_json(folder / "config.json", {**config, "sha256": digests})
        form = "onnx_ranker" if computes == "scores" else "onnx"
        write_model_card(folder, loaded.config, form, pathlib.Path(out).absolute().name)
        return sorted(path.name for path in folder.iterdir())


def _config(
    run: PathLike, loaded: LoadedRun, graphs: Dict[str, Graph], digest: str
) -> Dict[str, Any]:
    """Content of ``config.json``, but for the digests of the files."""
    network = loaded.network
    names = {}
    for name, graph in graphs.items():
        _, _, inputs, outputs = graph.parts()
        names[name] = {
            "inputs": [value.name for value in inputs],
            "outputs": [value.name for value in outputs],
        }
    outputs = list(ENCODINGS_AND_SCORES)
    stages = [name for name in graphs if names[name]["outputs"] == outputs]
    encoder = network.document_encoder or ""
    is_tuned = (pathlib.Path(run) / "tuned.json").is_file()
    source, calibration = probe(run), Calibration()
    if source.kind == "run" and network.computes == "scores":
        calibration = read_calibration(source.path, loaded.config, len(network.stage_work()))
    config = ExportConfig(
        system=loaded.config.system,
        computes=network.computes,
        version=wqa.__version__,
        digest=digest,
        opset=OPSET,
        graphs=names,
        stages=tuple(stages or [name for name in ("interaction", "model") if name in graphs]),
        max_length=loaded.inputs.max_length,
        inputs_type=type(loaded.inputs).__name__,
        inputs=loaded.inputs.settings(),
        backbone=network.config,
        network=as_json(network.own_config),
        exits=tuple(network.exits),
        num_layers=network.num_layers,
        max_positions=network.max_positions,
        stage_work=tuple(network.stage_work()),
        full_work=network.full_work(),
        list_work=float(network.list_work()),
        document_encoder=encoder and encoder_digest(encoder),
        calibration=as_json(calibration),
        tuned=tuple(read_tuned(run)) if is_tuned else (),
    )
    return as_json(config)
