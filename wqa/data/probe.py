"""What a name or a path stands for, where a ranker is expected; and files of several rankers.

Baselines are rankers that need no training, by a rule or by a pretrained encoder. Sequences and
ensembles are files of other rankers.
"""

from __future__ import annotations

import os
import pathlib
import re
import tarfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from wqa.config import read_json
from wqa.config.encoders import SIMILARITIES
from wqa.config.training import PRECISIONS
from wqa.errors import OptionError, RunDirectoryError, shorten
from wqa.io.encoder_directories import INSTALLED
from wqa.io.files import TAR_DAMAGE, PathLike

#: Names of the baselines, as they stand where a run is expected.
BASELINE_NAMES = (
    "rr",
    "wo",
    "wo+rr",
    "random:SEED",
    "bm25",
    "maxsim:ENCODER",
    "cosine:ENCODER",
    *INSTALLED,
    "bm25+ENCODER",
)

#: Changes whenever the scores of a baseline change.
BASELINES_VERSION = 2

_RANDOM = "random"
_PLAIN = ("rr", "wo", "wo+rr", "bm25")
#: Prefix of the sum of BM25 and a similarity.
_WITH_BM25 = "bm25+"


class BaselineName(NamedTuple):
    """A baseline that is named in place of a run."""

    rule: str
    seed: int = 0
    encoder: str = ""
    with_bm25: bool = False

    @property
    def is_similarity(self) -> bool:
        """Whether it compares encodings of an encoder, which may come from a document cache."""
        return self.rule in SIMILARITIES

    def __str__(self) -> str:
        if self.is_similarity:
            return f"{_WITH_BM25 * self.with_bm25}{self.rule}:{self.encoder}"
        return f"{self.rule}:{self.seed}" if self.rule == _RANDOM else self.rule


def parse_baseline(run: PathLike, folder: PathLike = "") -> Optional[BaselineName]:
    """Parse the name of a baseline."""
    name = os.fspath(run)
    if os.path.exists(os.path.join(folder, name)):
        return None
    if name.startswith(_WITH_BM25):
        similarity = parse_baseline(name[len(_WITH_BM25) :], folder)
        if similarity is None or not similarity.is_similarity or similarity.with_bm25:
            raise OptionError(shorten(name), "no ranker", "bm25+minilm or bm25+maxsim:ENCODER")
        return similarity._replace(with_bm25=True)
    rule, _, argument = name.partition(":")
    if name in INSTALLED:
        return BaselineName("maxsim", encoder=name)
    if rule in SIMILARITIES:
        if not argument:
            expected = f"{rule}:ENCODER, such as {rule}:{next(iter(INSTALLED))}"
            raise OptionError(shorten(name), "no encoder", expected)
        path = os.path.join(folder, argument)
        return BaselineName(rule, encoder=path if os.path.exists(path) else argument)
    if name in (*_PLAIN, _RANDOM):
        return BaselineName(name)
    if rule != _RANDOM:
        return None
    if not re.fullmatch("[0-9]{1,18}", argument):
        raise OptionError(shorten(name), "no seed", "random:SEED, a whole number from 0")
    return BaselineName(rule, int(argument))


#: Kinds of rankers, and what messages call them.
DESCRIPTIONS = {
    "baseline": "a baseline, which has no files",
    "file": "a file of several rankers",
    "export": "exported graphs",
    "run": "a run directory",
    "encoder": "an encoder without a ranker",
    "huggingface": "a model of another library",
    "": "no ranker",
}


class Probe(NamedTuple):
    """What stands at a path, by its name and its ``config.json`` alone.

    Attributes
    ----------
    kind : str
        A key of `DESCRIPTIONS`; empty where nothing is recognised. What loads it says what is wrong
        with it then.
    path : pathlib.Path
        The path.
    baseline : BaselineName or None
        The baseline.
    config : dict
        Content of a folder's ``config.json``, which is not checked.
    """

    kind: str
    path: pathlib.Path
    baseline: Optional[BaselineName] = None
    config: Dict[str, Any] = {}


def probe(run: PathLike, folder: PathLike = "") -> Probe:
    """Tell what a name or a path stands for.

    Parameters
    ----------
    run : str or path-like
        Name of a baseline, or a path.
    folder : str or path-like
        Folder that paths are relative to.

    Returns
    -------
    Probe

    Raises
    ------
    OptionError
        If it is the name of a baseline with a wrong seed or without an encoder.
    """
    path = pathlib.Path(folder) / run
    baseline = parse_baseline(run, folder)
    if baseline is not None:
        return Probe("baseline", path, baseline)
    try:
        if path.is_file():
            if path.suffix == ".json":
                return Probe("file", path)
            return Probe("huggingface" if tarfile.is_tarfile(path) else "", path)
        config = read_json(path / "config.json")
    except TAR_DAMAGE:  # a damaged file, no file, or a name that is too long
        return Probe("", path)
    kind = ""
    if not isinstance(config, dict):
        config = {}
    elif str(config.get("format", "")).startswith("wqa onnx"):
        kind = "export"
    elif "system" in config:
        kind = "encoder" if config["system"] == "encoder" else "run"
    elif {"model_type", "hidden_size"} & set(config):  # old files lack the model type
        kind = "huggingface"
    return Probe(kind, path, None, config)


