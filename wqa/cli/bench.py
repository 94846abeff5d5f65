"""Time ranking at several drop ratios.

examples:
  wqa bench runs/wikiqa --data data/wikiqa/test.jsonl
  wqa bench --random bert_12_768_12 --num-candidates 400 --tokens 20-60
  wqa bench --random albert_12_768_12,roberta_12_768_12 --system pairwise --num-candidates 128
  wqa bench --random electra_12_768_12 --system mhs --num-candidates 128 --tokens 128 \\
      --beside electra_12_768_12 --beside electra_12_768_12,electra_12_768_12,electra_12_768_12
  wqa bench runs/wikiqa --data data/wikiqa/test.jsonl --latency 200

Each round runs each drop ratio once, so that changes of the machine's speed affect all ratios. The
table holds medians over the rounds: seconds, and seconds over those of ratio 0 in the same round;
deviation is that of the seconds over the rounds. cost counts each candidate alike, token_cost
weights candidates by their tokens; both are over the cost of the full encoder.

--random needs no run: it times a system on an encoder of a named shape with random weights, on
random candidates, in int8 after a calibration on random pairs. --system and the options of the
system, as `wqa train SYSTEM` takes them, say which network it is. Several shapes make an ensemble
of such systems. With --beside, rankers take turns in each round, in place of drop ratios.

For a system that encodes documents apart from questions, --tokens is the length of a document.

--latency N ranks N questions one by one, from text to ranking. The table holds the median and the
99th percentile of the milliseconds, and those of the first call, which compiles.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from wqa.cli.options import add_number, add_ranking, fields_of, numbers, ranking_options
from wqa.cli.output import add_json, show
from wqa.cli.runs import add_drops, settings_by_name
from wqa.cli.systems import HelpWithOwnOptions, own_options
from wqa.config import BACKBONES, BackboneConfig, EngineConfig
from wqa.errors import OptionError, check_choice, shorten

_MOST = 10**6  # candidates of a random question
_SYSTEM, _MONOLITHIC = "cascade", "pairwise"
_DEFAULT = [("drop_ratio", ratio) for ratio in ("0", "0.3", "0.4", "0.5")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa bench`` to its parser."""
    parser.add_argument(
        "-h", "--help", action=HelpWithOwnOptions, nargs=0, help="show this message and exit"
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="run directory")
    parser.add_argument("--data", metavar="FILE", help="questions to rank, JSONL, .csv or .tsv")
    add_drops(parser, "; give it once for each row; 0, 0.3, 0.4 and 0.5 by default")
    add_number(parser, "--rounds", 5, "rounds that count, after one to warm up")
    parser.add_argument(
        "--latency",
        dest="count",
        type=int,
        metavar="N",
        help="time N questions one by one instead",
    )
    _add_random(parser)
    add_json(parser)
    add_ranking(parser)


def _add_random(parser: argparse.ArgumentParser) -> None:
    """Add the options of rankers with random weights."""
    parser.add_argument(
        "--random",
        metavar="SHAPE[,SHAPE...]",
        help="encoder with random weights, several for an ensemble: " + ", ".join(BACKBONES),
    )
    parser.add_argument(
        "--system",
        default=_SYSTEM,
        metavar="SYSTEM",
        help=f"system on that encoder, as `wqa train` takes it (default: {_SYSTEM})",
    )
    add_number(parser, "--num-candidates", 400, "candidates of a question, with --random", "K")
    parser.add_argument(
        "--tokens",
        default="20-60",
        metavar="A-B",
        help="lengths of pairs, with --random (default: 20-60)",
    )
    parser.add_argument(
        "--question-tokens",
        default="16-20",
        metavar="A-B",
        help="lengths of questions, with --random and a system that encodes candidates apart from "
        "them (default: 16-20)",
    )
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="SHAPE[,SHAPE...]",
        help="monolithic ranker with random weights, or an ensemble of them, to time in turn with "
        "--random; give it once for each row",
    )
    add_number(parser, "--seed", 0, "seed of --random")


class _Work(NamedTuple):
    """A ranker and the questions to time it on."""

    ranker: Any
    questions: List[Any]
    rank: Any = None
    beside: Mapping[str, Any] = {}


def run(options: argparse.Namespace) -> None:
    """Run ``wqa bench`` and print a table of times."""
    from wqa.evaluation import table

    given = settings_by_name(options.drops, options.run or "")
    _check_beside(options)
    work = _random(options) if options.random else _of_run(options)
    if work.beside:
        from wqa.inference.timing import time_rankers

        ranks = {f"{options.random} {options.system}": work.rank, **work.beside}
        rows = time_rankers(ranks, work.questions, options.rounds, progress=True)
    else:
        rows = _time(options, work, _settings(given, work.ranker))
    show(table(rows), rows, options.json)


def _check_beside(options: argparse.Namespace) -> None:
    """Refuse options that do not apply where rankers take turns."""
    if options.beside:
        if not options.random:
            raise OptionError("beside", "without --random", "random weights")
        if options.count is not None or options.drops:
            raise OptionError("beside", "with --latency, --drop-ratio or --keep", "none of them")
        names = [f"{options.random} {options.system}"]
        for shapes in options.beside:
            names.append(f"{shapes} {_MONOLITHIC}")
        if len(set(names)) < len(names):
            raise OptionError("beside", "one ranker twice", "each ranker once")


