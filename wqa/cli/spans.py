"""Spans that a reader finds in retrieved documents, as `wqa ask --reader` shows them."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, Optional, Tuple

from wqa.cli.options import loading_options, values_of
from wqa.errors import printable

#: Characters of a document that are shown on either side of an answer.
_CONTEXT = 60


def read_spans(
    options: argparse.Namespace, index: Any, questions: List[Any], ranker: Optional[Any]
) -> List[Any]:
    """Answer questions by spans; over-long questions are found before any is answered."""
    from wqa.evaluation import write_predictions
    from wqa.inference.pipeline import Pipeline
    from wqa.io.progress import with_bar
    from wqa.systems.load_readers import load_reader
    from wqa.text import note_long_questions

    settings = values_of(options, "max_answer_tokens", "span_scores")
    reader = load_reader(options.reader, **settings, **loading_options(options))
    # A question is cut where it is too long for one of them.
    models = [reader] if ranker is None else [reader, ranker]
    note_long_questions(max(model.prepare(questions).truncated for model in models), 0)
    pipeline = Pipeline(index, reader, ranker, options.top, options.read)
    answers = pipeline.answer_all(questions, options.n_best)
    answered = list(with_bar(answers, len(questions), "answering", progress=True))
    if options.out:
        predictions = {}
        for item in answered:
            predictions[item.question.id] = item.answers[0].text if item.answers else ""
        write_predictions(options.out, predictions)
    return answered


def span_result(item: Any) -> Dict[str, Any]:
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


def first_span(result: Dict[str, Any]) -> str:
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


def spans_text(item: Any, index: Any) -> str:
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
    lines.append(f"{len(item.documents)} of {item.retrieved} documents read")
    return "\n".join(lines)


def span_figures(answered: List[Any], index: Any, read: int) -> Dict[str, Any]:
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
