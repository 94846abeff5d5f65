"""Evaluation of rankers on labelled questions, at several drop settings and after each exit.

A ranker is any object with the interface of `wqa.inference.Ranker`: ``prepare``, ``rank_all``,
``set_drops``, ``capabilities``. A drop setting is a name and the keyword arguments of
``set_drops``: ``{"0.3": {"drop_ratio": 0.3}, "keep=5": {"keep": 5}}``.

What uses a network while it trains, such as its ranker, for evaluations.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from wqa.data import Question, filter_questions
from wqa.data.records import chosen_filter, filter_and_note
from wqa.errors import OptionError
from wqa.evaluation.evaluate import check_total, evaluate
from wqa.evaluation.metrics import METRICS
from wqa.evaluation.trec import by_document_id, check_run_ids, ties_of, write_qrels, write_run
from wqa.io.progress import with_bar


def built_of(build: Callable[[Any], Any], live: bool) -> Callable[[Any], Any]:
    """Build what uses a network, once or at each call."""
    return functools.lru_cache(1)(build) if live else build


#: Figures of one ranking of all questions, by name.
Row = Dict[str, Any]
#: Keyword arguments of ``set_drops`` by the name of the setting; None leaves the drops as they are.
Settings = Mapping[str, Optional[Mapping[str, Any]]]
#: Takes a row and returns the metadata of its TREC run.
Describe = Callable[[Row], Mapping[str, Any]]


def questions_that_count(
    questions: Iterable[Question], filter: Optional[str] = None
) -> List[Question]:
    """Keep the questions that a filter names, at least one, with candidates by descending id.

    A ranker breaks ties by the order of the candidates, so that evaluation follows trec_eval's rule
    (`wqa.evaluation.trec`).
    """
    kept = filter_and_note(questions, filter) if filter else filter_questions(questions, "all")
    if not kept:
        raise OptionError("filter", f"{filter or 'all'} leaves no question", "at least one")
    return by_document_id(kept)


def rank_questions(
    ranker: Any, questions: Sequence[Question], title: str = "ranking", progress: bool = False
) -> List[Any]:
    """Rank all questions."""
    return list(with_bar(ranker.rank_all(questions), len(questions), title, progress))


def cost_of(rankings: Sequence[Any]) -> Dict[str, float]:
    """Cost of several rankings, over that of the full network."""
    costs = [ranking.cost for ranking in rankings]
    candidates = sum(cost.full_candidate_work for cost in costs)
    tokens = sum(cost.full_multiply_adds for cost in costs)
    cost = sum(cost.candidate_work for cost in costs) / candidates if candidates else 0.0
    token_cost = sum(cost.multiply_adds for cost in costs) / tokens if tokens else 0.0
    return {"cost": cost, "token_cost": token_cost}


def cost_before_stages(rankings: Sequence[Any], capabilities: Any) -> Dict[str, float]:
    """Cost of what runs before the first stage, over that of the full network.

    It is that of the texts which a ranker encodes by themselves; 0 for a ranker whose stages begin
    with its inputs.
    """
    stages = sum(capabilities.stage_layers) / capabilities.num_layers
    costs = {}
    for kind, cost in cost_of(rankings).items():
        rest = cost - stages
        costs[kind] = rest if rest > 1e-9 else 0.0  # without rounding
    return costs


def evaluate_ranker(
    ranker: Any,
    questions: Iterable[Question],
    settings: Optional[Settings] = None,
    filter: Optional[str] = None,
    metrics: Sequence[str] = METRICS,
    per_exit: bool = False,
    trec_run: str = "",
    trec_qrels: str = "",
    progress: bool = False,
    total: int = 0,
    ties: Optional[str] = None,
    describe: Optional[Describe] = None,
) -> List[Row]:
    """Evaluate a ranker at several drop settings, and after each of its exits.

    Candidates with equal scores are ranked, and dropped, by trec_eval's rule: by descending
    document id, whatever their order in ``questions``. The figures are those of the TREC run. By
    the pessimistic rule they are dropped alike, and those that tie afterwards are ranked with the
    correct ones last.

    Parameters
    ----------
    ranker : Ranker
        The ranker. It keeps the last setting that was evaluated.
    questions : iterable of Question
        Labelled questions.
    settings : mapping of str to mapping, optional
        Drop settings: keyword arguments of ``set_drops`` by their name, or None for the drops as
        they are, which is the only setting by default.
    filter : {"all", "no-all-negative", "clean"}, optional
        Which questions count; the others are not ranked. By default those with a correct
        candidate, or all with a ``total``.
    metrics : sequence of str
        Names of metrics, as `wqa.evaluation.metrics.metric` takes them.
    per_exit : bool
        Add a row for each exit on its own, with nothing dropped before it.
    trec_run : str
        TREC run to write; ``{}`` in its name is replaced by the name of the setting.
    trec_qrels : str
        TREC judgements to write.
    progress : bool
        Show a bar on standard error while ranking.
    total : int
        Number of questions of the corpus, as `wqa.evaluation.evaluate` takes it.
    ties : {"trec", "pessimistic"}, optional
        Rule for candidates that tie; the ranker's own by default, which is trec_eval's but for
        rankers of few distinct scores.
    describe : callable, optional
        Takes the row of a setting and returns the metadata of its TREC run, such as
        `wqa.evaluation.run_metadata.describe_run`.

    Returns
    -------
    list of dict
        A row for each setting: its name as ``drop_ratio``, the filter, the number of over-long
        questions that were truncated and skipped, the metrics, the costs, the seconds that ranking
        took, and ``ties`` where the rule is not trec_eval's. Questions that the ranker skips do not
        count, but are in ``trec_qrels``, so that `score_run` counts them as missing. Then the rows
        of the exits, which one pass scores: their seconds are None.

    Raises
    ------
    OptionError
        If an option does not fit, or the ranker has no exits.
    DataError
        If a candidate has no label, or the ranker skips all questions.
    QuestionTooLong
        If a question is over-long, and the ranker neither truncates nor skips it.
    """
    filter = chosen_filter(filter, total)
    judged = questions_that_count(questions, filter)
    check_total(total, len(judged), filter)
    prepared = ranker.prepare(judged)
    kept = prepared.questions
    total = total and total - prepared.skipped
    rule = ties_of(ranker, ties)
    if rule != "trec":
        hint = "" if ties else "the rule is the ranker's own"
        # Orders of exits have no scores; other programs take a run's order for the ranker's.
        for name, value in {"per_exit": per_exit, "trec_run": trec_run}.items():
            if value:
                raise OptionError("ties", f"{rule} with {name}", 'ties="trec"', hint)
    if settings is None:
        drops = itertools.chain.from_iterable(inner.drops for inner in ranker.with_inner())
        settings = {"stored" if any(drop.discards for drop in drops) else "0": None}
    if trec_run and len(settings) > 1 and "{}" not in trec_run:
        hint = "put {} in its name for the ratio"
        raise OptionError("trec_run", f"{len(settings)} drop ratios", "a file for each", hint)
    if per_exit and not ranker.capabilities.exits:
        problem = f"a ranker without exits ({ranker.capabilities.system})"
        raise OptionError("per_exit", problem, "a ranker with exits")
    for question in judged if trec_run else ():
        check_run_ids(question)
    if trec_qrels:
        write_qrels(trec_qrels, judged)
    rows = []
    for name, setting in settings.items():
        if setting is not None:
            ranker.set_drops(**setting)
        begin = time.perf_counter()
        rankings = rank_questions(ranker, kept, f"drop ratio {name}", progress)
        seconds = time.perf_counter() - begin
        figures = evaluate(rankings, kept, metrics=metrics, total=total, ties=rule)
        row = {"drop_ratio": name, "filter": filter, **figures}
        row.update({**cost_of(rankings), "seconds": seconds})
        if rule != "trec":
            row["ties"] = rule
        if trec_run:
            metadata = describe(row) if describe else None
            write_run(trec_run.replace("{}", name), kept, rankings, metadata=metadata)
        rows.append(row)
    if per_exit:
        rows += _rows_of_exits(ranker, kept, filter, metrics, progress, total)
    return [{**row, **prepared.counts} for row in rows]


def _rows_of_exits(
    ranker: Any,
    questions: Sequence[Question],
    filter: str,
    metrics: Sequence[str],
    progress: bool,
    total: int,
) -> List[Row]:
    ranker.set_drops()
    rankings = rank_questions(ranker, questions, "every exit", progress)
    capabilities = ranker.capabilities
    before = cost_before_stages(rankings, capabilities)
    rows = []
    layers = 0.0
    for index, layer in enumerate(capabilities.exits):
        orders = [ranking.order_at(index) for ranking in rankings]
        layers += capabilities.stage_layers[index]
        share = layers / capabilities.num_layers
        row: Row = {"drop_ratio": f"exit {layer}", "filter": filter}
        row.update(evaluate(orders, questions, metrics=metrics, total=total))
        row.update((kind, share + cost) for kind, cost in before.items())
        row["seconds"] = None
        rows.append(row)
    return rows


def dev_evaluator(
    questions: Sequence[Question],
    build: Callable[[Any], Any],
    live: bool = False,
    metrics: Sequence[str] = METRICS,
    progress: bool = False,
) -> Callable[[Any], Dict[str, float]]:
    """Evaluator of a network while it trains.

    Parameters
    ----------
    questions : sequence of Question
        Labelled development questions; all of them count. Candidates with equal scores are ordered
        as `evaluate_ranker` orders them.
    build : callable
        Takes the network and returns its ranker.
    live : bool
        Whether rankers read the network's current parameters at each ranking. Such a ranker is
        built once; otherwise each evaluation builds a new one.
    metrics, progress
        As `evaluate_ranker` takes them.

    Returns
    -------
    callable
        Takes the network and returns its figures: ``questions``, the metrics and, if the ranker
        has several exits, ``exit_{layer}_map`` of each exit but the last.
    """
    questions = by_document_id(questions)
    current = built_of(build, live)

    def figures_of(network: Any) -> Dict[str, float]:
        ranker = current(network)
        rankings = rank_questions(ranker, questions, "evaluating", progress)
        figures = evaluate(rankings, questions, metrics=metrics)
        for index, layer in enumerate(ranker.capabilities.exits[:-1]):
            orders = [ranking.order_at(index) for ranking in rankings]
            figures[f"exit_{layer}_map"] = evaluate(orders, questions, metrics=("map",))["map"]
        return figures

    return figures_of
