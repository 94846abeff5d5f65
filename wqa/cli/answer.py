"""Answer questions from a collection: retrieve, re-rank, read.

examples:
  wqa answer --index indexes/squad --ranker runs/dcbert --reader runs/squad_reader \\
      --question "how are glacier caves formed ?"
  wqa answer --index indexes/squad --reader runs/squad_reader --data dev.questions.jsonl \\
      --out predictions.json

--top documents are retrieved. --ranker orders them, and without it they keep the order of the
index. The reader reads the first --read of them. An answer is a span of a document: the table shows
its score, the sum of two logits, and the text around it. With --data, whose questions hold their
answers, the figures are exact match (EM) and F1 by SQuAD's rule over all questions, and hit@N, the
share of questions of which a document that was read contains an answer. --out writes predictions as
SQuAD's script reads them.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any, Dict, List, Tuple

from wqa.cli.options import (
    add_choice,
    add_long_candidates,
    add_number,
    add_ranking,
    loading_options,
    ranking_options,
    values_of,
)
from wqa.cli.output import add_json, show
from wqa.cli.rank import utf8_argument
from wqa.errors import DataError, InputError, OptionError, printable, shorten

LOGGER = logging.getLogger(__name__)

#: Characters of a document that are shown on either side of an answer.
_CONTEXT = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa answer`` to its parser."""
    parser.add_argument(
        "--index", required=True, metavar="INDEX", help="folder that `wqa index` wrote"
    )
    parser.add_argument(
        "--ranker", metavar="RUN", help="run, or file of rankers, that orders the documents"
    )
    parser.add_argument(
        "--reader", required=True, metavar="RUN", help="run of `wqa train reader`, which reads them"
    )
    add_questions(parser)
    add_number(parser, "--top", 80, "documents to retrieve for a question")
    add_number(parser, "--read", 10, "documents to read")
    add_number(parser, "--n-best", 1, "answers of a question")
    add_number(parser, "--max-answer-tokens", 30, "most tokens of an answer")
    text = "compare spans by their logits, or by these less those of no answer"
    add_choice(parser, "--span-scores", ("logits", "against-no-answer"), text)
    parser.add_argument("--out", metavar="PATH", help="predictions to write: a text by question id")
    add_json(parser)
    add_ranking(parser, long_questions=("error", "truncate"))
    add_long_candidates(parser)


