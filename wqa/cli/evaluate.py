"""Score runs on labelled questions or claims, or TREC runs against qrels, and compare them.

examples:
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio 0.3
  wqa evaluate runs/pairwise runs/cascade --data data/wikiqa/test.jsonl
  wqa evaluate wo+rr --data data/wikiqa/test.jsonl --filter all
  wqa evaluate --run run.txt --run other.txt --qrels qrels.txt

Metrics equal trec_eval's; questions without an answer are left out unless --filter or --total says
otherwise. With one RUN, each --drop-ratio and each --keep is a row of the table. Several RUNs, or
TREC runs, stand side by side, and each is compared with the first by each metric: paired t-test,
Wilcoxon's signed-rank test, the 95 % interval of the mean difference by a bootstrap over the
questions, and Spearman's rho. With --seeds, the RUNs are seeds of one system, and the table ends
with mean and deviation. Without a RUN, --run and --qrels name the TREC files to score. The ranker
rr keeps the order of the candidates in --data, that of `wqa retrieve`. hit@K is the share of
questions with a correct candidate among the first K; pbt@K and ptb@K compare with the order in
--data. A RUN may be a .json file of a sequence or an ensemble of rankers, or the name of a ranker
without training: minilm, maxsim:ENCODER, cosine:ENCODER, rr, wo, wo+rr, random:SEED, bm25. For a
RUN that labels claims, --data holds labelled claims, and the table has the accuracy and what is
predicted for each label.
"""

from __future__ import annotations

import argparse
import functools
import logging
import shlex
from typing import Any, Dict, Iterator, Sequence

from wqa.cli.options import (
    add_drops,
    add_filter,
    add_json,
    add_ranking,
    ranking_options,
    refuse,
    settings_by_name,
    show,
    values_of,
)
from wqa.cli.verify import evaluate_claims, labels_claims
from wqa.data.records import DEFAULT_FILTER, chosen_filter, note_filter
from wqa.errors import OptionError, check_range

LOGGER = logging.getLogger(__name__)

