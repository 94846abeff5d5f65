"""SHA-256 of rankers: of the files and settings that their scores depend on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from typing import Any, Dict, Iterator, Sequence

from wqa.config import read_json
from wqa.data.baselines import BASELINES_VERSION, BaselineName, parse_baseline
from wqa.errors import RunDirectoryError
from wqa.io.digests import RUN_FILES
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike, sha256

#: Fields of ``config.json`` that the scores of a run depend on.
_RANKING_FIELDS = ("system", "backbone", "network", "max_length")
#: Keys of a ``.json`` file that lists runs, such as that of a sequence.
_LISTS = ("rankers", "ensemble")


def ranker_digest(path: PathLike, precision: str = "float32") -> str:
    """Compute the digest of a ranker: of the files and the settings that its scores depend on."""
    weights: Sequence[str] = RUN_FILES
    if precision == "int8":
        weights = (*RUN_FILES, "int8.safetensors")
    baseline = parse_baseline(path)
    if baseline is not None:
        return _digest_of_baseline(baseline, {})
    return _digest_of(pathlib.Path(path), weights, {})


def _digest_of_baseline(baseline: BaselineName, known: Dict[pathlib.Path, str]) -> str:
    name = str(baseline)
    if baseline.is_similarity:
        path = pathlib.Path(baseline.encoder)
        with contextlib.ExitStack() as stack:
            if not path.is_file():
                path = stack.enter_context(encoder_directory(baseline.encoder))
            name = f"{baseline.rule}:{_digest_of(path, RUN_FILES, known)}"
    return hashlib.sha256(f"{name}, version {BASELINES_VERSION}".encode("ascii")).hexdigest()


def _digest_of(path: pathlib.Path, weights: Sequence[str], known: Dict[pathlib.Path, str]) -> str:
    try:
        where = path.resolve()
        if where not in known:
            known[where] = ""  # ends the recursion of a file that lists itself
            digest = hashlib.sha256()
            for part in _identity(path, weights):
                digest.update(part.encode("ascii"))
            for name in _listed_runs(path):
                baseline = parse_baseline(name, path.parent)
                if baseline is None:
                    listed = _digest_of(path.parent / name, weights, known)
                else:
                    listed = _digest_of_baseline(baseline, known)
                digest.update(listed.encode("ascii"))
            known[where] = digest.hexdigest()
    except (OSError, RuntimeError) as error:  # pathlib's error of a loop of links
        reason = getattr(error, "strerror", None) or error
        raise RunDirectoryError(
            path, f"cannot be read ({reason})", "a run, or another ranker", "check the path"
        ) from None
    return known[where]


def _identity(path: pathlib.Path, weights: Sequence[str]) -> Iterator[str]:
    """Names and digests of a ranker's own files, and the settings of a run."""
    if not path.is_dir():
        yield sha256(path)
        return
    values = _object(path / "config.json")
    names = sorted(file.name for file in path.iterdir() if file.is_file())
    if "system" in values:
        names = [name for name in weights if name in names]
        settings = {name: values.get(name) for name in _RANKING_FIELDS}
        yield json.dumps(settings, sort_keys=True)
    for name in names:
        yield json.dumps(name) + sha256(path / name)


def _listed_runs(path: pathlib.Path) -> Iterator[str]:
    """Runs, and files of tuned drop ratios, of a ``.json`` file, which may be malformed."""
    if path.suffix != ".json" or path.is_dir():
        return
    values = _object(path)
    for key in _LISTS:
        entries = values.get(key)
        for entry in entries if isinstance(entries, list) else []:
            run = entry.get("run") if isinstance(entry, dict) else entry
            if isinstance(run, str):
                yield run
                if isinstance(entry, dict) and entry.get("drop_ratio") == "tuned":
                    yield f"{run}/tuned.json"


def _object(path: pathlib.Path) -> Dict[str, Any]:
    """A JSON object, empty where the file holds none."""
    try:
        values = read_json(path)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
