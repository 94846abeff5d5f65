"""Claims to verify with their evidence: JSONL, one claim a line, checked strictly."""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional, Tuple

from wqa.errors import DataError, shorten
from wqa.io.files import PathLike
from wqa.io.lines import json_value, object_of, read_records, record_lines, text_of, write_lines

#: Labels of FEVER (Thorne et al. 2018), in the order of a network's outputs.
LABELS = ("SUPPORTS", "NOT ENOUGH INFO", "REFUTES")
#: The evidence of a claim for which none was retrieved, as the authors of MSPP have it.
NO_EVIDENCE = "no doc. "


class Claim(NamedTuple):
    """A claim with what was retrieved for it.

    Attributes
    ----------
    id : str
        The claim's id, unique in its corpus.
    claim : str
        Its text.
    evidence : tuple of str
        At least one text, the best one first. FEVER's are a title and a sentence; a claim for which
        nothing was retrieved has `NO_EVIDENCE`.
    label : str, optional
        One of `LABELS`; None if it is not known.
    """

    id: str
    claim: str
    evidence: Tuple[str, ...]
    label: Optional[str] = None

    @property
    def question(self) -> str:
        """The claim, which takes the place of a question."""
        return self.claim


def read_claims(path: PathLike, labelled: bool = True) -> Iterator[Claim]:
    """Read a file of claims, plain or ``.gz``, one claim at a time.

    Parameters
    ----------
    path : str or path-like
        JSONL; it is unpacked if its name ends in ``.gz``.
    labelled : bool
        Whether each claim must have a label. Claims to label need none.

    Yields
    ------
    Claim
        The claims in the order of their lines.

    Raises
    ------
    DataError
        At the first line that is no claim, whose label is unknown or missing, or whose id is that
        of a line before; the message names file and line. Also if there is no line.
    """
    for claim, _ in read_records(path, "claim", functools.partial(_parse, labelled=labelled)):
        yield claim


def _parse(line: str, where: str, labelled: bool) -> Claim:
    claim = _claim(json_value(line, where), where)
    if labelled and claim.label is None:
        raise DataError(
            where, "no key 'label'", "one of " + ", ".join(LABELS), "take labelled claims"
        )
    return claim


def _claim(value: Any, where: str) -> Claim:
    fields = object_of(value, {"id", "claim", "evidence"}, {"label"}, where)
    for name in ("id", "claim"):
        if not text_of(fields[name], name, where).strip():
            raise DataError(where, f"{name} is empty", "text")
    evidence = fields["evidence"]
    if not isinstance(evidence, (list, tuple)) or not evidence:
        raise DataError(
            where,
            f"evidence is {shorten(evidence)}",
            "a list of at least one text",
            f"give {NO_EVIDENCE!r} where nothing was retrieved",
        )
    for number, text in enumerate(evidence, 1):
        if not text_of(text, f"evidence {number}", where).strip():
            raise DataError(where, f"evidence {number} is empty", "text")
    if "label" in fields:
        check_label(fields["label"], where)
    return Claim(fields["id"], fields["claim"], tuple(evidence), fields.get("label"))


def check_label(label: object, where: str) -> None:
    """Check the label of a claim."""
    if label not in LABELS:
        raise DataError(where, f"label is {shorten(label)}", "one of " + ", ".join(LABELS))


def write_claims(path: PathLike, claims: Iterable[Claim]) -> None:
    """Write a file of claims, plain or ``.gz``; the file appears when it is whole.

    Parameters
    ----------
    path : str or path-like
        The file; it is packed if its name ends in ``.gz``.
    claims : iterable of Claim
        The claims, one a line; ``label`` is absent where it is not known.

    Raises
    ------
    DataError
        If a claim is not valid, or two claims have the same id.
    StorageError
        If the file cannot be written.
    """
    write_lines(path, record_lines(claims, "claim", _fields))


def _fields(claim: Claim, where: str) -> Dict[str, Any]:
    fields = claim._asdict()
    if claim.label is None:
        del fields["label"]
    _claim(fields, where)
    return fields
