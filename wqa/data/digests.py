"""SHA-256 of rankers and of the files of runs.

A run's ``config.json`` records the digests of its files. A file's digest is removed before the file
is written anew, and recorded afterwards. A process that is killed in between leaves a run without
the digest, which loads. The digest of a ranker is of all that its scores depend on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence

from wqa.config import read_json
from wqa.config.runs import FORMAT, config_digest
from wqa.data.probe import BASELINES_VERSION, BaselineName, Probe, probe, read_ranker_file
from wqa.errors import RunDirectoryError
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike, atomic_writer, sha256

#: Files of a new run whose digests are recorded.
RUN_FILES = ("model.params", "tokenizer.json")


def file_digests(folder: PathLike, names: Iterable[str] = RUN_FILES) -> Dict[str, str]:
    """Compute the digests of files.

    Parameters
    ----------
    folder : str or path-like
        Folder of the files.
    names : iterable of str
        Names of the files.

    Returns
    -------
    dict of str to str
        SHA-256 in hexadecimal, by name.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    return {name: sha256(pathlib.Path(folder) / name) for name in names}


def check_digest(
    path: pathlib.Path, recorded: Mapping[str, str], hint: str = "restore the file from its run"
) -> None:
    """Check that a file of a run is as it was written.

    Parameters
    ----------
    path : pathlib.Path
        File to check.
    recorded : mapping of str to str
        SHA-256 by name of the file, from ``config.json``. A file without one is not checked, as in
        a run of an earlier version.
    hint : str
        Remedy that the error names.

    Raises
    ------
    RunDirectoryError
        If the file cannot be read or has changed.
    """
    if path.name not in recorded:
        return
    expected = recorded[path.name]
    try:
        digest = sha256(path)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        if isinstance(error, FileNotFoundError):
            problem = "the file is missing"
        raise RunDirectoryError(path, problem, "a file of the run", hint) from None
    if digest != expected:
        hint += "; if you changed it yourself, delete its line of sha256 in config.json"
        problem = f"has changed: its SHA-256 is {digest[:12]}..."
        expected = f"{expected[:12]}..., as config.json records"
        raise RunDirectoryError(path, problem, expected, hint)


def record_digests(run: PathLike, names: Iterable[str] = RUN_FILES) -> None:
    """Record the digests of files in a run's ``config.json``, except those already recorded.

    The digest of ``config.json`` itself is recorded with them.

    Parameters
    ----------
    run : str or path-like
        Run directory.
    names : iterable of str
        Names of its files.

    Raises
    ------
    OSError, ValueError
        If a file cannot be read.
    StorageError
        If ``config.json`` cannot be written; its old content stays.
    """
    values = read_json(pathlib.Path(run) / "config.json")
    known = values.get("sha256", {})
    missing = [name for name in names if name not in known]
    if missing:
        new = {**file_digests(run, missing), "config.json": config_digest(values)}
        _write_digests(run, values, {**known, **new})


def forget_digests(run: PathLike, names: Iterable[str] = RUN_FILES) -> None:
    """Remove digests from a run's ``config.json``, before the files are written anew.

    Parameters
    ----------
    run : str or path-like
        Run directory.
    names : iterable of str
        Names of its files.

    Raises
    ------
    OSError, ValueError
        If ``config.json`` cannot be read.
    StorageError
        If it cannot be written; its old content stays.
    """
    values = read_json(pathlib.Path(run) / "config.json")
    known = values.get("sha256", {})
    kept = {name: digest for name, digest in known.items() if name not in set(names)}
    if len(kept) < len(known):
        _write_digests(run, values, kept)


def _write_digests(run: PathLike, values: Dict[str, Any], digests: Dict[str, str]) -> None:
    with atomic_writer(pathlib.Path(run) / "config.json") as file:
        content = json.dumps({**values, "sha256": digests}, indent=2)
        file.write(content + "\n")


#: Fields of ``config.json`` that the scores of a run depend on.
_RANKING_FIELDS = ("system", "backbone", "network", "max_length")


def ranker_digest(path: PathLike, precision: str = "float32", further: Sequence[str] = ()) -> str:
    """Compute the digest of a ranker: of the files and the settings that its scores depend on.

    ``further`` are files of a run that only some scores depend on, such as ``tuned.json``.
    """
    return _digest_of(probe(path), (*RUN_FILES, *_quantized(precision), *further))


def _quantized(precision: Optional[str]) -> Sequence[str]:
    return ("int8.safetensors",) if precision == "int8" else ()


def _digest_of_baseline(baseline: BaselineName) -> str:
    name = str(baseline)
    if baseline.is_similarity:
        path = pathlib.Path(baseline.encoder)
        with contextlib.ExitStack() as stack:
            if not path.is_file():
                path = stack.enter_context(encoder_directory(baseline.encoder))
            digest = _digest_of(probe(path), RUN_FILES)
            name = str(baseline._replace(encoder=digest))
    return hashlib.sha256(f"{name}, version {BASELINES_VERSION}".encode("ascii")).hexdigest()


def _digest_of(source: Probe, weights: Sequence[str]) -> str:
    if source.baseline is not None:
        return _digest_of_baseline(source.baseline)
    digest = hashlib.sha256()
    try:
        for part in _identity(source, weights):
            digest.update(part.encode("ascii"))
    except OSError as error:
        problem, expected = f"cannot be read ({error.strerror})", "a run, or another ranker"
        raise RunDirectoryError(source.path, problem, expected, "check the path") from None
    if source.kind == "file":
        for entry in read_ranker_file(source.path).entries:
            tuned = ("tuned.json",) if entry.drop_ratio == "tuned" else ()
            names = (*weights, *_quantized(entry.precision), *tuned)
            digest.update(_digest_of(entry.source, names).encode("ascii"))
    return digest.hexdigest()


def _identity(source: Probe, weights: Sequence[str]) -> Iterator[str]:
    """Names and digests of a ranker's own files, and the settings of a run."""
    path, values = source.path, source.config
    if not path.is_dir():
        yield sha256(path)
        return
    names = sorted(file.name for file in path.iterdir() if file.is_file())
    if values.get("format") == FORMAT:  # its digests are checked when it is loaded
        yield json.dumps([values.get("digest"), values.get("sha256")], sort_keys=True)
        names = []
    elif "system" in values:
        names = [name for name in weights if name in names]
        settings = {name: values.get(name) for name in _RANKING_FIELDS}
        yield json.dumps(settings, sort_keys=True)
    for name in names:
        yield json.dumps(name) + sha256(path / name)
