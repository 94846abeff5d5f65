"""Choose drop ratios, what a sequence hands on, or weights, on development questions.

examples:
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl --max-cost 0.6
  wqa tune runs/sequence.json --data data/wikiqa/dev.jsonl --max-loss 0
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio tuned
  wqa tune runs/ensemble.json --data data/wikiqa/dev.jsonl --trials 200 --seed 0

Each candidate is scored at each exit once, and all configurations of the grid are evaluated from
these scores. configurations.tsv and pareto.tsv are written to RUN/tune (or --out).
--max-cost picks the best configuration up to a cost relative to the full encoder, --max-loss the
cheapest that loses at most so much MAP (from 0 to 1) beside the run that drops nothing. The picked
configuration is stored in the run, for --drop-ratio tuned.

The cost in the table counts whole candidates of these questions; paper_cost follows from the ratios
alone.

For the .json file of a sequence, each ranker scores the candidates once, and --grid is the numbers
of candidates that a ranker may hand on. Costs and losses are relative to the last ranker on all
candidates. The pick is stored in the file. The tables go to the file's name with .tune in place of
.json.

For the .json file of an ensemble, Optuna searches the weights of its rankers, which are stored in
the file. Each ranker scores the candidates once. The first trial has equal weights.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, Tuple

from wqa.cli.options import (
    add_choice,
    add_data,
    add_filter,
    add_json,
    add_number,
    add_ranking,
    numbers,
    ranking_options,
    refuse,
    show,
    values_of,
)
from wqa.data.records import DEFAULT_FILTER
from wqa.errors import printable

#: Options for the drops of a run or a sequence, and options for the weights of an ensemble.
_OF_DROPS = ("grid", "max_cost", "max_loss", "out")
_OF_WEIGHTS = ("trials", "seed")
#: Rows of a Pareto front that are shown, both ends included.
_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa tune`` to its parser."""
    text = "run directory of a cascade, or .json file of a sequence or an ensemble"
    parser.add_argument("run", metavar="RUN", help=text)
    add_data(parser, "labelled development questions, JSONL, .csv or .tsv")
    add_choice(parser, "--metric", ("map", "mrr", "p@1", "ndcg@10"), "metric that counts")
    add_number(parser, "--trials", 200, "trials of an ensemble's weights")
    add_number(parser, "--seed", 0, "seed of these trials")
    text = "drop ratios that an exit may have (default: 0.1 to 0.6), or numbers of candidates that "
    text += "a ranker of a sequence may keep (default: 1 to 100 in steps that grow)"
    parser.add_argument("--grid", metavar="A[,A...]", help=text)
    limit = parser.add_mutually_exclusive_group()
    keywords: Dict[str, Any] = {"type": float, "metavar": "X"}
    text = "pick the best that costs at most X of the full encoder"
    limit.add_argument("--max-cost", help=text, **keywords)
    text = "pick the cheapest that loses at most X of the MAP (or --metric) with nothing dropped"
    limit.add_argument("--max-loss", help=text, **keywords)
    text = "folder of the tables (default: RUN/tune, or SEQUENCE.tune)"
    parser.add_argument("--out", default="", metavar="PATH", help=text)
    add_filter(parser, "--filter", DEFAULT_FILTER, "questions to score")
    add_json(parser)
    add_ranking(parser, with_windows=False)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa tune`` and print what was chosen."""
    from wqa.data.probe import ranker_file_kind
    from wqa.evaluation.reliability import note_few_questions
    from wqa.text import note_long_questions

    if ranker_file_kind(options.run) == "ensemble":
        expected = "a run with several exits, as a cascade has"
        refuse(options, _OF_DROPS, "with an ensemble", expected)
        tuned, chosen, lines, result = _tune_weights(options)
    else:
        refuse(options, _OF_WEIGHTS, "with a run or a sequence", "the .json file of an ensemble")
        tuned, chosen, lines, result = _tune_drops(options)
    note_long_questions(tuned.truncated_questions, tuned.skipped_questions, options.data)
    if chosen is not None:
        note_few_questions(tuned.questions, **{options.metric: chosen.metrics[options.metric]})
    show("\n".join(lines), result, options.json)


def _tune_drops(options: argparse.Namespace) -> Tuple[Any, Any, List[str], Dict[str, Any]]:
    """Result of tuning drops, what was picked, and both as text and in types of JSON."""
    from wqa.evaluation import table
    from wqa.tuning import tune

    tuning = tune(
        options.run,
        options.data,
        None if options.grid is None else numbers(options.grid, "grid", float),
        progress=True,
        **values_of(options, "metric", "max_cost", "max_loss", "out", "filter"),
        **ranking_options(options),
    )
    result = {"filter": options.filter, **tuning.to_dict()}
    front = tuning.front
    if len(front) > _ROWS:
        front = [front[index * (len(front) - 1) // (_ROWS - 1)] for index in range(_ROWS)]
    lines = [
        f"{tuning.questions} questions, filter {options.filter}; "
        f"{len(tuning.configurations)} configurations; {printable(str(tuning.out))}",
        "Pareto front:",
        table([configuration.row(tuning.columns) for configuration in front]),
    ]
    row = result["picked"]
    if row:
        drops = ", ".join(f"{name} {row[name]}" for name in tuning.columns)
        metric = f"{options.metric} {100 * row[options.metric]:.2f}"
        cost = f"{100 * row['cost']:.2f}"
        lines.append(f"picked {drops}; {metric}, cost {cost}; stored in {printable(row['file'])}")
    return tuning, tuning.picked, lines, result


def _tune_weights(options: argparse.Namespace) -> Tuple[Any, Any, List[str], Dict[str, Any]]:
    """Result of tuning weights, which are chosen, and both as text and in types of JSON."""
    from wqa.evaluation import table
    from wqa.tuning import tune_weights

    search = values_of(options, "trials", "seed", "metric", "filter")
    given = {**search, **ranking_options(options)}
    tuned = tune_weights(options.run, options.data, progress=True, **given)
    del search["metric"]
    result = {**search, **tuned.to_dict()}
    lines = [
        f"{tuned.questions} questions, filter {options.filter}; {options.trials} trials, seed "
        f"{options.seed}",
        table(result["weights"]),
        f"{options.metric} {100 * tuned.metrics[options.metric]:.2f}, with equal weights "
        f"{100 * tuned.equal[options.metric]:.2f}; stored in {printable(str(tuned.path))}",
    ]
    return tuned, tuned, lines, result
