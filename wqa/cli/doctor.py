"""Say which versions are installed, what the processor can do, and which engines rank.

example:
  wqa doctor
  wqa doctor --json -
  wqa doctor indexes/docs

Each engine ranks a few random pairs in each of its precisions, in a process of its own, so that the
command has an answer also where MXNet cannot be imported. The exit status is 0 if a ranking works,
by ONNX Runtime where MXNet is not installed, and 2 if none does.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import types
from typing import Any, Dict, Optional, Tuple

import wqa
from wqa.cli.options import add_json, show
from wqa.config import BackboneConfig, EngineConfig
from wqa.config.environment import MXNET_PACKAGES, installed_version, processor
from wqa.errors import WqaError, printable

#: Program of the process that ranks; its last line of output is the result.
_PROBE = "import json; from wqa.cli.doctor import probe; print(); print(json.dumps(probe()))"
#: Engines that compute networks, with the precisions that they may have.
_COMBINATIONS = [("mxnet", "float32")]
_COMBINATIONS += [("onednn", precision) for precision in ("float32", "bfloat16", "int8")]
#: Requirements of the package that no user needs.
_OTHERS = re.compile("extra == .(docs|test).|^nvidia-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa doctor`` to its parser."""
    text = "read a document index and compare its digests, in place of the installation"
    parser.add_argument("index", metavar="INDEX", nargs="?", help=text)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run ``wqa doctor`` and print the report."""
    if options.index is not None:
        from wqa.retrieval import Index

        Index(options.index).check_digests(progress=True)
        show(f"{printable(options.index)}: the index is whole", {"works": True}, options.json)
        return 0
    report = diagnose()
    show(as_text(report), report, options.json)
    return 0 if report["works"] else 2


def diagnose() -> Dict[str, Any]:
    """Examine the installation and the machine."""
    versions = package_versions()
    result = _probe_in_a_process()
    engines = result["engines"]
    if any(versions.get(name) for name in MXNET_PACKAGES):  # where it is installed, it has to work
        engines = [row for row in engines if row["engine"] != "onnxruntime"]
    return {
        "works": any(not row["problem"] for row in engines),
        "versions": versions,
        "processor": processor(),
        **result,
    }


def package_versions() -> Dict[str, Optional[str]]:
    """Versions of this package and of what it requires, also for its extras; None for missing."""
    python = platform.python_version()
    versions: Dict[str, Optional[str]] = {"wqa": wqa.__version__, "python": python}
    versions.update({name: installed_version(name) for name in MXNET_PACKAGES})
    for requirement in importlib.metadata.requires("wqa") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if not _OTHERS.search(requirement):
            versions[name] = installed_version(name)
    return versions


def probe() -> Dict[str, Any]:
    """Rank by each engine, in a process that may end by it."""
    result: Dict[str, Any] = {"problem": "", "gpus": 0}
    has_onnxruntime = importlib.util.find_spec("onnxruntime") is not None
    combinations = [("onnxruntime", "float32")] if has_onnxruntime else []
    try:
        from wqa.models.runtime import gpu_count

        combinations = [*_COMBINATIONS, *combinations]
        result["gpus"] = gpu_count()
    except Exception as error:  # whatever a library that does not fit raises
        result["problem"] = _message(error)
    return {**result, "engines": list(map(_try_engine, combinations))}


def _try_engine(combination: Tuple[str, str]) -> Dict[str, str]:
    """Whether an engine ranks in a precision."""
    engine, precision = combination
    attempt = _load_onnxruntime if engine == "onnxruntime" else _rank_random_pairs
    problem = ""
    try:
        attempt(engine, precision)
    except Exception as error:  # whatever a library that does not fit raises
        problem = _message(error)
    return {"engine": engine, "precision": precision, "problem": problem}


def _rank_random_pairs(engine: str, precision: str) -> None:
    """Rank by random weights, at a size that takes milliseconds; `Ranking` refuses NaN."""
    import wqa.models.runtime  # noqa: F401 - before MXNet is imported

    import numpy as np
    from mxnet.initializer import Normal

    from wqa.engines.choice import choose_engine
    from wqa.systems.load import build_ranker
    from wqa.systems.quantize import quantize_network
    from wqa.systems.registry import DEFAULT, build_network
    from wqa.text import TextInput

    config = EngineConfig(engine, precision)
    choose_engine(config)
    sizes = BackboneConfig(vocab_size=100, units=32, hidden_size=64, num_layers=2, num_heads=2)
    network: Any = build_network(DEFAULT, sizes, exits=(1, 2))
    network.initialize(Normal(0.02))
    tokenizer: Any = types.SimpleNamespace(padding_id=0, pair_form="bert")
    pairs = [TextInput(np.arange(5, 5 + tokens), 4, False, False) for tokens in (8, 20)]
    options: Dict[str, Any] = {"engine": config}
    if precision == "int8":
        options["quantized"] = quantize_network(DEFAULT, network, pairs)
    inputs = network.text_inputs(tokenizer, 64)
    ranker: Any = build_ranker(DEFAULT, network, inputs, **options)
    ranker.rank_pairs([pairs])


def _load_onnxruntime(*_: str) -> None:
    """Load ONNX Runtime and what ranks exported folders by it."""
    import tokenizers  # noqa: F401 - every ranker needs it

    import wqa.systems.load  # noqa: F401
    from wqa.engines.onnx.sessions import runtime

    runtime().get_available_providers()


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, WqaError) else f"{type(error).__name__}: {error}"


def _probe_in_a_process() -> Dict[str, Any]:
    """Result of `probe`, or why there is none."""
    folder = str(pathlib.Path(wqa.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    command, environment = [sys.executable, "-c", _PROBE], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, env=environment)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    return {"problem": f"exit status {done.returncode}: {lines[-1]}", "engines": []}


def as_text(report: Dict[str, Any]) -> str:
    """Lay a report out for a terminal."""
    chip = report["processor"]
    caps = [f"limited by {name}={value}" for name, value in chip["caps"].items()]
    lines = [
        f"ranking {'works' if report['works'] else 'does not work'} here; {report['problem']}",
        f"processor: {chip['name'] or 'unknown'}, {' '.join(chip['instruction_sets'])}",
        *caps,
        f"GPUs: {report.get('gpus', 0)}",
    ]
    for row in report["engines"]:
        name = f"{row['engine']} {row['precision']}"
        lines.append(f"  {name:20} {row['problem'] or 'works'}")
    lines.append("versions:")
    for name, version in report["versions"].items():
        lines.append(f"  {name:20} {version or 'not installed'}")
    return "\n".join(printable(line.rstrip("; ")) for line in lines)