#: Options that ``--help`` explains.
FIRST = (
    "data",
    "trec_runs",
    "qrels",
    "metrics",
    "drop_rows",
    "seeds",
    "trec_run",
    "json",
    "precision",
)
#: Options of a single RUN, and of RUNs.
_OF_ONE_RUN = ("per_exit", "trec_run", "run_metadata", "trec_qrels", "total")
_OF_RUNS = (
    *("data", "drop_rows", "seeds", "ties", "pool", "pool_size", "cache", *_OF_ONE_RUN),
    *("long_questions", "long_candidates", "ctx", "precision", "engine", "threads"),
)
_FLAGS = {
    "seeds": "the RUNs are seeds of one system: mean and deviation",
    "per-exit": "add a row for each exit on its own, with nothing dropped",
    "run-metadata": "begin the TREC run with a header of ir_metadata, which says how it was made; "
    "trec_eval does not read such a run",
}
#: Figures that are shown in a line above the table.
_ABOVE = ("questions", "filter", "truncated_questions", "skipped_questions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa evaluate`` to its parser."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run directory, or another ranker")
    text = "labelled questions, JSONL, .csv, .tsv or ir:NAME"
    parser.add_argument("--data", metavar="FILE", help=text)
    keywords: Dict[str, Any] = {"action": "append", "default": [], "dest": "trec_runs"}
    parser.add_argument("--run", metavar="FILE", help="TREC run", **keywords)
    parser.add_argument("--qrels", metavar="FILE", help="TREC judgements, for --run")
    text = (
        "of map, mrr, p@K, ndcg@K, and hit@K, pbt@K, ptb@K, the P@N, PBT@N, PTB@N of the DC-BERT "
    )
    text += "paper (default: %(default)s)"
    default = "map,mrr,p@1,ndcg@10"
    parser.add_argument("--metrics", default=default, metavar="M[,M...]", help=text)
    text = (
        "candidates with equal scores: trec, by descending document id; pessimistic, the correct "
    )
    text += "ones last (default: trec, but for the baseline wo)"
    parser.add_argument("--ties", choices=("trec", "pessimistic"), help=text)
    add_filter(parser, "--filter", "", "questions to score")
    add_drops(parser, "; give it again for another row, or, with several RUNs, once for each")
    for name, text in _FLAGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    text = "questions of the corpus: those that retrieved no candidate, and so are not in --data, "
    text += "count as 0"
    parser.add_argument("--total", type=int, default=0, metavar="N", help=text)
    text = "TREC run to write; {} in its name is replaced by the drop ratio"
    parser.add_argument("--trec-run", default="", metavar="FILE", help=text)
    keywords = {"default": "", "dest": "trec_qrels", "metavar": "FILE"}
    parser.add_argument("--write-qrels", help="TREC judgements to write", **keywords)
    add_json(parser)
    add_ranking(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa evaluate`` and print a table of figures."""
    from wqa.evaluation.comparison import comparison_table
    from wqa.evaluation.metrics import metric

    metrics = [name.strip() for name in options.metrics.split(",")]
    for name in metrics:
        metric(name)
    check_range("total", options.total, 0)
    scores_trec = _scores_trec_runs(options)
    if not (scores_trec or options.seeds) and labels_claims(options.runs):
        evaluate_claims(options)
        return
    options.metrics = metrics
    options.filter = chosen_filter(options.filter, options.total)
    result: Any = (_of_trec_runs if scores_trec else _of_runs)(options)
    rows, comparisons = result, []
    if isinstance(result, dict):
        rows, comparisons = result["rows"], result["comparisons"]
    elif len(result) == 1:
        [result] = result
    _note(rows)
    show("\n\n".join([_table(rows), *map(comparison_table, comparisons)]), result, options.json)


def _scores_trec_runs(options: argparse.Namespace) -> bool:
    """Whether the options name TREC runs to score, not RUNs."""
    command = "wqa evaluate"
    if not options.runs:
        if not options.trec_runs or not options.qrels:
            raise OptionError(command, "neither RUN nor both --run and --qrels", "one or the other")
        refuse(options, _OF_RUNS, "with --run, where nothing is ranked", "a RUN")
        return True
    if options.trec_runs or options.qrels:
        hint = "with RUN, --trec-run and --write-qrels name TREC files to write"
        raise OptionError(command, "RUN with --run or --qrels", "one or the other", hint)
    if not options.data:
        raise OptionError("data", "nothing", "labelled questions to score RUN on")
    return False


def _of_trec_runs(options: argparse.Namespace) -> Any:
    from wqa.evaluation import read_qrels, read_run, score_run
    from wqa.evaluation.comparison import compare_trec_runs
    from wqa.evaluation.evaluate import filter_qrels

    qrels = read_qrels(options.qrels)
    answered, kept = (filter_qrels(qrels, name) for name in (DEFAULT_FILTER, options.filter))
    note_filter(options.filter, len(qrels), len(answered), len(kept))
    runs = [(path, read_run(path)) for path in options.trec_runs]
    if len(runs) > 1:
        return compare_trec_runs(runs, qrels, options.filter, options.metrics)
    [(_, run)] = runs
    return [{"filter": options.filter, **score_run(run, qrels, options.filter, options.metrics)}]


def _of_runs(options: argparse.Namespace) -> Any:
    from wqa.data import read_questions
    from wqa.evaluation import evaluate_ranker
    from wqa.evaluation.comparison import compare_rankers, evaluate_seeds
    from wqa.systems.load import load_ranker
    from wqa.text import naming_file

    given = values_of(options, "filter", "metrics", "ties")
    if options.seeds or len(options.runs) > 1:
        refuse(options, _OF_ONE_RUN, "with --seeds or several RUNs", "a single RUN")
        settings = options.drop_rows or [("-", {})]
        if len(settings) == 1:
            settings = settings * len(options.runs)
        if len(settings) != len(options.runs):
            problem = f"{len(settings)} for {len(options.runs)} runs"
            raise OptionError("drop_ratio and keep", problem, "one for all, or one for each")
        rankers = _load(options, settings)
        questions = list(read_questions(options.data))
        evaluation: Any = evaluate_seeds if options.seeds else compare_rankers
        with naming_file(options.data):
            return evaluation(rankers, questions, progress=True, **given)
    [run] = options.runs
    questions = list(read_questions(options.data))
    ranker = load_ranker(run, **ranking_options(options))
    with naming_file(options.data):
        return evaluate_ranker(
            ranker,
            questions,
            settings_by_name(options.drop_rows, run) or None,
            progress=True,
            describe=_description(options),
            **given,
            **values_of(options, "per_exit", "trec_run", "trec_qrels", "total"),
        )


def _description(options: argparse.Namespace) -> Any:
    """What describes the TREC run of a RUN, if it is to be described."""
    if not options.run_metadata:
        return None
    from wqa.evaluation.run_metadata import describe_run

    if not options.trec_run:
        raise OptionError("run_metadata", "without trec_run", "a TREC run to describe")
    command, settings = shlex.join(options.command_line), {"precision": options.precision}
    return functools.partial(
        describe_run, command, options.runs[0], options.data, settings=settings
    )


def _load(options: argparse.Namespace, settings: Sequence[Any]) -> Iterator[Any]:
    """Load the rankers of the RUNs one after another, each with its drops."""
    from wqa.evaluation.comparison import NamedRanker
    from wqa.systems.load import load_ranker, reads_cache

    given = ranking_options(options)
    some_read_cache = "cache" in given and any(map(reads_cache, options.runs))
    for run, (name, drops) in zip(options.runs, settings):
        own = dict(given)
        if some_read_cache and not reads_cache(run):
            del own["cache"]
        yield NamedRanker(run, load_ranker(run, **drops, **own), name)


def _table(rows: Sequence[Dict[str, Any]]) -> str:
    """Format the rows of an evaluation."""
    from wqa.evaluation import table

    first = rows[0]
    title = f"{first['questions']} questions scored, filter {first['filter']}"
    if first.get("skipped_questions"):
        title += f", {first['skipped_questions']} over-long left out"
    cells = []
    for row in rows:
        cells.append({name: value for name, value in row.items() if name not in _ABOVE})
    return f"{title}\n{table(cells)}"


def _note(rows: Sequence[Dict[str, Any]]) -> None:
    """Log which questions were cut or left out, and which of a TREC run do not count."""
    from wqa.text import note_long_questions

    for row in rows:
        if row.get("missing"):
            text = "judged questions are not in the run and are left out of the mean"
            LOGGER.warning(f"{row['missing']} {text}")
        if row.get("unjudged"):
            text = "questions of the run have no judgement and do not count"
            LOGGER.warning(f"{row['unjudged']} {text}")
    names = ("truncated_questions", "skipped_questions")
    # Runs of different lengths truncate different questions.
    note_long_questions(*(max(row.get(name, 0) for row in rows) for name in names))
