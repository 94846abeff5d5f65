"""Scores of a ranker for all candidates of a corpus, computed once, for the training of others.

The questions are ranked in partitions that depend on the corpus alone, and a folder of scores is
committed after each of them. So the scores of a command that was stopped and continued are, to the
bit, those of one that was not. Memory holds one partition. `wqa.cluster` scores the same partitions
on several machines.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

import numpy as np

from wqa.cache.document_cache import CachedDocuments
from wqa.config.versions import installed_version, library_versions
from wqa.data import FILTERS, Question
from wqa.data.digests import ranker_digest
from wqa.data.formats import data_digest, read_placed_questions
from wqa.data.partitions import PARTITION_TOKENS, QuestionGroup, group_questions
from wqa.data.records import filter_rule, known_labels
from wqa.data.scores import (
    COUNTS,
    TYPES,
    CandidateScores,
    StoredScores,
    candidate_keys,
    scores_output,
)
from wqa.errors import DataError, OptionError, shorten
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking, question_name
from wqa.io.arrays import ArrayWriter, reusable_folder
from wqa.io.files import PathLike
from wqa.io.locks import lock_output
from wqa.io.progress import progress_bar
from wqa.systems.load import load_ranker
from wqa.text import PreparedQuestions, naming_file

#: Element types of the arrays of scored questions, by name.
ARRAYS: Dict[str, np.dtype] = {
    **TYPES,
    "order": np.dtype("<u4"),
    "exits": np.dtype("<i4"),
    "stages": np.dtype("<i4"),
}

#: Id of a question, and the ids of its candidates; None where none of them has one.
Names = Tuple[str, Optional[List[Optional[str]]]]


class ScoredQuestions(NamedTuple):
    """Scores of the candidates of consecutive questions."""

    arrays: Dict[str, np.ndarray]
    lengths: List[int]
    names: List[Names]
    counts: Dict[str, int]


def passing(data: PathLike, filter: str) -> Callable[[Question], bool]:
    """Test of a filter, whose errors name the corpus."""
    filter_rule(filter)

    def passes(question: Question) -> bool:
        if filter != "all":
            with naming_file(data):
                known_labels(question)
        return FILTERS[filter](question)

    return passes


def checked_groups(
    ranker: Ranker, data: PathLike, filter: str, limit: int
) -> Iterator[QuestionGroup]:
    """Divide a corpus, and find what cannot be read or ranked before anything is scored."""
    kept = 0
    for group in group_questions(read_placed_questions(data), passing(data, filter), limit):
        with naming_file(data):
            kept += len(_prepare(ranker, group.questions).questions)
        yield group
    if not kept:
        raise DataError(data, "no question is left to score", "at least one", "check the options")


def score_questions(
    ranker: Ranker, questions: List[Question], read: int, data: PathLike
) -> ScoredQuestions:
    """Score the questions of a group.

    The same questions give the same bits, as no other questions are beside them.
    """
    values: Dict[str, List[np.ndarray]] = {}
    for name, element in ARRAYS.items():
        values[name] = [np.zeros(0, element)]
    lengths: List[int] = []
    names: List[Names] = []
    blank = 0
    with naming_file(data):
        prepared = _prepare(ranker, questions)
        # A list gives the same groups of questions each time, and so the same bits.
        for question, ranking in zip(prepared.questions, ranker.rank_all(prepared.questions)):
            _check_count(question, ranking)
            for name, array in _arrays_of(question, ranking).items():
                values[name].append(np.asarray(array, ARRAYS[name]))
            lengths.append(len(question.candidates))
            names.append((question.id, _candidate_ids(question)))
            blank += int(np.count_nonzero(ranking.blank))
    counts = {
        "read": read,
        "questions": len(prepared.questions),
        "pairs": sum(lengths),
        "blank": blank,
        "truncated_questions": prepared.truncated,
        "skipped_questions": prepared.skipped,
    }
    arrays = {name: np.concatenate(parts) for name, parts in values.items()}
    return ScoredQuestions(arrays, lengths, names, counts)


def _arrays_of(question: Question, ranking: Ranking) -> Dict[str, np.ndarray]:
    return {
        "keys": candidate_keys(question),
        "scores": ranking.scores,
        "order": ranking.order,
        "exits": ranking.exits,
        "stages": np.count_nonzero(~np.isnan(ranking.exit_scores), axis=0),
    }


def _candidate_ids(question: Question) -> Optional[List[Optional[str]]]:
    ids = [candidate.id for candidate in question.candidates]
    return None if all(id is None for id in ids) else ids


def _check_count(question: Question, ranking: Ranking) -> None:
    if len(ranking.scores) != len(question.candidates):
        raise DataError(
            question_name(question),
            f"{len(ranking.scores)} scores",
            f"one for each of its {len(question.candidates)} candidates",
            "mend the ranker",
        )


def _prepare(ranker: Ranker, questions: List[Question]) -> PreparedQuestions:
    """Apply the rule for over-long questions, of which a group may consist."""
    if not questions:
        return PreparedQuestions([])
    try:
        return ranker.prepare(questions)
    except DataError:  # the ranker skips them all
        return PreparedQuestions([], 0, len(questions))


#: Progress of a command that starts: the questions that were read, and the counts of the folder.
_START = {"read": 0, **dict.fromkeys(COUNTS, 0)}


#: Options that `score_settings` has under other names, or always.
_SCORE_OPTIONS = ("cache", "long_questions", "precision")
#: Options that `score_settings` has where they are not these defaults.
_DEFAULTS = {
    "drop_ratio": None,
    "keep": None,
    "long_candidates": "truncate",
    "pool": "question",
    "pool_size": 128,
}
#: Settings that are absent where they have their default.
OPTIONAL_SETTINGS = ("document_cache", "partition_tokens", *_DEFAULTS)


def score_settings(
    run: Union[str, os.PathLike[str]],
    data: PathLike,
    filter: str,
    partition_tokens: int,
    options: Mapping[str, Any],
) -> Dict[str, Any]:
    """What scores depend on, but for the machine."""
    precision = options.get("precision", "float32")
    settings = {
        "data_sha256": data_digest(data),
        "filter": filter,
        "long_questions": options.get("long_questions", "error"),
        "precision": precision,
        "ranker_sha256": ranker_digest(run, precision),
    }
    if options.get("cache") is not None:
        settings["document_cache"] = str(CachedDocuments.of(options["cache"]).path)
    if partition_tokens != PARTITION_TOKENS:
        settings["partition_tokens"] = partition_tokens
    for name, default in _DEFAULTS.items():
        if options.get(name, default) not in (None, default):
            settings[name] = options[name]
    return json.loads(json.dumps(settings))


def with_defaults(made_with: Mapping[str, Any]) -> Dict[str, Any]:
    """Settings of `score_settings` to compare with those of a folder."""
    return {**dict.fromkeys(OPTIONAL_SETTINGS), **made_with}


def machine_settings(options: Mapping[str, Any]) -> Dict[str, Any]:
    """What the last bits of scores depend on beside `score_settings`.

    Products on other numbers of threads are rounded differently.
    """
    settings: Dict[str, Any] = {}
    for name, value in options.items():
        if name not in _SCORE_OPTIONS and name not in _DEFAULTS and value is not None:
            settings[name] = value
    settings["engine"] = options.get("engine", "auto")
    settings["ctx"] = str(options.get("ctx", "cpu")).partition(":")[0]
    settings["onednn"] = installed_version("onednn-cpu-gomp") is not None
    # `wqa.models` sets the variable where it is not set.
    threads = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))
    settings["threads"] = options.get("threads") or threads
    settings.update(library_versions())
    return json.loads(json.dumps(settings))


def check_partition_tokens(count: object) -> None:
    """Check a size of partitions."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OptionError("partition_tokens", shorten(count), "a whole number from 1")


