"""Choose a cascade's drop ratios or exits, or an ensemble's weights, on development questions.

examples:
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl --max-cost 0.6
  wqa tune runs/all_layers --data data/wikiqa/dev.jsonl --place-exits 3 --min-map 0.75
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio tuned
  wqa tune runs/ensemble.json --data data/wikiqa/dev.jsonl --trials 200 --seed 0

Each candidate is scored at each exit once, and all configurations of the grid are evaluated from
these scores. configurations.tsv, pareto.tsv and figure.png are written to RUN/tune (or --out).
--max-cost picks the best configuration up to a cost relative to the full encoder, --min-map the
cheapest that reaches a MAP (from 0 to 1). The picked configuration is timed and stored in the run,
for --drop-ratio tuned. --place-exits N uses N of the run's exits, with one ratio for those before
the last.

The cost in the table counts whole candidates of these questions; paper_cost follows from the ratios
alone.

For the .json file of an ensemble, Optuna searches the weights of its rankers, which are stored in
the file. Each ranker scores the candidates once. The first trial has equal weights.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from wqa.cli.options import (
    add_filter,
    add_long_questions,
    add_ranking,
    numbers,
    ranking_options,
)
from wqa.errors import OptionError, printable

if TYPE_CHECKING:
    from wqa.tuning import TunedWeights, Tuning

_GRID = "0.1,0.2,0.3,0.4,0.5,0.6"
_TRIALS, _SEED = 200, 0
#: Options for the drop ratios of a run, and options for the weights of an ensemble.
_OF_DROPS = ("grid", "place_exits", "max_cost", "min_metric", "out")
_OF_WEIGHTS = ("trials", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa tune`` to its parser."""
    parser.add_argument(
        "run", metavar="RUN", help="run directory of a cascade, or .json file of an ensemble"
    )
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="labelled development questions, canonical JSONL",
    )
    parser.add_argument(
        "--metric", default="map", choices=("map", "mrr", "p@1", "ndcg@10"), help="(default: map)"
    )
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help=f"trials of an ensemble's weights (default: {_TRIALS})",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help=f"seed of these trials (default: {_SEED})"
    )
    _add_drop_options(parser)
    add_filter(parser, "--filter", "no-all-negative", "questions to score")
    add_ranking(parser)
    add_long_questions(parser)


def _add_drop_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose drop ratios or exits of a run."""
    parser.add_argument(
        "--grid",
        metavar="A[,A...]",
        help=f"drop ratios that an exit may have (default: {_GRID})",
    )
    parser.add_argument(
        "--place-exits",
        type=int,
        metavar="N",
        help="choose N of the run's exits instead, the last among them",
    )
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
    parser.add_argument(
        "--out",
        default="",
        metavar="PATH",
        help="folder of the tables and the picture (default: RUN/tune)",
    )
    parser.add_argument(
        "--no-picture", dest="picture", action="store_false", help="leave the picture out"
    )


def run(options: argparse.Namespace) -> None:
    """Run ``wqa tune`` and print what was chosen."""
    from wqa.inference.ranker_files import is_ensemble_file

    if is_ensemble_file(pathlib.Path(options.run)):
        _refuse(options, _OF_DROPS, "an ensemble", "a run with several exits, as a cascade has")
        if not options.picture:
            raise OptionError("picture", "with an ensemble", "no option: nothing is drawn")
        _tune_weights(options)
    else:
        _refuse(options, _OF_WEIGHTS, "a run", "the .json file of an ensemble")
        _tune_drops(options)


def _refuse(options: argparse.Namespace, names: Sequence[str], kind: str, expected: str) -> None:
    """Refuse options that do not apply to a kind of run."""
    for name in names:
        if getattr(options, name) not in (None, ""):
            raise OptionError(name, f"with {kind}", expected)


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
        options.metric,
        options.filter,
        progress=True,
        **ranking_options(options),
    )
    note_long_questions(tuned.truncated_questions, tuned.skipped_questions, options.data)
    print(f"{tuned.questions} questions, filter {options.filter}; {trials} trials, seed {seed}")
    rows: List[Dict[str, Any]] = []
    for name, weight in zip(tuned.names, tuned.weights):
        rows.append({"weight": weight, "ranker": name})
    print(table(rows))
    print(_gain(tuned, options.metric))


def _gain(tuned: TunedWeights, metric: str) -> str:
    return (
        f"{metric} {100 * tuned.metrics[metric]:.2f}, with equal weights "
        f"{100 * tuned.equal[metric]:.2f}; stored in {printable(str(tuned.path))}"
    )


def _tune_drops(options: argparse.Namespace) -> None:
    from wqa.evaluation import table
    from wqa.text import note_long_questions
    from wqa.tuning import tune

    tuning = tune(
        options.run,
        options.data,
        numbers(_GRID if options.grid is None else options.grid, "grid", float),
        options.place_exits,
        options.metric,
        options.max_cost,
        options.min_metric,
        options.out,
        options.picture,
        options.filter,
        progress=True,
        **ranking_options(options),
    )
    note_long_questions(tuning.truncated_questions, tuning.skipped_questions, options.data)
    print(
        f"{tuning.questions} questions, filter {options.filter}; "
        f"{len(tuning.configurations)} configurations in {tuning.seconds:.1f} s; "
        f"{printable(str(tuning.out))}"
    )
    print("Pareto front:")
    print(table(tuning.front_rows()))
    if tuning.picked:
        print(_pick(tuning, options.metric))


def _pick(tuning: Tuning, metric: str) -> str:
    picked = tuning.picked
    assert picked is not None
    configuration = picked.configuration
    ratios = []
    for layer, ratio in zip(tuning.exits[:-1], configuration.ratios):
        if ratio:
            ratios.append(f"{layer}: {ratio:g}")
    full = picked.seconds_of_ratio_0
    return (
        f"picked drop ratios at exits {', '.join(ratios) or 'none'}; "
        f"{metric} {100 * configuration.metrics[metric]:.2f}, cost {configuration.cost:.3f}, "
        f"time {picked.seconds:.2f} s of {full:.2f} s at ratio 0 ({picked.seconds / full:.3f}); "
        f"stored in {printable(str(picked.path))}"
    )
