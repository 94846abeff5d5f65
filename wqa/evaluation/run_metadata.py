"""Headers of TREC runs: how a run was made, as ir_metadata describes it (Breuer et al. 2022).

A header is a YAML document in comment lines before the first ranking: the command and the commit
that made the run, and the digests of the rankers and the data. trec_eval and ir_measures refuse
lines that are no rankings, so a run has a header only on demand; the readers of this package skip
it.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import wqa
from wqa.config import RunConfig, read_run_config
from wqa.config.runs import read_export_config
from wqa.data.probe import Probe, probe, read_ranker_file
from wqa.errors import DataError
from wqa.io.files import PathLike, sha256
from wqa.io.lines import text_lines

#: First and last line of a header.
START, END = "# ir_metadata.start", "# ir_metadata.end"
#: Version of ir_metadata.
VERSION = "0.2"


def describe_run(
    command: str,
    run: PathLike,
    data: PathLike,
    figures: Mapping[str, Any],
    settings: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """Describe a run that this process has made.

    Parameters
    ----------
    command : str
        Command line that made it.
    run : str or path-like
        The ranker: a run directory, or the name of another ranker.
    data : str or path-like
        File of the questions, or their name in ``ir_datasets``.
    figures : mapping
        The row of the run, as `evaluate_ranker` returns it.
    settings : mapping, optional
        Further settings of the ranker, such as its precision.

    Returns
    -------
    dict
        The fields of ir_metadata. What is not known is left out.
    """
    training: List[Dict[str, Any]] = []
    retrieval = {**_ranker(probe(run), str(run), training), **(settings or {})}
    retrieval["drop ratio"] = figures["drop_ratio"]
    collection: Dict[str, Any] = {"name": str(data)}
    if os.path.isfile(data):
        collection["sha256"] = sha256(data)
    collection.update(filter=figures["filter"], questions=figures["questions"])
    source: Dict[str, Any] = {"lang": ["python"], "version": wqa.__version__}
    commit = _commit(pathlib.Path(wqa.__file__).parent.parent)
    if commit:
        source["commit"] = commit
    return {
        "schema version": VERSION,
        "tag": "wqa",
        "implementation": {"executable": {"cmd": command}, "source": source},
        "data": {"test collection": collection, "training data": training},
        "method": {
            "automatic": True,
            "score ties": "by descending document id",
            "retrieval": [retrieval],
        },
    }


def _ranker(source: Probe, name: str, training: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Fields of a ranker, and of those inside it; what they were trained on goes to `training`."""
    fields: Dict[str, Any] = {"name": name, "method": name}
    record = source.path / "config.json"
    config: Any = None
    if source.kind == "export":
        config = read_export_config(record)
    elif source.kind in ("run", "encoder"):
        config = read_run_config(record)
    if config:
        fields.update({"method": config.system, "network": dict(config.network)})
        fields.update({"max length": config.max_length, "sha256": dict(config.sha256)})
    if isinstance(config, RunConfig):
        fields["encoder"] = config.encoder
        training.append({"sha256": config.train_sha256, "command": config.command})
    if source.kind == "file":
        entries = read_ranker_file(source.path).entries
        inside = [_ranker(entry.source, entry.name, training) for entry in entries]
        fields.update({"sha256": {source.path.name: sha256(source.path)}, "rankers": inside})
    return fields


def header_of(metadata: Mapping[str, Any]) -> List[str]:
    """Header of a run.

    Parameters
    ----------
    metadata : mapping
        What `describe_run` returns.

    Returns
    -------
    list of str
        Its lines, which are comments.
    """
    import yaml

    text = yaml.safe_dump(metadata, sort_keys=False, width=1 << 20)
    lines = [f"# {line}" for line in text.splitlines()]
    return [START, *lines, END]


def split_header(path: PathLike) -> Tuple[List[str], Iterator[Tuple[int, str]]]:
    """Lines of a run's header without its marks, and its other lines with their numbers."""
    lines = text_lines(path)
    first = next(lines, None)
    header: List[str] = []
    if first is None or first[1].rstrip() != START:
        # A line that starts with # may be a ranking: ids of questions may.
        return header, itertools.chain(filter(None, [first]), lines)
    for number, line in lines:
        text = line.rstrip()
        if text == END:
            return header, lines
        if not text.startswith("#"):
            raise DataError(f"{path}, line {number}", "a header without an end", END)
        header.append(text)
    raise DataError(path, "a header without an end", END)


def _commit(folder: pathlib.Path) -> str:
    """Commit of a checkout; empty if the package is installed otherwise, or git is not."""
    command = ["git", "--git-dir", str(folder / ".git"), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
