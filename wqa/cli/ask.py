"""Answer questions from a collection, by sentences of its documents or by spans of them.

examples:
  wqa ask docs/ --question "how are glacier caves formed ?"
  wqa ask indexes/docs --ranker runs/wikiqa --drop-ratio 0.3 --question "how do caves form ?"
  wqa ask indexes/squad --ranker runs/wikiqa --data dev.questions.jsonl --json figures.json
  wqa ask indexes/squad --ranker runs/dcbert --reader runs/reader --question "how do caves form ?"

INDEX is a folder that `wqa index` wrote, or what it reads, which is then indexed for this command
alone. --top documents are retrieved. The ranker puts all their sentences in order, and the table
shows the first --n-best, or "no answer found" below the threshold of a calibrated run, of minilm or
of --threshold. With --reader the ranker puts the documents in order, and the reader finds spans of
the first --read of them. With --data, whose questions hold their answers, the figures are hit@N and
MRR of the sentences, or exact match and F1 of the spans by SQuAD's rule.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any, Dict, List, Optional, Sequence

from wqa.cli.options import (
    add_drops,
    add_json,
    add_number,
    add_ranking,
    loading_options,
    ranking_options,
    refuse,
    show,
)
from wqa.cli.rank import threshold_of, utf8_argument
from wqa.errors import DataError, InputError, OptionError, check_range, counted, printable, shorten

LOGGER = logging.getLogger(__name__)

#: Options that ``--help`` explains.
FIRST = ("question", "data", "ranker", "reader", "drops", "top", "n_best", "threshold", "json")
#: Least relevance of a sentence that answers by the untrained `minilm`: of 100 questions of SelQA,
#: 98 reach it in their own section, and 3 in those of 15 other articles.
_UNTRAINED_THRESHOLD = 0.25
#: Characters of the text around an answer that are shown.
_CONTEXT = 80
#: Options of a reader.
_OF_READERS = ("read", "out", "cache")
#: Options of the ranker, which may be left out with a reader.
_OF_RANKERS = ("cache", "drops", "pool", "pool_size", "long_candidates")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa ask`` to its parser."""
    text = "folder that `wqa index` wrote, or documents that it reads"
    parser.add_argument("index", metavar="INDEX", help=text)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--question", metavar="Q", help="the question")
    text = "questions, JSONL, .csv or .tsv; they need no candidates"
    source.add_argument("--data", metavar="FILE", help=text)
    text = "ranker, anything that `wqa rank` takes (default: minilm; with --reader none)"
    parser.add_argument("--ranker", metavar="RUN", help=text)
    text = "run of `wqa train reader`, which finds spans of documents"
    parser.add_argument("--reader", metavar="RUN", help=text)
    add_drops(parser)
    add_number(parser, "--top", 80, "documents to retrieve for a question")
    text = "sentences to show, and N of hit@N (default: 3), or answers of a reader (default: 1)"
    add_number(parser, "--n-best", None, text)
    text = 'say "no answer found" where the relevance of the first is below X, 0 to 1 (default: '
    text += "the threshold of a calibrated run; 0.25 for minilm)"
    parser.add_argument("--threshold", metavar="X", help=text)
    add_json(parser)
    reading = parser.add_argument_group("with --reader")
    add_number(reading, "--read", 10, "documents to read")
    text = "predictions to write: a text by question id"
    reading.add_argument("--out", metavar="PATH", help=text)
    add_ranking(parser, long_questions=("error", "truncate"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa ask`` and print the sentences or the answers, or the figures."""
    if options.n_best is None:
        options.n_best = 1 if options.reader else 3
    check_range("n_best", options.n_best, 1)
    if options.reader:
        refuse(options, ("threshold",), "with --reader", "sentences")
        if not options.ranker:
            refuse(options, _OF_RANKERS, "without a ranker", "a ranker")
        if options.out and not options.data:
            raise OptionError("out", "with one question", "data, whose questions have ids")
    else:
        refuse(options, _OF_READERS, "without --reader", "a reader")
    options.threshold = threshold_of(options.threshold)
    keywords = ranking_options(options)
    questions = _questions(options)
    from wqa.retrieval import open_collection
    from wqa.systems.load import load_ranker

    with open_collection(options.index, progress=True) as index:
        ranker = None
        if not options.reader:
            index.check_sentences()
        if options.ranker or not options.reader:
            run = options.ranker or "minilm"
            if options.threshold is None and run == "minilm":
                options.threshold = _UNTRAINED_THRESHOLD
            ranker = load_ranker(run, **keywords)
        (_read if options.reader else _rank)(options, index, questions, ranker)


def _questions(options: argparse.Namespace) -> List[Any]:
    """The questions; answers are known for all or for none, so that the figures are over all."""
    from wqa.data import Question, read_questions

    if not options.data:
        text = utf8_argument(options.question)
        if not text.strip():
            raise InputError("question", "the question is empty", "text")
        return [Question("", text, ())]
    questions = list(read_questions(options.data, with_candidates=False))
    unknown = [question for question in questions if not question.answers]
    if unknown and len(unknown) < len(questions):
        where = f"{options.data}, question {shorten(unknown[0].id)}"
        problem = f"no answers, as {len(unknown):,} of {len(questions):,} questions"
        raise DataError(where, problem, "answers on all questions, or on none")
    return questions


def _rank(options: argparse.Namespace, index: Any, questions: List[Any], ranker: Any) -> None:
    """Answer questions by sentences."""
    from wqa.inference.pipeline import Pipeline
    from wqa.io.progress import with_bar
    from wqa.text import note_long_questions

    note_long_questions(ranker.prepare(questions).truncated, 0)
    items = Pipeline(index, ranker=ranker, top=options.top).ask_all(questions)
    results, ranks = [], []
    for item in with_bar(items, len(questions), "asking", progress=bool(options.data)):
        results.append(item.to_dict(options.n_best, options.threshold))
        if item.question.answers:
            ranks.append(_rank_of_answer(item, [sentence.text for sentence in item.sentences]))
    if options.data:
        _show_all(options, _figures(ranks, options.n_best) if ranks else {}, results)
        return
    has_exits = ranker.capabilities.has_exits
    show(_sentences_text(results[0], has_exits), results[0], options.json)


def _read(options: argparse.Namespace, index: Any, questions: List[Any], ranker: Any) -> None:
    """Answer questions by spans; over-long questions are found before any is answered."""
    from wqa.evaluation import score_answers, write_predictions
    from wqa.inference.pipeline import Pipeline
    from wqa.io.progress import with_bar
    from wqa.systems.run_directory import load_reader
    from wqa.text import note_long_questions

    reader = load_reader(options.reader, **loading_options(options))
    # A question is cut where it is too long for one of them.
    models = [reader] if ranker is None else [reader, ranker]
    note_long_questions(max(model.prepare(questions).truncated for model in models), 0)
    pipeline = Pipeline(index, reader, ranker, options.top, options.read)
    items = pipeline.answer_all(questions, options.n_best)
    results, ranks, predictions = [], [], {}
    for item in with_bar(items, len(questions), "answering", progress=True):
        results.append(item.to_dict())
        if item.question.answers:
            ranks.append(_rank_of_answer(item, ()))
        if item.answers:
            predictions[item.question.id] = item.answers[0].text
    if options.out:
        ids = [question.id for question in questions]
        write_predictions(options.out, {id: predictions.get(id, "") for id in ids})
    if not options.data:
        show(_spans_text(results[0]), results[0], options.json)
        return
    figures: Dict[str, Any] = {}
    if ranks:
        documents = sum(rank is not None for rank in ranks)
        figures = score_answers(predictions, questions)
        figures[f"hit@{options.read}"] = documents / len(questions)
    _show_all(options, figures, results)


def _rank_of_answer(item: Any, sentences: Sequence[str]) -> Optional[float]:
    """Rank of the first sentence with an answer; None where no document has an answer."""
    from wqa.retrieval import contains_answer

    answers = item.question.answers
    if not any(contains_answer(hit.document.text, answers) for hit in item.documents):
        return None
    ranks = (rank for rank, text in enumerate(sentences, 1) if contains_answer(text, answers))
    return next(ranks, float("inf"))


def _figures(ranks: Sequence[Optional[float]], n_best: int) -> Dict[str, float]:
    """Figures of sentences, as shares of all questions."""
    count, known = len(ranks), [rank for rank in ranks if rank is not None]
    figures = {"documents": len(known) / count}
    figures["sentences"] = sum(rank < float("inf") for rank in known) / count
    for best in sorted({1, n_best}):
        figures[f"hit@{best}"] = sum(rank <= best for rank in known) / count
    figures["mrr"] = sum(1 / rank for rank in known) / count
    return figures


def _show_all(
    options: argparse.Namespace, figures: Dict[str, Any], results: List[Dict[str, Any]]
) -> None:
    """Print the figures of questions; their answers are in the JSON."""
    from wqa.evaluation import table

    count = f"{len(results):,} questions"
    without = sum(not result["documents"] for result in results)
    if without:
        LOGGER.warning(f"{without:,} of {count} retrieve no document")
    shares = {name: value for name, value in figures.items() if isinstance(value, float)}
    title = count if shares else f"{count}, without known answers"
    if "documents" in shares:
        documents, sentences = (100 * shares.pop(name) for name in ("documents", "sentences"))
        title += f", with an answer {documents:.2f} % in documents, {sentences:.2f} % in sentences"
    text = f"{title}\n{table([shares])}" if shares else title
    counts = {"questions": len(results), "retrieved_nothing": without}
    show(text, {**counts, **figures, "results": results}, options.json)


def _sentences_text(result: Dict[str, Any], has_exits: bool) -> str:
    """Sentences with those around them, and what was read."""
    if not result["documents"]:
        return f"no answer found: {_nothing(result)}"
    if not result["sentences"]:
        return "no answer found: no document has a sentence"
    if result["answered"] is False:
        relevance, threshold = result["sentences"][0]["relevance"], result["threshold"]
        reason = f"the relevance of the first sentence, {relevance:.4f}, is below {threshold:g}"
        return f"no answer found: {reason}"
    lines = ["rank    score  sentence"]
    for row in result["sentences"]:
        text = row["text"]
        if row["window"] is not None:  # the one that gave the score
            text = f"[...] {text[slice(*row['window'])]} [...]"
        around = f"{row['before'][-_CONTEXT:]} [...] {row['after'][:_CONTEXT]}"
        lines += _row(row["rank"], row, text, around)
    counts = counted(result["ranked"], "sentence")
    counts += f" of {counted(len(result['documents']), 'document')}"
    if has_exits:
        counts += f", cost {100 * result['cost']:.0f} % of the full encoder"
    lines.append(counts)
    return "\n".join(lines)


def _spans_text(result: Dict[str, Any]) -> str:
    """Answers with the text around them, and the number of documents that were read."""
    if not result["documents"]:
        return _nothing(result)
    lines = ["rank    score  answer"]
    for rank, row in enumerate(result["answers"], 1):
        lines += _row(rank, row, row["text"], f"{row['before']}[{row['text']}]{row['after']}")
    if not result["answers"]:
        lines.append("   -        -  no document has text")
    lines.append(f"{len(result['documents'])} of {result['retrieved']} documents read")
    return "\n".join(lines)


def _nothing(result: Dict[str, Any]) -> str:
    """Why a question retrieves no document."""
    from wqa.retrieval.methods import ngrams, tokenize

    if ngrams(tokenize(result["question"]), 1):
        return "the question retrieves no document: none shares a term that has weight"
    return "the question holds stop words and punctuation marks alone, which find no document"


def _row(rank: int, row: Dict[str, Any], text: str, around: str) -> List[str]:
    """Two lines of a table, an answer and the text around it, their white space collapsed."""
    parts = (text, f"{row['document']}: {around}")
    text, around = (printable(" ".join(part.split())) for part in parts)
    return [f"{rank:4} {row['score']:>8.3f}  {text}", f"{'':15}{around}"]
