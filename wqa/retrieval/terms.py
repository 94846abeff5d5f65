"""Terms of a text: hashed n-grams of its words, in DrQA's manner (Chen et al. 2017, section 3.1).

A text is normalized to Unicode NFD and lower-cased. Its tokens are those of DrQA's
``SimpleTokenizer``: a run of letters, digits and marks, or one other visible character. DrQA's
published index takes the tokens of CoreNLP instead, which differ in contractions ("does", "n't"),
abbreviations ("U.S.") and hyphens.

An n-gram with a stop word or a punctuation mark is left out. The others are hashed by murmurhash
into 2^24 buckets.
"""

from __future__ import annotations

import unicodedata
from typing import List, Tuple

import mmh3
import numpy as np
import regex

#: Number of buckets that n-grams are hashed to.
BUCKETS = 1 << 24

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
_PUNCTUATION = regex.compile(r"\p{P}")

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
    return _TOKEN.findall(unicodedata.normalize("NFD", text).lower())


def ngrams(tokens: List[str], longest: int) -> List[str]:
    """N-grams of tokens that hold neither a stop word nor a punctuation mark."""
    counts = [_counts(token) for token in tokens]
    grams = []
    for length in range(1, longest + 1):
        for start in range(len(tokens) - length + 1):
            if all(counts[start : start + length]):
                grams.append(" ".join(tokens[start : start + length]))
    return grams


def _counts(token: str) -> bool:
    return token not in STOP_WORDS and not (len(token) == 1 and _PUNCTUATION.match(token))


def count_terms(text: str, longest: int) -> Tuple[np.ndarray, np.ndarray]:
    """Count the terms of a text.

    Shapes: `terms` (T,), `counts` (T,).
    """
    buckets = [mmh3.hash(gram, 0, False) % BUCKETS for gram in ngrams(tokenize(text), longest)]
    return np.unique(np.array(buckets, np.int64), return_counts=True)
