"""Answer questions from a collection, by sentences of its documents or by spans of them.

examples:
  wqa ask docs/ --question "how are glacier caves formed ?"
  wqa ask indexes/docs --ranker runs/wikiqa --drop-ratio 0.3 --question "how do caves form ?"
  wqa ask indexes/squad --ranker runs/wikiqa --data dev.questions.jsonl --json figures.json
  wqa ask indexes/squad --ranker runs/dcbert --reader runs/reader --question "how do caves form ?"

INDEX is a folder that `wqa index` wrote, or what it reads, which is then indexed for this command
alone. --top documents are retrieved. The ranker puts all their sentences in order, and the table
shows the first --n-best, or "no answer found" below the threshold of a calibrated run or
--threshold. With --reader the ranker puts the documents in order, and the reader finds spans of the
first --read of them. With --data, whose questions hold their answers, the figures are hit@N and
MRR of the sentences, or exact match and F1 of the spans by SQuAD's rule.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any, Dict, Iterable, List, Optional

from wqa.cli.options import (
    add_choice,
    add_long_candidates,
    add_number,
    add_ranking,
    ranking_options,
    refuse,
)
from wqa.cli.output import add_json, show
from wqa.cli.rank import threshold_of, utf8_argument
from wqa.cli.runs import add_drops, one_drop_setting
from wqa.cli.spans import first_span, one_line, read_spans, span_figures, span_result, spans_text
from wqa.errors import DataError, InputError, OptionError, shorten

LOGGER = logging.getLogger(__name__)

#: Characters of a neighbouring sentence that are shown.
_CONTEXT = 80
#: Options of a reader.
_OF_READERS = ("read", "max_answer_tokens", "span_scores", "out", "cache")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa ask`` to its parser."""
    parser.add_argument(
        "index", metavar="INDEX", help="folder that `wqa index` wrote, or documents that it reads"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--question", metavar="Q", help="the question")
    source.add_argument(
        "--data", metavar="FILE", help="questions, JSONL, .csv or .tsv; they need no candidates"
    )
    parser.add_argument(
        "--ranker",
        metavar="RUN",
        help="ranker, anything that `wqa rank` takes (default: minilm; with --reader none)",
    )
    parser.add_argument(
        "--reader", metavar="RUN", help="run of `wqa train reader`, which finds spans of documents"
    )
    add_drops(parser)
    add_number(parser, "--top", 80, "documents to retrieve for a question")
    text = "sentences to show, and N of hit@N (default: 3), or answers of a reader (default: 1)"
    add_number(parser, "--n-best", None, text)
    parser.add_argument(
        "--threshold",
        metavar="X",
        help='say "no answer found" where the relevance of the first is below X, 0 to 1 (default: '
        "the threshold of a calibrated run)",
    )
    add_json(parser)
    reading = parser.add_argument_group("with --reader")
    add_number(reading, "--read", 10, "documents to read")
    add_number(reading, "--max-answer-tokens", 30, "most tokens of an answer")
    text = "compare spans by their logits, or by these less those of no answer"
    add_choice(reading, "--span-scores", ("logits", "against-no-answer"), text)
    text = "predictions to write: a text by question id"
    reading.add_argument("--out", metavar="PATH", help=text)
    add_ranking(parser, long_questions=("error", "truncate"))
    add_long_candidates(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa ask`` and print the sentences or the answers, or the figures."""
    if options.n_best is None:
        options.n_best = 1 if options.reader else 3
    if options.n_best < 1:
        raise OptionError("n_best", options.n_best, "a whole number from 1")
    if options.reader:
        _check_reading(options)
    else:
        refuse(options, _OF_READERS, "without --reader", "a reader")
    threshold = threshold_of(options.threshold)
    one_drop_setting(options.drops)
    questions = _questions(options)
    from wqa.retrieval import open_collection

    with open_collection(options.index, progress=True) as index:
        if options.reader:
            _read(options, index, questions)
            return
        index.check_sentences()
        _ask(options, index, questions, threshold)


def _check_reading(options: argparse.Namespace) -> None:
    refuse(options, ("threshold",), "with --reader", "sentences")
    if options.cache and not options.ranker:
        raise OptionError("cache", "without a ranker", "a ranker, which reads it")
    if options.out and not options.data:
        raise OptionError("out", "with one question", "data, whose questions have ids")


def _questions(options: argparse.Namespace) -> List[Any]:
    from wqa.data import Question, read_questions

    if options.data:
        questions = list(read_questions(options.data, with_candidates=False))
        _check_answers(questions, options.data)
        return questions
    text = utf8_argument(options.question)
    if not text.strip():
        raise InputError("question", "the question is empty", "text")
    return [Question("", text, ())]


def _check_answers(questions: List[Any], path: str) -> None:
    """Answers are known for all questions or for none, so that the figures are over all."""
    unknown = [question for question in questions if not question.answers]
    if unknown and len(unknown) < len(questions):
        raise DataError(
            f"{path}, question {shorten(unknown[0].id)}",
            f"no answers, as {len(unknown):,} of {len(questions):,} questions",
            "answers on all questions, or on none",
        )


def _ranker(options: argparse.Namespace) -> Any:
    from wqa.systems.load import load_ranker

    drops = one_drop_setting(options.drops).arguments
    run = options.ranker or "minilm"
    return load_ranker(run, progress=True, **drops, **ranking_options(options))


def _ask(
    options: argparse.Namespace, index: Any, questions: List[Any], threshold: Optional[float]
) -> None:
    from wqa.inference.pipeline import Pipeline
    from wqa.io.progress import with_bar
    from wqa.text import note_long_questions

    ranker = _ranker(options)
    note_long_questions(ranker.prepare(questions).truncated, 0)
    asked = Pipeline(index, ranker=ranker, top=options.top).ask_all(questions)
    results = []
    figures = _Figures(index, options.n_best)
    for item in with_bar(asked, len(questions), "asking", progress=bool(options.data)):
        if options.data:
            figures.add(item)
        results.append(_result(item, options.n_best, threshold))
    if not options.data:
        show(_text(results[0], index), results[0], options.json)
        return
    _show_all(options, figures.values(), results, map(_first, results))


def _read(options: argparse.Namespace, index: Any, questions: List[Any]) -> None:
    ranker = _ranker(options) if options.ranker else None
    answered = read_spans(options, index, questions, ranker)
    results = [span_result(item) for item in answered]
    if not options.data:
        show(spans_text(answered[0], index), results[0], options.json)
        return
    figures = span_figures(answered, index, options.read)
    _show_all(options, figures, results, map(first_span, results))


def _show_all(
    options: argparse.Namespace,
    figures: Dict[str, Any],
    results: List[Dict[str, Any]],
    firsts: Iterable[str],
) -> None:
    """The figures of questions, or the first answer of each where the right ones are not known."""
    text = _figures_text(figures)
    if len(figures) == 2:
        text += "\n" + "\n".join(firsts)
    show(text, {**figures, "results": results}, options.json)


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

    count = figures["questions"]
    if figures["retrieved_nothing"]:
        text = f"{figures['retrieved_nothing']:,} of {count:,} questions retrieve no document"
        LOGGER.warning(text)
    if len(figures) == 2:
        return f"{count:,} questions, without known answers"
    if figures["unanswerable"]:
        text = f"no document of the index contains an answer of {figures['unanswerable']:,}"
        LOGGER.warning(f"{text} of {count:,} questions")
    title = f"{count:,} questions"
    if "documents" in figures:
        reached = [f"{100 * figures[name]:.2f} % in {name}" for name in ("documents", "sentences")]
        title += f", with an answer {', '.join(reached)}"
    names = ("em", "f1", "hit@", "mrr")
    shares = {name: value for name, value in figures.items() if name.startswith(names)}
    return f"{title}\n{table([shares])}"
