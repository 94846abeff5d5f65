"""Choose drop ratios, exits, what a sequence hands on, or weights, on development questions.

examples:
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl --max-cost 0.6
  wqa tune runs/all_layers --data data/wikiqa/dev.jsonl --place-exits 3 --min-map 0.75
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio tuned
  wqa tune runs/ensemble.json --data data/wikiqa/dev.jsonl --trials 200 --seed 0

Each candidate is scored at each exit once, and all configurations of the grid are evaluated from
these scores. configurations.tsv, pareto.tsv and figure.png are written to RUN/tune (or --out).
--max-cost picks the best configuration up to a cost relative to the full encoder, --min-map the
cheapest that reaches a MAP (from 0 to 1), --max-loss the cheapest that loses at most so much MAP
(from 0 to 1) beside the run that drops nothing. The picked configuration is timed and stored in the
run, for --drop-ratio tuned. --place-exits N uses N of the run's exits, with one ratio for those
before the last.

The cost in the table counts whole candidates of these questions; paper_cost follows from the ratios
alone.

For the .json file of a sequence, each ranker scores the candidates once, and all numbers of
candidates that a ranker may hand on, --keeps, and all shares that it may drop, --grid, are
evaluated from these scores. Costs and losses are relative to the last ranker on all candidates. The
pick is timed beside that ranker alone and stored in the file. The tables go to the file's name with
.tune in place of .json.

For the .json file of an ensemble, Optuna searches the weights of its rankers, which are stored in
the file. Each ranker scores the candidates once. The first trial has equal weights.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING, Any, Dict, List

from wqa.cli.options import (
    add_data,
    add_filter,
    add_number,
    add_ranking,
    numbers,
    ranking_options,
    refuse,
    values_of,
)
from wqa.cli.output import add_json, show
from wqa.data.records import DEFAULT_FILTER
from wqa.errors import OptionError, printable

if TYPE_CHECKING:
    from wqa.tuning import Picked, Tuning

_GRID = "0.1,0.2,0.3,0.4,0.5,0.6"
_TRIALS, _SEED = 200, 0
#: Options for the drops of a run or a sequence, and options for the weights of an ensemble.
_OF_DROPS = ("grid", "keeps", "place_exits", "max_cost", "min_metric", "max_loss", "out")
_OF_WEIGHTS = ("trials", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa tune`` to its parser."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="run directory of a cascade, or .json file of a sequence or an ensemble",
    )
    add_data(parser, "labelled development questions, JSONL, .csv or .tsv")
    parser.add_argument(
        "--metric", default="map", choices=("map", "mrr", "p@1", "ndcg@10"), help="(default: map)"
    )
    add_number(parser, "--trials", None, f"trials of an ensemble's weights (default: {_TRIALS})")
    add_number(parser, "--seed", None, f"seed of these trials (default: {_SEED})")
    _add_drop_options(parser)
    add_filter(parser, "--filter", DEFAULT_FILTER, "questions to score")
    add_json(parser)
    add_ranking(parser)


def _add_drop_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose drops of a run or a sequence, or exits of a run."""
    parser.add_argument(
        "--grid",
        metavar="A[,A...]",
        help=f"drop ratios that an exit, or a ranker of a sequence, may have (default: {_GRID}; "
        "for a sequence none beside --keeps)",
    )
    parser.add_argument(
        "--keeps",
        metavar="K[,K...]",
        help="numbers of candidates that a ranker of a sequence may keep (default: 1 to 100 in "
        "steps that grow; none beside --grid)",
    )
    text = "choose N of the run's exits instead, the last among them"
    add_number(parser, "--place-exits", None, text)
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument(
        "--max-cost",
        type=float,
        metavar="C",
        help="pick the best that costs at most C of the full encoder",
    )
    limit.add_argument(
        "--min-map",
        "--min-metric",
        dest="min_metric",
        type=float,
        metavar="M",
        help="pick the cheapest whose MAP (or --metric) is at least M, from 0 to 1",
    )
    limit.add_argument(
        "--max-loss",
        type=float,
        metavar="X",
        help="pick the cheapest that loses at most X of the MAP (or --metric) with nothing "
        "dropped, from 0 to 1",
    )
    parser.add_argument(
        "--out",
        default="",
        metavar="PATH",
        help="folder of the tables and the picture (default: RUN/tune, or SEQUENCE.tune)",
    )
    parser.add_argument(
        "--no-picture", dest="picture", action="store_false", help="leave the picture out"
    )