def add_questions(parser: argparse.ArgumentParser) -> None:
    """Add ``--question`` and ``--data``, of which a command takes one."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--question", metavar="Q", help="the question")
    source.add_argument(
        "--data", metavar="FILE", help="questions, JSONL, .csv or .tsv; they need no candidates"
    )


def questions_of(options: argparse.Namespace) -> List[Any]:
    """The questions of the options of `add_questions`."""
    from wqa.data import Question, read_questions

    if options.data:
        questions = list(read_questions(options.data, with_candidates=False))
        _check_answers(questions, options.data)
        return questions
    text = utf8_argument(options.question)
    if not text.strip():
        raise InputError("question", "the question is empty", "text")
    return [Question("", text, ())]


def run(options: argparse.Namespace) -> None:
    """Run ``wqa answer`` and print the answers, or the figures."""
    if options.cache and not options.ranker:
        raise OptionError("cache", "without a ranker", "a ranker, which reads it")
    if options.out and not options.data:
        raise OptionError("out", "with one question", "data, whose questions have ids")
    from wqa.io.progress import with_bar

    questions = questions_of(options)
    pipeline, index = _open(options, questions)
    answers = pipeline.answer_all(questions, options.n_best)
    answered = list(with_bar(answers, len(questions), "answering", progress=True))
    results = [_result(item) for item in answered]
    if not options.data:
        show(_text(answered[0], index), results[0], options.json)
        return
    if options.out:
        from wqa.evaluation import write_predictions

        predictions = {}
        for item in answered:
            predictions[item.question.id] = item.answers[0].text if item.answers else ""
        write_predictions(options.out, predictions)
    figures = _figures(answered, index, options.read)
    text = _figures_text(figures)
    if "em" not in figures:
        text += "\n" + "\n".join(map(_first, results))
    show(text, {**figures, "results": results}, options.json)


def _check_answers(questions: List[Any], path: str) -> None:
    """Answers are known for all questions or for none, so that the figures are over all."""
    unknown = [question for question in questions if not question.answers]
    if unknown and len(unknown) < len(questions):
        raise DataError(
            f"{path}, question {shorten(unknown[0].id)}",
            f"no answers, as {len(unknown):,} of {len(questions):,} questions",
            "answers on all questions, or on none",
        )


def _open(options: argparse.Namespace, questions: List[Any]) -> Tuple[Any, Any]:
    """Pipeline and index of the options; the index first, as MXNet takes a second to load.

    Over-long questions are found before any is answered.
    """
    from wqa.retrieval import Index

    index = Index(options.index, progress=True)
    from wqa.inference.pipeline import Pipeline
    from wqa.systems.load import load_ranker
    from wqa.systems.load_readers import load_reader
    from wqa.text import note_long_questions

    reader = load_reader(
        options.reader,
        **values_of(options, "max_answer_tokens", "span_scores"),
        **loading_options(options),
    )
    models: List[Any] = [reader]
    ranker = None
    if options.ranker:
        ranker = load_ranker(options.ranker, **ranking_options(options))
        models.append(ranker)
    # A question is cut where it is too long for one of them.
    truncated = max(model.prepare(questions).truncated for model in models)
    note_long_questions(truncated, 0)
    return Pipeline(index, reader, ranker, options.top, options.read), index


def _result(item: Any) -> Dict[str, Any]:
    """A question with its documents and answers, in types of JSON."""
    documents = []
    for rank, entry in enumerate(item.documents, 1):
        document = entry.document
        fields = {"rank": rank, "id": document.id, "retrieval_score": entry.retrieval_score}
        score = None if entry.relevance == 0 else entry.score  # a blank document has none
        documents.append({**fields, "score": score, "relevance": entry.relevance})
    answers = []
    for answer in item.answers:
        document = item.documents[answer.document].document
        before, after = _context(document.full_text, answer)
        fields = {"text": answer.text, "score": answer.score, "document": document.id}
        fields.update(start=answer.start, end=answer.end, before=before, after=after)
        answers.append(fields)
    return {
        "id": item.question.id,
        "question": item.question.question,
        "retrieved": item.retrieved,
        "documents": documents,
        "answers": answers,
    }


def _first(result: Dict[str, Any]) -> str:
    """The first answer of a question."""
    if not result["answers"]:
        return f"{result['id']}: no answer found"
    answer = result["answers"][0]
    return one_line(f"{result['id']}: {answer['text']} ({answer['document']})")


def _context(text: str, answer: Any) -> Tuple[str, str]:
    """Text before and behind an answer."""
    before = text[max(answer.start - _CONTEXT, 0) : answer.start]
    if answer.start > _CONTEXT:
        before = f"...{before}"
    after = text[answer.end : answer.end + _CONTEXT]
    if answer.end + _CONTEXT < len(text):
        after = f"{after}..."
    return before, after


def one_line(text: str) -> str:
    """Part of a document as it is shown; a line end separates its title from its text."""
    return printable(" ".join(text.split()))


def _text(item: Any, index: Any) -> str:
    """Answers with the text around them, and the documents that were read."""
    if not item.documents:
        reason = index.why_nothing(item.question.question)
        return f"the question retrieves no document, as {reason}"
    lines = ["rank    score  answer"]
    for rank, answer in enumerate(item.answers, 1):
        document = item.documents[answer.document].document
        before, after = _context(document.full_text, answer)
        lines.append(f"{rank:4} {answer.score:>8.3f}  {one_line(answer.text)}")
        passage = one_line(f"{document.id}: {before}[{answer.text}]{after}")
        lines.append(f"{'':15}{passage}")
    if not item.answers:
        lines.append("   -        -  no document has text")
    lines.append(f"\n{len(item.documents)} of {item.retrieved} documents read")
    lines.append("rank   ranker    index  document")
    for rank, entry in enumerate(item.documents, 1):
        score = "-" if entry.score is None else f"{entry.score:.3f}"
        start = one_line(entry.document.full_text[: 2 * _CONTEXT])
        lines.append(
            f"{rank:4} {score:>8} {entry.retrieval_score:>8.3f}  "
            f"{one_line(entry.document.id)}: {start}"
        )
    return "\n".join(lines)


def _figures(answered: List[Any], index: Any, read: int) -> Dict[str, Any]:
    """Figures of questions whose answers are known, and counts of what they lack."""
    from wqa.evaluation import score_answers
    from wqa.retrieval import contains_answer

    figures: Dict[str, Any] = {"questions": len(answered)}
    figures["retrieved_nothing"] = sum(not item.retrieved for item in answered)
    if not any(item.question.answers for item in answered):
        return figures
    predictions = {}
    hits = unanswerable = 0
    for item in answered:
        answers = item.question.answers
        if item.answers:
            predictions[item.question.id] = item.answers[0].text
        if any(contains_answer(entry.document.text, answers) for entry in item.documents):
            hits += 1
        elif answers and not index.holds_answer(answers):
            unanswerable += 1
    figures.update(score_answers(predictions, [item.question for item in answered]))
    figures[f"hit@{read}"] = hits / len(answered)
    figures["unanswerable"] = unanswerable
    return figures


def _figures_text(figures: Dict[str, Any]) -> str:
    from wqa.evaluation import table

    count = warn_of_questions(figures)
    shares = {name: value for name, value in figures.items() if name in ("em", "f1")}
    shares.update({name: value for name, value in figures.items() if name.startswith("hit@")})
    if not shares:
        return f"{count:,} questions, without known answers"
    return f"{count:,} questions\n{table([shares])}"


def warn_of_questions(figures: Dict[str, Any]) -> int:
    """Say how many questions no document can answer, and return the number of all."""
    count = figures["questions"]
    if figures["retrieved_nothing"]:
        text = f"{figures['retrieved_nothing']:,} of {count:,} questions retrieve no document"
        LOGGER.warning(text)
    if figures.get("unanswerable"):
        text = f"no document of the index contains an answer of {figures['unanswerable']:,}"
        LOGGER.warning(f"{text} of {count:,} questions")
    return count