def write_scores(
    run: Union[str, os.PathLike[str]],
    data: PathLike,
    out: PathLike,
    filter: str = "all",
    progress: bool = False,
    partition_tokens: int = PARTITION_TOKENS,
    **options: Any,
) -> Dict[str, Any]:
    """Score the candidates of a corpus, and write the scores to a folder.

    A command that was stopped is continued.

    Parameters
    ----------
    run : str or path-like
        Ranker, as `wqa.load_ranker` takes it.
    data : str or path-like
        Questions with their candidates, canonical JSONL. Labels are read by the filter alone.
    out : str or path-like
        Folder to make. A whole folder of the same ranker, questions and options is kept as it is;
        any other content is refused.
    filter : {"all", "no-all-negative", "clean"}
        Questions to score.
    progress : bool
        Show a bar on standard error.
    partition_tokens : int
        Most estimated tokens of the questions that are ranked together.
    **options
        Keywords of `wqa.load_ranker`, such as ``precision`` and ``long_questions``.

    Returns
    -------
    dict
        ``meta.json`` of the folder: ``questions``, ``pairs``, ``blank``, ``truncated_questions``,
        ``skipped_questions``, ``ranker_sha256``, and more.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read, a question cannot be ranked, or ``out`` is a
        folder of other scores, cannot be written, or another process writes it.
    """
    filter_rule(filter)
    check_partition_tokens(partition_tokens)
    with lock_output(out):
        ranker = load_ranker(run, **options)
        made_with = score_settings(run, data, filter, partition_tokens, options)
        made_with["system"] = ranker.capabilities.system
        output = scores_output(out)
        folder = reusable_folder(output, made_with)
        if folder is not None:
            mend = "delete the folder, or choose another one"
            folder.check_made_with(with_defaults(made_with), mend)
            return StoredScores(out).meta
        total = _count_questions(ranker, data, filter, partition_tokens)
        with ArrayWriter(output, TYPES, made_with) as writer:
            if not _can_continue(writer):
                writer.restart()
                writer.progress = dict(_START)
            start = writer.progress["read"]
            scored = _score(ranker, data, filter, partition_tokens, start)
            for part in _with_bar(scored, total, start, progress):
                for name in TYPES:
                    writer.append(name, part.arrays[name])
                for name, count in part.counts.items():
                    writer.progress[name] += count
                writer.commit()
            counts = {name: writer.progress[name] for name in COUNTS}
            writer.finish({**counts, "run": str(run)})
        return StoredScores(out).meta