def run(options: argparse.Namespace) -> None:
    """Run ``wqa tune`` and print what was chosen."""
    from wqa.inference.ranker_files import is_ensemble_file, is_sequence_file

    path = pathlib.Path(options.run)
    if is_ensemble_file(path):
        expected = "a run with several exits, as a cascade has"
        refuse(options, _OF_DROPS, "with an ensemble", expected)
        if not options.picture:
            raise OptionError("picture", "with an ensemble", "no option: nothing is drawn")
        _tune_weights(options)
    elif is_sequence_file(path):
        refuse(options, _OF_WEIGHTS, "with a sequence", "the .json file of an ensemble")
        refuse(options, ("place_exits",), "with a sequence", "a run with several exits")
        _tune_sequence(options)
    else:
        refuse(options, _OF_WEIGHTS, "with a run", "the .json file of an ensemble")
        expected = "the .json file of a sequence; for a run --grid"
        refuse(options, ("keeps",), "with a run", expected)
        _tune_drops(options)


def _tune_weights(options: argparse.Namespace) -> None:
    from wqa.evaluation import table
    from wqa.text import note_long_questions
    from wqa.tuning import tune_weights

    trials = _TRIALS if options.trials is None else options.trials
    seed = _SEED if options.seed is None else options.seed
    tuned = tune_weights(
        options.run,
        options.data,
        trials,
        seed,
        progress=True,
        **values_of(options, "metric", "filter"),
        **ranking_options(options),
    )
    note_long_questions(tuned.truncated_questions, tuned.skipped_questions, options.data)
    rows: List[Dict[str, Any]] = []
    for name, weight in zip(tuned.names, tuned.weights):
        rows.append({"weight": weight, "ranker": name})
    lines = [
        f"{tuned.questions} questions, filter {options.filter}; {trials} trials, seed {seed}",
        table(rows),
        f"{options.metric} {100 * tuned.metrics[options.metric]:.2f}, with equal weights "
        f"{100 * tuned.equal[options.metric]:.2f}; stored in {printable(str(tuned.path))}",
    ]
    result = {
        "questions": tuned.questions,
        "filter": options.filter,
        "trials": trials,
        "seed": seed,
        "weights": rows,
        "metrics": tuned.metrics,
        "metrics_of_equal_weights": tuned.equal,
        "file": str(tuned.path),
    }
    show("\n".join(lines), result, options.json)


def _shared_options(options: argparse.Namespace) -> Dict[str, Any]:
    """Options for the drops of a run and of a sequence alike."""
    names = ("metric", "max_cost", "min_metric", "max_loss", "out", "picture", "filter")
    return {**values_of(options, *names), **ranking_options(options)}


def _tune_sequence(options: argparse.Namespace) -> None:
    from wqa.tuning import tune_sequence
    from wqa.tuning.configurations import as_row

    tuning = tune_sequence(
        options.run,
        options.data,
        None if options.keeps is None else numbers(options.keeps, "keeps"),
        None if options.grid is None else numbers(options.grid, "grid", float),
        progress=True,
        **_shared_options(options),
    )
    picked = ""
    if tuning.picked:
        row = as_row(tuning.picked.configuration, tuning.columns)
        drops = [f"{name} {row[name]}" for name in tuning.columns if row[name] != "-"]
        gains = _gains(tuning.picked, options.metric, "by its last ranker")
        picked = f"picked {', '.join(drops)}; {gains}"
    _show(tuning, picked, options)


def _show(tuning: Tuning, picked: str, options: argparse.Namespace) -> None:
    """Print the counts, the Pareto front and what was picked, or write them as JSON."""
    from wqa.evaluation import table
    from wqa.text import note_long_questions

    note_long_questions(tuning.truncated_questions, tuning.skipped_questions, options.data)
    lines = [
        f"{tuning.questions} questions, filter {options.filter}; "
        f"{len(tuning.configurations)} configurations in {tuning.seconds:.1f} s; "
        f"{printable(str(tuning.out))}",
        "Pareto front:",
        table(tuning.front_rows()),
    ]
    if picked:
        lines.append(picked)
    result = {"filter": options.filter, **tuning.to_dict()}
    show("\n".join(lines), result, options.json)


def _tune_drops(options: argparse.Namespace) -> None:
    from wqa.tuning import tune

    tuning = tune(
        options.run,
        options.data,
        numbers(_GRID if options.grid is None else options.grid, "grid", float),
        options.place_exits,
        progress=True,
        **_shared_options(options),
    )
    picked = ""
    if tuning.picked:
        ratios = []
        for layer, ratio in zip(tuning.exits[:-1], tuning.picked.configuration.ratios):
            if ratio:
                ratios.append(f"{layer}: {ratio:g}")
        shown = ", ".join(ratios) or "none"
        gains = _gains(tuning.picked, options.metric, "at ratio 0")
        picked = f"picked drop ratios at exits {shown}; {gains}"
    _show(tuning, picked, options)


def _gains(picked: Picked, metric: str, beside: str) -> str:
    """Figures of what was picked, and its time beside that of the full ranking."""
    configuration = picked.configuration
    full = picked.seconds_of_ratio_0
    return (
        f"{metric} {100 * configuration.metrics[metric]:.2f}, cost {configuration.cost:.3f}, "
        f"time {picked.seconds:.2f} s of {full:.2f} s {beside} ({picked.seconds / full:.3f}); "
        f"stored in {printable(str(picked.path))}"
    )
