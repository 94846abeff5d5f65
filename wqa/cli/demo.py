"""Type questions, and see how a ranker chooses among candidates.

examples:
  wqa demo
  make quickstart && wqa demo runs/quickstart --drop-ratio 0.3
  wqa demo runs/wikiqa --candidates sentences.txt --keep 20,10
  printf 'why is the sky blue ?\\n' | wqa demo runs/quickstart

Each question ranks all candidates: those of --candidates, as `wqa rank` reads them, or the
sentences of the built-in test questions, of which three are shown. For each exit the command prints
how many candidates it scores and how many it keeps, then the best candidates with their scores
(log-odds of being an answer) and the exits that scored them last, and the cost. An empty line or
the end of the input ends the command.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Iterator, List

from wqa.cli.options import add_number, add_ranking, ranking_options
from wqa.cli.output import at_the_command_line
from wqa.cli.rank import ranking_table, read_candidates
from wqa.cli.runs import add_drops, one_drop_setting
from wqa.data import builtin_path, read_questions
from wqa.errors import DataError, InputError, OptionError, printable

_PROMPT = "question: "
#: Questions that the built-in sentences answer.
EXAMPLES = (
    "why do flamingos look pink ?",
    "where do monarch butterflies spend the winter ?",
    "how does a lighthouse lens work ?",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa demo`` to its parser."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default="minilm",
        help="run directory, .json file, or a name such as wo+rr (default: minilm, untrained)",
    )
    parser.add_argument(
        "--candidates",
        metavar="FILE",
        help="candidates, one a line (default: sentences of the built-in test questions)",
    )
    add_drops(parser)
    add_number(parser, "--top-k", 5, "show the first K only", "K")
    add_ranking(parser, with_cache=False, long_questions=("error", "truncate"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa demo`` until its input ends."""
    if options.top_k < 1:
        raise OptionError("top_k", options.top_k, "a whole number from 1")
    if options.candidates == "-":
        raise OptionError(
            "candidates", "standard input", "a file, as the questions come from standard input"
        )
    candidates = read_candidates(options.candidates) if options.candidates else builtin_sentences()
    setting = one_drop_setting(options.drops)
    from wqa.systems.load import load_ranker

    ranker = load_ranker(options.run, **setting.arguments, **ranking_options(options))
    print(f"{len(candidates):,} candidates; an empty line ends")
    if not options.candidates:
        print("they answer, for example:", *EXAMPLES, sep="\n  ")
    for question in questions():
        if not sys.stdin.isatty():
            print(f"\n{_PROMPT}{printable(question)}")
        try:
            ranking = ranker.rank(question, candidates, options.top_k, return_documents=True)
        except InputError as error:  # such as a question that is too long: the next one may fit
            print(f"error: {at_the_command_line(error, options.parser)}", file=sys.stderr)
            continue
        print("\n".join(kept_lines(ranking, ranker.capabilities)))
        print(ranking_table(ranking.to_dicts(), ranking.cost.relative), flush=True)


def builtin_sentences() -> List[str]:
    """Candidates of the built-in test questions."""
    sentences = {}
    for question in read_questions(builtin_path("test")):
        sentences.update(dict.fromkeys(question.texts))
    return list(sentences)


def questions() -> Iterator[str]:
    """Read questions, with a prompt where a person types them."""
    if sys.stdin is None:
        raise DataError("standard input", "it is closed", "questions, one a line")
    number = 0
    while True:
        number += 1
        line = _typed() if sys.stdin.isatty() else _piped(number)
        if not line.strip():
            return
        yield line.strip()


def _typed() -> str:
    """A line that a person types; empty at the end of the input."""
    try:
        return input(_PROMPT)
    except EOFError:
        print()
        return ""
    except UnicodeDecodeError:
        raise DataError("standard input", "a line is not UTF-8", "UTF-8 text") from None


def _piped(number: int) -> str:
    """A line of a pipe or a file; empty at its end."""
    try:
        return sys.stdin.buffer.readline().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"standard input, line {number}",
            f"byte {error.start} is not UTF-8",
            "UTF-8 text",
            "convert it, for example with iconv",
        ) from None


def kept_lines(ranking: Any, capabilities: Any) -> List[str]:
    """Describe how many candidates each stage of a ranker scores and keeps."""
    counts = ranking.scored_by_stage.tolist()
    lines = []
    for index, (scored, kept) in enumerate(zip(counts, [*counts[1:], counts[-1]])):
        name = f"stage {index + 1}"
        if capabilities.exits:
            name = f"exit {capabilities.exits[index]}"
        lines.append(f"{name:>9}: {scored:6,} scored, {kept:6,} kept")
    return lines
