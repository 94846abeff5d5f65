"""What each ranker of a sequence hands on, chosen on development questions.

A cheap ranker may stand before an expensive one (Bonadiman and Moschitti 2020, section 5.4;
Soldaini and Moschitti 2020, section 3.2). Each ranker scores the questions once; all numbers of
candidates to keep are evaluated from these scores.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import time
from typing import (
    Any,
    Callable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from wqa.config import read_json
from wqa.data import DEFAULT_FILTER, Question, read_questions
from wqa.errors import OptionError, shorten
from wqa.evaluation import evaluate
from wqa.evaluation.picture import check_matplotlib
from wqa.evaluation.rankers import questions_that_count, rank_questions
from wqa.inference.dropping import Drop, total
from wqa.inference.ranker import Ranker
from wqa.inference.ranker_files import is_sequence_file
from wqa.inference.ranking import Ranking
from wqa.inference.sequential import SequentialRanker
from wqa.inference.timing import time_rankers
from wqa.io.files import PathLike, write_json
from wqa.io.locks import lock_output
from wqa.io.progress import with_bar
from wqa.systems.load import load_ranker
from wqa.tuning.configurations import (
    GRID,
    Configuration,
    check_grid,
    check_limits,
    pick,
    write_front,
)
from wqa.tuning.replay import ReplayedRanker
from wqa.tuning.run import Picked, Tuning, chosen_by, tuning_record

#: Numbers of candidates that a ranker of a sequence may keep, by default.
KEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
#: Number of timed turns of the picked sequence and of its last ranker; medians count.
TURNS = 3


def tune_sequence(
    run: PathLike,
    data: PathLike,
    keeps: Optional[Sequence[int]] = None,
    grid: Optional[Sequence[float]] = None,
    metric: str = "map",
    max_cost: Optional[float] = None,
    min_metric: Optional[float] = None,
    max_loss: Optional[float] = None,
    out: PathLike = "",
    picture: bool = True,
    filter: str = DEFAULT_FILTER,
    progress: bool = False,
    **options: Any,
) -> Tuning:
    """Choose what each ranker of a sequence but the last keeps or drops.

    Each ranker scores each candidate once, if the score does not depend on other candidates. All
    configurations are evaluated, that which drops nothing among them, and written to
    ``configurations.tsv``, ``pareto.tsv`` and ``figure.png``. With a limit, a configuration is
    picked, timed beside the last ranker alone, and stored in the file of the sequence.

    Parameters
    ----------
    run : str or path-like
        ``.json`` file of a sequence of at least two rankers.
    data : str or path-like
        Labelled development questions, canonical JSONL.
    keeps : sequence of int, optional
        Numbers of candidates that a ranker may keep. Numbers that no question exceeds are left out,
        as they drop nothing.
    grid : sequence of float, optional
        Drop ratios that a ranker may have instead. Without either, the choice is among `KEEPS` and
        `wqa.tuning.GRID`.
    metric : {"map", "mrr", "p@1", "ndcg@10"}
        Metric by which configurations are compared.
    max_cost : float, optional
        Pick the best configuration up to this cost, relative to the last ranker on all candidates.
    min_metric : float, optional
        Pick the cheapest configuration whose metric is at least this, from 0 to 1.
    max_loss : float, optional
        Pick the cheapest configuration whose metric is at most this much below that of the last
        ranker on all candidates.
    out : str or path-like
        Folder of the tables and the picture; by default the file's name with ``.tune`` in place of
        ``.json``.
    picture : bool
        Whether to draw the picture, which needs matplotlib.
    filter : {"all", "no-all-negative", "clean"}
        Filter of questions.
    progress : bool
        Show bars on standard error.
    **options
        Further parameters of `wqa.load_ranker`.

    Returns
    -------
    Tuning
        All configurations, their Pareto front, and the picked one.

    Raises
    ------
    OptionError
        If an option does not fit, ``run`` is no sequence of at least two rankers, or no
        configuration keeps the limit.
    DataError
        If a candidate has no label, or all questions are over-long and skipped.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    MissingDependency
        If matplotlib is not installed, and a picture is wanted.
    OutputLocked
        If another process writes to the file or the folder.
    """
    limits = check_limits({"max_cost": max_cost, "min_metric": min_metric, "max_loss": max_loss})
    choices = _choices(keeps, grid)
    if picture:
        check_matplotlib()
    path = pathlib.Path(run)
    if not is_sequence_file(path):
        raise OptionError("run", f"{run}, no file of a sequence", 'a .json file with "rankers"')
    judged = questions_that_count(read_questions(data), filter)
    folder = pathlib.Path(out or path.with_suffix(".tune"))
    with contextlib.ExitStack() as locks:
        for output in sorted({path.resolve(), folder.resolve()}):
            locks.enter_context(lock_output(output))
        ranker = load_ranker(path, **options)
        rankers = ranker.capabilities.rankers
        if len(rankers) < 2:
            raise OptionError("run", f"{run}, a sequence of one ranker", "at least two rankers")
        prepared = ranker.prepare(judged)
        questions = prepared.questions
        replayed = SequentialRanker([ReplayedRanker(inner, questions) for inner in rankers])
        rank_questions(replayed, questions, "scoring", progress)
        begin = time.perf_counter()
        drops = _grid(choices, len(rankers) - 1, questions)
        configurations = []
        for values in with_bar(drops, len(drops), "evaluating", progress, "configuration"):
            configurations.append(_evaluate(replayed, questions, values))
        seconds = time.perf_counter() - begin
        columns = _columns(len(rankers) - 1, choices)
        marked = {"nothing dropped": configurations[-1]} if picture else None
        front = write_front(folder, configurations, metric, columns, marked)
        picked = None
        if limits:
            configuration = pick(configurations, metric, **limits)
            record = tuning_record(chosen_by(metric, limits), data, filter, prepared)
            picked = _stored(path, ranker, questions, configuration, record, progress)
    return Tuning(
        (),
        len(questions),
        seconds,
        configurations,
        front,
        folder,
        picked,
        prepared.truncated,
        prepared.skipped,
        columns,
    )


def _choices(keeps: Optional[Sequence[int]], grid: Optional[Sequence[float]]) -> List[Drop]:
    """What each ranker may drop, numbers to keep first, each kind in ascending order."""
    if keeps is None and grid is None:
        keeps, grid = KEEPS, GRID
    numbers = () if keeps is None else tuple(keeps)
    for number in numbers:
        if type(number) is not int or number < 1:
            raise OptionError("keeps", shorten(number), "whole numbers above 0")
    if not numbers and grid is None:
        raise OptionError("keeps", "nothing", "at least one number of candidates")
    choices = [Drop(keep=number) for number in sorted(set(numbers))]
    for ratio in () if grid is None else check_grid(grid):
        choices.append(Drop(ratio))
    return choices


def _grid(
    choices: Sequence[Drop], stages: int, questions: Sequence[Question]
) -> List[Tuple[Drop, ...]]:
    """What each configuration drops; the last one drops nothing."""
    most = max(len(question.candidates) for question in questions)
    drops = [drop for drop in choices if drop.discards and drop.keep < most]
    return list(itertools.product((*drops, Drop()), repeat=stages))


def _evaluate(
    sequence: SequentialRanker, questions: Sequence[Question], drops: Sequence[Drop]
) -> Configuration:
    """Cost and metrics of one configuration."""
    ratios = (*(drop.ratio for drop in drops), 0.0)
    keep = tuple(drop.keep for drop in drops)
    configuration = Configuration(ratios, 0.0, 0.0, {}, keep)
    sequence.set_drops(**configuration.stored())
    rankings = list(sequence.rank_all(questions))
    figures = evaluate(rankings, questions)
    del figures["questions"]
    cost = total([ranking.cost for ranking in rankings])
    return Configuration(ratios, cost.relative, cost.paper, figures, keep)


def _columns(stages: int, choices: Sequence[Drop]) -> Tuple[str, ...]:
    """Names of the columns for the drops: of both kinds for each ranker, or of one."""
    kinds = []
    if any(drop.keep for drop in choices):
        kinds.append("keep")
    if not all(drop.keep for drop in choices):
        kinds.append("drop_ratio")
    return tuple(f"{kind}_{number}" for number in range(1, stages + 1) for kind in kinds)


def _stored(
    path: pathlib.Path,
    ranker: Ranker,
    questions: Sequence[Question],
    configuration: Configuration,
    record: Mapping[str, Any],
    progress: bool,
) -> Picked:
    """Time a configuration beside the last ranker alone, and write it."""
    drops = configuration.stored()
    ranker.set_drops(**drops)
    last = ranker.capabilities.rankers[-1]
    ranks = {"last": _rank_all(last), "sequence": _rank_all(ranker)}
    alone, tuned = time_rankers(ranks, questions, TURNS, progress)
    times = {"seconds": tuned["seconds"], "seconds_of_ratio_0": alone["seconds"]}
    values = read_json(path)
    for name in ("drop_ratio", "keep"):
        values.pop(name, None)
    values.update(drops)
    values["tuned"] = {
        "cost": configuration.cost,
        "paper_cost": configuration.paper_cost,
        "metrics": configuration.metrics,
        **record,
        **times,
    }
    write_json(path, values)
    return Picked(configuration, path=path, **times)


def _rank_all(ranker: Ranker) -> Callable[[Sequence[Question]], List[Ranking]]:
    return lambda questions: list(ranker.rank_all(questions))