def score_in_memory(
    run: Union[str, os.PathLike[str]],
    data: PathLike,
    filter: str = "all",
    progress: bool = False,
    partition_tokens: int = PARTITION_TOKENS,
    **options: Any,
) -> CandidateScores:
    """Score the candidates of a corpus.

    Parameters
    ----------
    run, data, filter, progress, partition_tokens
        As `write_scores` takes them.
    **options
        Keywords of `wqa.load_ranker`.

    Returns
    -------
    CandidateScores
        The scores, to the bit those that `write_scores` writes.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read, or a question cannot be ranked.
    """
    filter_rule(filter)
    check_partition_tokens(partition_tokens)
    ranker = load_ranker(run, **options)
    total = _count_questions(ranker, data, filter, partition_tokens)
    scored = _score(ranker, data, filter, partition_tokens)
    keys, scores = [], []
    for part in _with_bar(scored, total, 0, progress):
        keys.append(part.arrays["keys"])
        scores.append(part.arrays["scores"])
    return CandidateScores(np.concatenate(keys), np.concatenate(scores))


def _count_questions(ranker: Ranker, data: PathLike, filter: str, limit: int) -> int:
    """Number of questions; what cannot be read or ranked is an error now, not hours later."""
    return sum(group.read for group in checked_groups(ranker, data, filter, limit))


def _can_continue(writer: ArrayWriter) -> bool:
    """Whether the arrays hold what the progress of a command that was stopped says."""
    progress = writer.progress
    if set(progress) != set(_START):
        return False
    if any(type(count) is not int or count < 0 for count in progress.values()):
        return False
    if progress["questions"] + progress["skipped_questions"] > progress["read"]:
        return False
    return progress["pairs"] == writer.count("keys") == writer.count("scores")


def _with_bar(
    parts: Iterable[ScoredQuestions], total: int, start: int, progress: bool
) -> Iterator[ScoredQuestions]:
    """Scored partitions, with a bar of the questions that were read."""
    with progress_bar(total, "scoring", "question", progress, initial=start) as bar:
        for part in parts:
            yield part
            bar.update(part.counts["read"])


def _score(
    ranker: Ranker, data: PathLike, filter: str, limit: int, start: int = 0
) -> Iterator[ScoredQuestions]:
    """Scores of the questions from a line of a corpus on, partition by partition."""
    placed = itertools.islice(read_placed_questions(data), start, None)
    for group in group_questions(placed, passing(data, filter), limit):
        yield score_questions(ranker, group.questions, group.read, data)