#: Content of a ranker, and of each kind of file.
_ENTRY = '{"run": RUN, "drop_ratio": A, "keep": K, "precision": P}'
CONTENT = {
    "sequence": f'{{"rankers": [RUN, {_ENTRY}, ...], "drop_ratio": [A, ...], "keep": [K, ...]}}',
    "ensemble": f'{{"ensemble": [RUN, {_ENTRY}, ...], "weights": [W, ...], "combine": C}}',
}
#: Fields of each kind, that of its rankers first. ``tuned`` says how others were chosen.
_FIELDS = {
    "sequence": ("rankers", "drop_ratio", "keep", "tuned"),
    "ensemble": ("ensemble", "weights", "combine", "tuned"),
}


class Entry(NamedTuple):
    """A ranker of a file."""

    name: str  # as the file has it
    source: Probe
    drop_ratio: Any
    keep: Any
    precision: Optional[str] = None  # that of the others by default


class RankerFile(NamedTuple):
    """Content of a file."""

    kind: str  # a key of `CONTENT`
    entries: List[Entry]
    drop_ratio: Any = None  # of a sequence
    keep: Any = None  # of a sequence
    weights: Any = None  # of an ensemble
    combine: str = "probabilities"  # of an ensemble


def ranker_file_kind(path: PathLike) -> str:
    """Kind of the file of rankers at a path, a key of `CONTENT`; empty for any other path."""
    source = probe(path)
    return read_ranker_file(source.path).kind if source.kind == "file" else ""


def read_ranker_file(path: pathlib.Path, around: Tuple[pathlib.Path, ...] = ()) -> RankerFile:
    """Read a file of rankers, and check the files inside it; ``around`` has those it is inside."""
    content = _read_entries(path)
    resolved = path.resolve()
    if resolved in around:
        problem = f"the {content.kind} is inside itself"
        raise RunDirectoryError(path, problem, CONTENT[content.kind])
    for entry in content.entries:
        if entry.source.kind == "file":
            read_ranker_file(entry.source.path, (*around, resolved))
    return content


def _read_entries(path: pathlib.Path) -> RankerFile:
    kind = ""
    try:
        values = read_json(path)
        kind = next((name for name, fields in _FIELDS.items() if fields[0] in values), "")
        if not kind:
            raise ValueError("neither rankers nor ensemble is in it")
        _check_fields(values, _FIELDS[kind])
        field, weights = _FIELDS[kind][0], values.get("weights")
        for name, value in ((field, values[field]), ("weights", weights)):
            if not isinstance(value, list) and (name == field or value is not None):
                raise ValueError(f"{name} is {shorten(value)}")
        combine = values.get("combine", "probabilities")
        if combine not in ("probabilities", "scores"):
            raise ValueError(f"combine is {shorten(combine)}, expected probabilities or scores")
        entries = [_entry(path.parent, entry) for entry in values[field]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        expected = CONTENT.get(kind, " or ".join(CONTENT.values()))
        problem = f"is no {kind or ' or '.join(CONTENT)} of rankers ({error})"
        raise RunDirectoryError(path, problem, expected) from None
    drops = values.get("drop_ratio"), values.get("keep")
    return RankerFile(kind, entries, *drops, weights, combine)


def _entry(folder: pathlib.Path, entry: Any) -> Entry:
    """One ranker, given as a path, or as a path with its drops and its precision."""
    values = entry if isinstance(entry, dict) else {"run": entry}
    _check_fields(values, ("run", "drop_ratio", "keep", "precision"))
    name = values["run"]
    if not isinstance(name, str):
        raise ValueError(f"run is {shorten(name)}")
    try:
        source = probe(name, folder)
    except OptionError as error:
        raise ValueError(f"{error.where}: {error.found}, expected {error.expected}") from None
    precision = values.get("precision")
    if precision not in (None, *PRECISIONS):
        found = f"precision is {shorten(precision)}"
        raise ValueError(f"{found}, expected one of {', '.join(PRECISIONS)}")
    return Entry(name, source, values.get("drop_ratio"), values.get("keep"), precision)


def _check_fields(values: Any, known: Sequence[str]) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{shorten(values)} is no object")
    if not set(values).issubset(known):
        raise ValueError(f"a field besides {', '.join(sorted(known))}")
    for name in ("drop_ratio", "keep"):
        value = values.get(name)
        items = value if isinstance(value, list) else [value]
        is_tuned = name == "drop_ratio" and value == "tuned"
        if not is_tuned and not {type(item) for item in items} <= {int, float, type(None)}:
            raise ValueError(f"{name} is {shorten(value)}")
