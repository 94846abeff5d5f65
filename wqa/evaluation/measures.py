"""Measures of the library `ir_measures`, for metrics that are not built in.

A measure sees the ranking as scores that fall with the rank, so that ties are already broken. A
measure that needs to know which grades are relevant, and does not say so, counts a grade from 1.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import subprocess
from typing import Any, Callable, Dict, Optional, Sequence

from wqa.errors import MissingDependency, shorten

#: Names of measures, for messages.
EXAMPLES = "a measure of ir-measures, such as nDCG@20, R@100, RBP(p=0.8) or Success@5"

#: Errors of libraries that cannot compute a measure.
_FAILURES = (
    ValueError,
    TypeError,
    AssertionError,
    RuntimeError,
    OSError,
    ImportError,
    subprocess.SubprocessError,
)


class Unjudged(int):
    """Grade 0 of a document that nobody judged."""


#: Grade of a ranked document without a judgement.
UNJUDGED = Unjudged(0)

Grades = Sequence[int]

_QUERY = "1"  # some libraries take numbers alone


def is_installed() -> bool:
    """Whether `ir_measures` is installed."""
    return importlib.util.find_spec("ir_measures") is not None


@functools.lru_cache(maxsize=None)
def measure(name: str) -> Optional[Callable[[Grades, Grades], float]]:
    """Look a measure up by its name in `ir_measures`.

    Parameters
    ----------
    name : str
        Name with its parameters, such as ``nDCG@20`` or ``RBP(p=0.8)``.

    Returns
    -------
    callable or None
        ``f(ranked, judged) -> float``, as `wqa.evaluation.metrics.metric` returns them; None if
        there is no such measure, a parameter is out of its range, or the library is not installed.

    Raises
    ------
    MissingDependency
        If a library that computes the measure is not installed.
    """
    if not is_installed():
        return None
    import ir_measures

    try:
        parsed = ir_measures.parse_measure(name)
        parsed.validate_params()
    except (NameError, ValueError, TypeError, AssertionError):
        return None
    is_mean = isinstance(parsed.aggregator(), ir_measures.measures.MeanAgg)
    if not is_mean or parsed.params.get("cutoff", 1) < 1:
        return None
    return functools.partial(_value, _computable(parsed, name))


def _computable(parsed: Any, name: str) -> Any:
    """The measure, or that of a grade from 1, where a library computes it only then."""
    import ir_measures

    choices = [parsed]
    if "rel" in parsed.SUPPORTED_PARAMS and "rel" not in parsed.params:
        choices.append(parsed(rel=1))
    reason = ""
    for choice in choices:
        try:
            _value(choice, [1, 0], [1, 0])
        except _FAILURES as error:
            reason = " ".join(str(error).split())
        else:
            return choice
    raise MissingDependency(
        f"metric {shorten(name)}",
        f"ir_measures {ir_measures.__version__} cannot compute it here ({reason[:300]})",
        "the library that computes the measure",
        "install the library, or take another measure",
    )


def _value(parsed: Any, ranked: Grades, judged: Grades) -> float:
    """A measure of one question; 0 where nothing is ranked."""
    import ir_measures

    if not ranked:
        return 0.0
    grades: Dict[str, int] = {}
    for rank, grade in enumerate(ranked):
        if not isinstance(grade, Unjudged):
            grades[str(rank)] = grade
    missing = collections.Counter(judged)
    missing.subtract(grades.values())
    for grade, count in missing.items():
        grades.update({f"{grade} {number}": grade for number in range(count)})
    scores = {str(rank): float(len(ranked) - rank) for rank in range(len(ranked))}
    [result] = ir_measures.iter_calc([parsed], {_QUERY: grades}, {_QUERY: scores})
    return float(result.value)
