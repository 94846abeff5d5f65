"""Weights of terms in documents and in questions: TF-IDF in DrQA's manner, and BM25.

Both score a document by a sum over the terms of the question of its weight in the question times
its weight in the document. The weights in documents are computed once, so that both methods are one
sparse matrix and one search.

The terms of a text are hashed n-grams of its words, in DrQA's manner (Chen et al. 2017, section
3.1). A text is normalized to Unicode NFD and lower-cased. Its tokens are those of DrQA's
``SimpleTokenizer``: a run of letters, digits and marks, or one other visible character. DrQA's
published index takes the tokens of CoreNLP instead, which differ in contractions ("does", "n't"),
abbreviations ("U.S.") and hyphens. Of scripts without spaces between words, such as Chinese,
Japanese, Korean and Thai, each character is a token, and each two in a row are a term as well.

An n-gram with a stop word or a punctuation mark is left out. The others are hashed by murmurhash
into 2^24 buckets.

An answer is contained in a document where its tokens occur one after another, without regard to
case, after Unicode normalization. That is the rule of DrQA's evaluation, in which P@N is defined:
the answer "art" is in "Art of war", not in "start".
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Any, ClassVar, Dict, Iterable, List, Sequence, Tuple, Type, Union

import mmh3
import numpy as np
import regex

from wqa.errors import OptionError, check_choice, check_range


@dataclasses.dataclass(frozen=True)
class TFIDF:
    """TF-IDF of unigrams and bigrams (Chen et al. 2017, section 3.1; the weights of DrQA's code).

    The weight of a term is ``log(1 + tf) log((N - Nt + 0.5) / (Nt + 0.5))``, in documents and in
    questions. The second factor is 0 where it would be negative, for terms of more than half of
    the N documents. Documents are not normalized by their lengths.
    """

    #: Name of the method in indexes and on the command line.
    name: ClassVar[str] = "tfidf"
    #: Greatest number of tokens of an n-gram.
    longest: ClassVar[int] = 2

    def idf(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        """Inverse document frequencies.

        Parameters
        ----------
        frequencies : numpy.ndarray
            Number of documents that hold each term.
        documents : int
            Number of documents of the collection, N.

        Returns
        -------
        numpy.ndarray
            A number from 0 on for each term.
        """
        return np.maximum(np.log(_odds(frequencies, documents)), 0)

    def in_documents(self, counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Weights of terms in documents, without the inverse document frequency.

        Parameters
        ----------
        counts : numpy.ndarray
            Occurrences of a term in a document.
        lengths : numpy.ndarray
            Number of terms of that document, over the mean of the collection.

        Returns
        -------
        numpy.ndarray
            A weight for each pair of a term and a document.
        """
        return np.log1p(counts)

    def in_question(self, counts: np.ndarray, idf: np.ndarray) -> np.ndarray:
        """Weights of terms in a question.

        Parameters
        ----------
        counts : numpy.ndarray
            Occurrences of each term.
        idf : numpy.ndarray
            Its inverse document frequency.

        Returns
        -------
        numpy.ndarray
            A weight for each term.
        """
        return np.log1p(counts) * idf


@dataclasses.dataclass(frozen=True)
class BM25:
    """BM25 of unigrams (Robertson and Zaragoza 2009), in Lucene's form.

    The weight of a term in a document is ``log(1 + (N - Nt + 0.5) / (Nt + 0.5)) tf / (tf + k1 (1 -
    b + b length / mean length))``, its weight in a question the number of its occurrences. Lengths
    count the terms of a document, without stop words and punctuation marks.

    Parameters
    ----------
    k1 : float
        Saturation of the term frequency: 0 ignores how often a term occurs.
    b : float
        Share of the normalization by length, from 0 to 1.

    Raises
    ------
    OptionError
        If a parameter is outside its range.
    """

    name: ClassVar[str] = "bm25"
    longest: ClassVar[int] = 1

    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        check_range("k1", self.k1, 0.0)
        check_range("b", self.b, 0.0, 1)

    def idf(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        """Inverse document frequencies, as `TFIDF.idf`."""
        return np.log1p(_odds(frequencies, documents))

    def in_documents(self, counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Weights in documents, as `TFIDF.in_documents`."""
        saturation = self.k1 * (1 - self.b + self.b * lengths)
        return counts / (counts + saturation)

    def in_question(self, counts: np.ndarray, idf: np.ndarray) -> np.ndarray:
        """Weights in a question, as `TFIDF.in_question`."""
        return counts.astype(np.float64)


def _odds(frequencies: np.ndarray, documents: int) -> np.ndarray:
    """Smoothed odds that a document lacks a term."""
    without = documents - frequencies
    return (without + 0.5) / (frequencies + 0.5)


#: Scoring by one of the methods.
Method = Union[TFIDF, BM25]
#: Methods by name.
METHODS: Dict[str, Type[Method]] = {method.name: method for method in (TFIDF, BM25)}


def method_of(name: str, **settings: Any) -> Method:
    """Look a method up by name."""
    check_choice("method", name, METHODS)
    known = {field.name for field in dataclasses.fields(METHODS[name])}
    for setting in settings:
        if setting not in known:
            raise OptionError(setting, f"given with {name}", "a method that has this setting")
    return METHODS[name](**settings)


#: Number of buckets that n-grams are hashed to.
BUCKETS = 1 << 24

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
_PUNCTUATION = regex.compile(r"\p{P}")
#: Letters and marks of scripts without spaces between words: of Thai, Lao, Burmese and Khmer, of
#: Hangul, which writes endings on the words, of Kana and of Han.
_LETTERS = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uffdc\u3005-\u3007\u3021-\u3029"
    "\u3105-\u312f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_LETTERS}]")
#: A letter with its marks, or a run of others.
_PART = regex.compile(rf"(?=[{_LETTERS}])\X|[^{_LETTERS}]+")

_STOP_WORDS = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself it its itself they them their theirs themselves what which who whom this that
    these those am is are was were be been being have has had having do does did doing a an the and
    but if or because as until while of at by for with about against between into through during
    before after above below to from up down in out on off over under again further then once here
    there when where why how all any both each few more most other some such no nor not only own
    same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn
    doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""

#: English stop words: NLTK's list, with the parts of contractions, as DrQA takes it.
STOP_WORDS = frozenset(_STOP_WORDS.split())


def tokenize(text: str) -> List[str]:
    """Split a text into lower-cased tokens.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        The tokens in their order. A token is a run of letters, digits and marks, or one other
        character that is neither a separator nor a control character.
    """
    normalized = unicodedata.normalize("NFD", text).lower()
    tokens = _TOKEN.findall(normalized)
    if not _UNSPACED.search(normalized):
        return tokens
    return [part for token in tokens for part in _PART.findall(token)]


def ngrams(tokens: List[str], longest: int) -> List[str]:
    """N-grams of tokens that hold neither a stop word nor a punctuation mark."""
    # Neither stop words nor punctuation marks count.
    counts = []
    for token in tokens:
        is_mark = len(token) == 1 and _PUNCTUATION.match(token)
        counts.append(token not in STOP_WORDS and not is_mark)
    grams = []
    for length in range(1, longest + 1):
        for start in range(len(tokens) - length + 1):
            if all(counts[start : start + length]):
                grams.append(" ".join(tokens[start : start + length]))
    if longest == 1 and _UNSPACED.search("".join(tokens)):
        pairs = zip(tokens, tokens[1:])
        grams += [" ".join(pair) for pair in pairs if all(map(_UNSPACED.match, pair))]
    return grams


def count_terms(text: str, longest: int) -> Tuple[np.ndarray, np.ndarray]:
    """Count the terms of a text.

    Shapes: `terms` (T,), `counts` (T,).
    """
    grams = ngrams(tokenize(text), longest)
    buckets = [mmh3.hash(gram, 0, False) % BUCKETS for gram in grams]
    return np.unique(np.array(buckets, np.int64), return_counts=True)


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether a text contains one of several answers.

    Parameters
    ----------
    text : str
        Text of a document.
    answers : iterable of str
        Texts that answer a question.

    Returns
    -------
    bool
        True if the tokens of an answer occur in the text in a row. An answer without a token is
        contained in no text.
    """
    return contains_spans(joined(text), [joined(answer) for answer in answers])


def joined(text: str) -> str:
    """Tokens of a text as one string, in which `contains_spans` finds spans."""
    tokens = " ".join(tokenize(text))
    return f" {tokens} " if tokens else ""


def contains_spans(document: str, spans: Sequence[str]) -> bool:
    """Whether the tokens of a document contain one of several spans."""
    return any(span in document for span in spans if span)
