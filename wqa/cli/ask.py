"""Answer questions from a collection by the sentences of its documents.

examples:
  wqa ask docs/ --question "how are glacier caves formed ?"
  wqa ask indexes/docs --ranker minilm --question "how are glacier caves formed ?"
  wqa ask indexes/docs --ranker runs/wikiqa --drop-ratio 0.3 --precision int8 --verbose \\
      --question "how are glacier caves formed ?"
  wqa ask indexes/squad --ranker runs/wikiqa --data dev.questions.jsonl --json figures.json

INDEX is a folder that `wqa index` wrote with sentences, or what it reads: a folder of .txt, .md and
.html files, a table or JSONL, which is then indexed for this command alone. --top documents are
retrieved, and the ranker, any RUN that `wqa rank` takes, puts all their sentences in order. The
table shows the first --n-best, each between the sentences around it in its document. "no answer
found" is in its place where the relevance of the first is below the threshold that `wqa calibrate`
stored in the run, or below --threshold. With --data, whose questions hold their answers, the
figures are hit@N, the share of questions of which an answer is in one of the first N sentences, and
MRR; documents and sentences say how many questions have an answer in what was retrieved at all.
Without known answers the first sentence of each question is shown.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any, Dict, Iterable, List, Optional

from wqa.cli.answer import add_questions, one_line, questions_of, warn_of_questions
from wqa.cli.options import add_long_candidates, add_number, add_ranking, ranking_options
from wqa.cli.output import add_json, show
from wqa.cli.rank import threshold_of
from wqa.cli.runs import add_drops, one_drop_setting
from wqa.errors import OptionError

LOGGER = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa ask`` to its parser."""
    parser.add_argument(
        "index", metavar="INDEX", help="folder that `wqa index` wrote, or documents that it reads"
    )
    parser.add_argument(
        "--ranker",
        default="minilm",
        metavar="RUN",
        help="ranker, anything that `wqa rank` takes (default: minilm)",
    )
    add_questions(parser)
    add_drops(parser)
    add_number(parser, "--top", 80, "documents to retrieve for a question")
    add_number(parser, "--n-best", 3, "sentences to show, and N of hit@N")
    parser.add_argument(
        "--threshold",
        metavar="X",
        help='say "no answer found" where the relevance of the first is below X, 0 to 1 (default: '
        "the threshold of a calibrated run)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="say how long each step took, on standard error"
    )
    add_json(parser)
    # A cache is for documents, not for their sentences.
    add_ranking(parser, with_cache=False, long_questions=("error", "truncate"))
    add_long_candidates(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa ask`` and print the sentences, or the figures."""
    if options.n_best < 1:
        raise OptionError("n_best", options.n_best, "a whole number from 1")
    threshold = threshold_of(options.threshold)
    setting = one_drop_setting(options.drops)
    questions = questions_of(options)
    begin = time.perf_counter()
    from wqa.retrieval import open_collection

    with open_collection(options.index, progress=True) as index:
        index.check_sentences()
        _ask(options, index, questions, setting, threshold, begin)


def _ask(
    options: argparse.Namespace,
    index: Any,
    questions: List[Any],
    setting: Any,
    threshold: Optional[float],
    begin: float,
) -> None:
    from wqa.inference.pipeline import Pipeline
    from wqa.io.progress import with_bar
    from wqa.systems.load import load_ranker
    from wqa.text import note_long_questions

    ranker = load_ranker(
        options.ranker, progress=True, **setting.arguments, **ranking_options(options)
    )
    note_long_questions(ranker.prepare(questions).truncated, 0)
    pipeline = Pipeline(index, ranker=ranker, top=options.top)
    loaded = time.perf_counter() - begin
    asked = pipeline.ask_all(questions)
    results = []
    figures = _Figures(index, options.n_best)
    for item in with_bar(asked, len(questions), "asking", progress=bool(options.data)):
        if options.data:
            figures.add(item)
        results.append(_result(item, options.n_best, threshold))
    if options.verbose:
        steps = {"load": loaded, **pipeline.seconds}
        text = ", ".join(f"{name} {seconds:.3f}" for name, seconds in steps.items())
        LOGGER.warning(f"seconds: {text}")
    if options.data:
        values = figures.values()
        text = _figures_text(values)
        if "mrr" not in values:
            text += "\n" + "\n".join(map(_first, results))
        show(text, {**values, "results": results}, options.json)
    else:
        show(_text(results[0], index), results[0], options.json)


def _result(item: Any, n_best: int, threshold: Optional[float]) -> Dict[str, Any]:
    """A question with its documents and first sentences, in types of JSON."""
    documents = []
    for rank, hit in enumerate(item.documents, 1):
        fields = {"rank": rank, "id": hit.document.id, "title": hit.document.title}
        documents.append({**fields, "retrieval_score": hit.score})
    sentences = []
    for rank, sentence in enumerate(item.sentences[:n_best], 1):
        fields = {"rank": rank, **sentence._asdict()}
        sentences.append({**fields, "document": documents[sentence.document]["id"]})
    result = {"id": item.question.id, "question": item.question.question}
    result.update(documents=documents, sentences=sentences, ranked=len(item.sentences))
    ranking = item.ranking
    if ranking is None:
        return {**result, "cost": 0.0, "threshold": threshold, "answered": False}
    result["cost"] = ranking.cost.relative
    result["threshold"] = ranking.threshold if threshold is None else threshold
    result["answered"] = None  # not known without a threshold
    if result["threshold"] is not None:
        result["answered"] = ranking.answered(result["threshold"])
    return result


def _text(result: Dict[str, Any], index: Any) -> str:
    """Sentences with those around them, and what was read."""
    if not result["documents"]:
        reason = index.why_nothing(result["question"])
        return f"no answer found: the question retrieves no document, as {reason}"
    if not result["sentences"]:
        return "no answer found: no document has a sentence"
    if result["answered"] is False:
        relevance, threshold = result["sentences"][0]["relevance"], result["threshold"]
        reason = f"the relevance of the first sentence, {relevance:.4f}, is below {threshold:g}"
        return f"no answer found: {reason}"
    lines = ["rank    score  sentence"]
    for row in result["sentences"]:
        lines.append(f"{row['rank']:4} {row['score']:>8.3f}  {one_line(_shown(row))}")
        around = f"{_end(row['before'])} [...] {_start(row['after'])}"
        lines.append(f"{'':15}{one_line(row['document'])}: {one_line(around)}")
    lines.append(
        f"{result['ranked']:,} sentences of {len(result['documents']):,} documents, "
        f"cost {100 * result['cost']:.0f} % of the full encoder"
    )
    return "\n".join(lines)


def _first(result: Dict[str, Any]) -> str:
    """The first sentence of a question."""
    if not result["sentences"] or result["answered"] is False:
        return f"{result['id']}: no answer found"
    row = result["sentences"][0]
    return one_line(f"{result['id']}: {_shown(row)} ({row['document']})")


def _shown(row: Dict[str, Any]) -> str:
    """A sentence; of one that was read in windows the one that gave the score."""
    if row["window"] is None:
        return row["text"]
    return f"[...] {row['text'][slice(*row['window'])]} [...]"


#: Characters of a neighbouring sentence that are shown.
_CONTEXT = 80


def _end(text: str) -> str:
    return text if len(text) <= _CONTEXT else f"...{text[-_CONTEXT:]}"


def _start(text: str) -> str:
    return text if len(text) <= _CONTEXT else f"{text[:_CONTEXT]}..."


class _Figures:
    """Figures of questions whose answers are known, and counts of what they lack."""

    def __init__(self, index: Any, n_best: int) -> None:
        self._index, self._n_best = index, n_best
        self._counts = dict.fromkeys(("questions", "retrieved_nothing", "unanswerable"), 0)
        self._ranks: List[float] = []  # of the first sentence with an answer, infinite without one
        self._documents = 0
        self._is_known = False

    def add(self, item: Any) -> None:
        """Count a question."""
        from wqa.retrieval.methods import contains_spans, joined

        answers = item.question.answers
        self._counts["questions"] += 1
        self._counts["retrieved_nothing"] += not item.documents
        self._is_known |= bool(answers)
        spans = [joined(answer) for answer in answers]

        def contains(text: str) -> bool:
            return contains_spans(joined(text), spans)

        holds = any(contains(hit.document.text) for hit in item.documents)
        self._documents += holds
        texts: Iterable[str] = (sentence.text for sentence in item.sentences)
        if not holds:
            texts = ()
            self._counts["unanswerable"] += not self._index.holds_answer(answers)
        ranks = enumerate(texts, 1)
        rank = next((rank for rank, text in ranks if contains(text)), float("inf"))
        self._ranks.append(rank)

    def values(self) -> Dict[str, Any]:
        """The figures, as shares of all questions."""
        if not self._is_known:
            return {name: self._counts[name] for name in ("questions", "retrieved_nothing")}
        count = len(self._ranks)
        figures: Dict[str, Any] = {"documents": self._documents / count}
        figures["sentences"] = sum(rank < float("inf") for rank in self._ranks) / count
        for best in sorted({1, self._n_best}):
            figures[f"hit@{best}"] = sum(rank <= best for rank in self._ranks) / count
        figures["mrr"] = sum(1 / rank for rank in self._ranks) / count
        return {**self._counts, **figures}


def _figures_text(figures: Dict[str, Any]) -> str:
    from wqa.evaluation import table

    count = warn_of_questions(figures)
    if "mrr" not in figures:
        return f"{count:,} questions, without known answers"
    reached = [f"{100 * figures[name]:.2f} % in {name}" for name in ("documents", "sentences")]
    shares = {name: value for name, value in figures.items() if name.startswith(("hit@", "mrr"))}
    return f"{count:,} questions, with an answer {', '.join(reached)}\n{table([shares])}"