def _time(
    options: argparse.Namespace, work: _Work, settings: Dict[str, Dict[str, Any]]
) -> List[Dict[str, Any]]:
    from wqa.inference.timing import time_latency, time_rankings

    ranker, questions, rank = work[:3]
    if options.count is not None:
        return time_latency(ranker, questions, settings, options.count, rank, progress=True)
    return time_rankings(ranker, questions, settings, options.rounds, rank, progress=True)


def _settings(given: Dict[str, Dict[str, Any]], ranker: Any) -> Dict[str, Dict[str, Any]]:
    """Settings by name; the first is ratio 0, with which the rest are compared."""
    settings = dict(given)
    if not settings and ranker.capabilities.stages > 1:
        settings = settings_by_name(_DEFAULT, "")
    zero = settings.pop("0", {"drop_ratio": 0.0})
    return {"0": zero, **settings}


def _of_run(options: argparse.Namespace) -> _Work:
    from wqa.data import read_questions
    from wqa.systems.load import load_ranker
    from wqa.text import note_long_questions

    if not options.run or not options.data:
        raise OptionError("wqa bench", "neither RUN with --data nor --random", "one or the other")
    for name in ("system", *own_options(options.parser, options.system)):
        if getattr(options, name) != options.parser.get_default(name):
            raise OptionError(name, "with RUN, whose network is known", "it with random")
    questions = list(read_questions(options.data))
    if not questions:
        raise OptionError("data", f"{options.data}, which has no question", "at least one")
    ranker = load_ranker(options.run, **ranking_options(options))
    prepared = ranker.prepare(questions)
    note_long_questions(prepared.truncated, prepared.skipped, options.data)
    return _Work(ranker, prepared.questions)


def _random(options: argparse.Namespace) -> _Work:
    from wqa.systems.random import random_questions, random_splits
    from wqa.systems.registry import find_system

    if options.run or options.data:
        raise OptionError("random", "with RUN or --data", "one or the other")
    if options.cache:
        raise OptionError("cache", "with --random", "RUN", "a cache of random documents is made")
    own = fields_of(options, find_system(options.system).network_type().Config)
    besides = [_configs("beside", shapes) for shapes in options.beside]
    configs = _configs("random", options.random)
    ranker = _random_ranker(options, configs, options.system, own)
    others = {}
    for shapes, shape_configs in zip(options.beside, besides):
        other = _random_ranker(options, shape_configs, _MONOLITHIC, {})
        others[f"{shapes} {_MONOLITHIC}"] = other.rank_pairs
    vocab_size = min(config.vocab_size for config in sum(besides, configs))
    if not 1 <= options.num_candidates <= _MOST:
        raise OptionError("num_candidates", options.num_candidates, f"1 to {_MOST}")
    if options.seed < 0:
        raise OptionError("seed", options.seed, "a whole number from 0")
    count, candidates = min(options.count or 1, 20), options.num_candidates
    lengths = _lengths(options.tokens, "tokens")
    if any(not inner.inputs.joins_pairs for inner in ranker.capabilities.rankers):
        problem = f"several shapes with --system {options.system}"
        raise OptionError("random", problem, "one shape with this system")
    if ranker.inputs is not None and not ranker.inputs.joins_pairs:
        of_questions = _lengths(options.question_tokens, "question_tokens")
        for name, (_, longest) in (("tokens", lengths), ("question_tokens", of_questions)):
            most = ranker.inputs.max_length
            if longest > most:
                raise OptionError(
                    name, longest, f"at most {most}, which the system reads of a text"
                )
        splits = random_splits(count, candidates, of_questions, lengths, vocab_size, options.seed)
        beside = {name: _joining(rank) for name, rank in others.items()}
        return _Work(ranker, splits, ranker.rank_pairs, beside)
    questions = random_questions(count, candidates, lengths, vocab_size, options.seed)
    return _Work(ranker, questions, ranker.rank_pairs, others)


def _joining(rank: Any) -> Any:
    """Rank questions and documents, which are encoded apart, as one input each."""
    from wqa.systems.random import joined

    return lambda group: rank([[joined(pair) for pair in pairs] for pairs in group])


def _configs(option: str, shapes: str) -> List[BackboneConfig]:
    """Encoders of the shapes that an option names."""
    names = shapes.split(",")
    for name in names:
        check_choice(option, name, BACKBONES)
    return [BACKBONES[name] for name in names]


def _lengths(text: str, option: str) -> Tuple[int, int]:
    low, _, high = text.partition("-")
    shortest, longest = numbers(f"{low},{high or low}", option)
    if not 4 <= shortest <= longest <= 512:
        raise OptionError(option, shorten(text), "lengths from 4 to 512, as 20-60")
    return shortest, longest


def _random_ranker(
    options: argparse.Namespace, configs: List[BackboneConfig], system: str, own: Dict[str, Any]
) -> Any:
    """A system on an encoder, or an ensemble of that system on several."""
    from wqa.systems.random import random_ensemble, random_ranker

    engine = ranking_options(options)
    del engine["long_questions"]  # no text is tokenized
    pool = {name: engine.pop(name) for name in ("pool", "pool_size")}
    build: Dict[str, Any] = {"seed": options.seed, "system": system, "own": own, **pool}
    build["engine"] = EngineConfig(**engine)
    if len(configs) == 1:
        return random_ranker(configs[0], **build)
    return random_ensemble(configs, **build)
