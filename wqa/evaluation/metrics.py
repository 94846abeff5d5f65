"""One metric a function, each over the relevance grades of a ranked list, best first.

A grade above 0 is relevant. ``judged`` holds the grades of every judged candidate of the
question, ranked or not. A question without a relevant candidate scores 0, as in trec_eval.

``hit@N`` is what Zhang et al. (2020, DC-BERT, section 3) and Chen et al. (2017) call P@N. Under the
name ``p@N`` this package has precision at N, trec_eval's.

A measure of the library `ir_measures` sees the ranking as scores that fall with the rank, so that
ties are already broken. A measure that needs to know which grades are relevant, and does not say
so, counts a grade from 1.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import math
import re
import subprocess
from typing import Any, Callable, Dict, Optional, Sequence

from wqa.data import Question
from wqa.errors import MissingDependency, OptionError, how_to_install, shorten


def hit(ranked: Sequence[int], judged: Sequence[int], k: int = 1) -> float:
    """Hit@k, the papers' P@N: whether a relevant candidate is among the first ``k`` ranks.

    Parameters
    ----------
    ranked : sequence of int
        Grades of the ranked candidates, best rank first.
    judged : sequence of int
        Grades of all judged candidates, which do not matter here.
    k : int
        Cut-off, the number of ranks that count.

    Returns
    -------
    float
        1 or 0, also for fewer than k candidates. The mean over the questions is the share of them.
    """
    return float(any(grade > 0 for grade in ranked[:k]))


def beyond_retrieval(ranked: Sequence[int], ranks: Sequence[int], k: int = 10) -> float:
    """PBT@k: whether a relevant candidate is among the first ``k``, but was not retrieved there.

    Parameters
    ----------
    ranked : sequence of int
        Grades of the ranked candidates, best rank first.
    ranks : sequence of int
        Index of each of them in the order in which they were retrieved, by TF-IDF in the paper.
    k : int
        Cut-off of both orders.

    Returns
    -------
    float
        1 or 0. The mean over the questions tells how far a ranker goes beyond the retriever: more
        is better.
    """
    first = zip(ranked[:k], ranks[:k])
    return float(any(grade > 0 and rank >= k for grade, rank in first))


def lost_by_ranking(ranked: Sequence[int], ranks: Sequence[int], k: int = 10) -> float:
    """PTB@k: whether a relevant candidate was retrieved among the first ``k``, but is not there.

    Parameters
    ----------
    ranked, ranks, k
        As `beyond_retrieval` takes them.

    Returns
    -------
    float
        1 or 0. The mean over the questions tells how much of the retriever's a ranker loses: less
        is better.
    """
    behind = zip(ranked[k:], ranks[k:])
    return float(any(grade > 0 and rank < k for grade, rank in behind))


Grades = Sequence[int]


def average_precision(ranked: Grades, judged: Grades) -> float:
    """AP: the mean, over relevant candidates, of the precision at their ranks.

    Parameters
    ----------
    ranked : sequence of int
        Grades of the ranked candidates, best rank first.
    judged : sequence of int
        Grades of all judged candidates, ranked or not.

    Returns
    -------
    float
        Relevant candidates that were not ranked count as precision 0.
    """
    relevant = _relevant(judged)
    if not relevant:
        return 0.0
    hits = 0
    total = 0.0
    for rank, grade in enumerate(ranked, 1):
        if grade > 0:
            hits += 1
            total += hits / rank
    return total / relevant


def reciprocal_rank(ranked: Grades, judged: Grades) -> float:
    """RR: one over the rank of the first relevant candidate, 0 without one.

    Parameters
    ----------
    ranked, judged : sequence of int
        Grades, as `average_precision` takes them.

    Returns
    -------
    float
        A number in [0, 1].
    """
    for rank, grade in enumerate(ranked, 1):
        if grade > 0:
            return 1 / rank
    return 0.0


def precision(ranked: Grades, judged: Grades, k: int = 1) -> float:
    """P@k: the share of relevant candidates in the first ``k`` ranks, short lists included.

    Parameters
    ----------
    ranked, judged : sequence of int
        Grades, as `average_precision` takes them.
    k : int
        Cut-off, the number of ranks that count.

    Returns
    -------
    float
        Number of relevant candidates among them, over k.
    """
    return _relevant(ranked[:k]) / k


def _relevant(grades: Grades) -> int:
    return sum(grade > 0 for grade in grades)


def ndcg(ranked: Grades, judged: Grades, k: int = 10) -> float:
    """nDCG@k with the grade as gain and a discount of log2(rank + 1).

    Parameters
    ----------
    ranked, judged : sequence of int
        Grades, as `average_precision` takes them; negative ones have no gain.
    k : int
        Cut-off, as `precision` takes it.

    Returns
    -------
    float
        DCG over that of the ideal ranking.
    """
    ideal = sorted(judged, reverse=True)
    best = _dcg(ideal[:k])
    if not best:
        return 0.0
    return _dcg(ranked[:k]) / best


def _dcg(grades: Grades) -> float:
    total: float = 0
    for rank, grade in enumerate(grades, 1):
        if grade > 0:
            discount = math.log2(rank + 1)
            total += grade / discount
    return total


#: Metrics of a table by default.
METRICS = ("map", "mrr", "p@1", "ndcg@10")

_PLAIN = {"map": average_precision, "mrr": reciprocal_rank}
_AT_K = {"p": precision, "ndcg": ndcg, "hit": hit}
#: Metrics that compare a ranking with the order in which the candidates were retrieved.
_BESIDE_RETRIEVAL = {"pbt": beyond_retrieval, "ptb": lost_by_ranking}
#: Names of metrics, for messages.
NAMES = "map, mrr, p@K, ndcg@K, hit@K, pbt@K or ptb@K, with K from 1"


def metric(name: str) -> Callable[[Grades, Grades], float]:
    """Look a metric up by name."""
    if name in _PLAIN:
        return _PLAIN[name]
    functions = {**_AT_K, **_BESIDE_RETRIEVAL}
    match = re.fullmatch(r"([a-z]+)@([1-9][0-9]*)", name)
    if match is not None and match[1] in functions:
        return functools.partial(functions[match[1]], k=int(match[2]))
    other = measure(name)
    if other is None:
        mend = "" if is_installed() else "for the latter: " + how_to_install("ir")
        raise OptionError("metrics", shorten(name), f"{NAMES}; or {EXAMPLES}", mend)
    return other


def metrics_of(
    ranked: Grades,
    judged: Grades,
    names: Sequence[str] = METRICS,
    ranks: Optional[Sequence[int]] = None,
) -> Dict[str, float]:
    """Several metrics of one question."""
    values = {}
    for name in names:
        function = metric(name)
        if name.partition("@")[0] not in _BESIDE_RETRIEVAL:
            values[name] = function(ranked, judged)
        elif ranks is not None:
            values[name] = function(ranked, ranks)
        else:
            raise OptionError(
                "metrics",
                f"{name} of a TREC run, which lacks the order of retrieval",
                "the ranker and its questions",
            )
    return values


def metrics_of_question(
    order: Sequence[int], question: Question, names: Sequence[str] = METRICS
) -> Dict[str, float]:
    """Several metrics of the ranking of one question."""
    labels = [label or 0 for label in question.labels]
    ranks = question.ranks
    ranked = [labels[index] for index in order]
    return metrics_of(ranked, labels, names, [ranks[index] for index in order])


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
