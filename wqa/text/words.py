"""Words of a text and their ids, for rankers without a pretrained encoder's tokenizer.

The ids of a table of V words are those that the networks on word vectors share:

==================  =========================================================================
0                   padding
1 to V              the words of the table, in its order
V + 1 to V + B      buckets of unknown words: a word's bucket is a hash of the word
==================  =========================================================================

A bucket has a random vector as long as the table's mean vector. So an unknown word of the question
has cosine 1 with itself in a candidate, and about 0 with any other word.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import re
from typing import Dict, List, Sequence, Tuple

import mmh3
import numpy as np

from wqa.config import BackboneConfig, parse_json
from wqa.data.word_vectors import WordVectors, mask_digits
from wqa.errors import EncoderError, OptionError, shorten
from wqa.text.tokenizers import Located, Tokenizer, check_text

#: Version of the ``tokenizer.json`` of words.
FORMAT = 1
#: The pair form that such a tokenizer names.
WORDS_FORM = "words"
#: Default and greatest number of buckets of unknown words.
BUCKETS, MOST_BUCKETS = 1024, 1 << 20

_WORD = re.compile(r"\w+|[^\w\s]")
#: Seed of the vectors of unknown words.
_SEED = 20200
#: Number of chunks of text whose ids are kept.
_MOST_KEPT = 1 << 17
#: Greatest length of such a chunk in characters.
_LONGEST_KEPT = 64


def split_words(text: str) -> List[str]:
    """Split a text into lower-cased words.

    Bonadiman and Moschitti 2020 (section 5.1) take the words of spaCy 2.1. A regular expression
    gives nearly the same figures for the rule baselines.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        The words in their order. A word is a run of letters, digits and underscores, or one other
        character that is no white space.
    """
    return _WORD.findall(text.lower())


class WordTokenizer(Tokenizer):
    """Token ids of whole words, with the interface of a pretrained encoder's tokenizer.

    It has no special tokens, so that it cannot encode a pair as one sequence.

    Parameters
    ----------
    words : sequence of str
        The V words of a table, as `wqa.data.word_vectors.WordVectors` holds them.
    buckets : int
        B, the number of buckets of unknown words. With 0 all unknown words have the id V + 1,
        whose vector is zero.
    masks_digits : bool
        Whether a word that the table lacks is looked up once more, as
        `wqa.data.word_vectors.mask_digits` writes it.

    Attributes
    ----------
    words : list of str
        The words of the table.
    buckets : int
        Number of buckets.
    masks_digits : bool
        Whether digits are masked.
    padding_id : int
        0.

    Raises
    ------
    OptionError
        If there is no word, a word is there twice, or the number of buckets is out of range.
    """

    def __init__(
        self, words: Sequence[str], buckets: int = BUCKETS, masks_digits: bool = False
    ) -> None:
        # `Tokenizer.__init__` is not called: it wraps a tokenizer of the `tokenizers` library.
        if not 0 <= buckets <= MOST_BUCKETS:
            raise OptionError("buckets", shorten(buckets), f"a number from 0 to {MOST_BUCKETS:,}")
        self.words = list(words)
        self.buckets = buckets
        self.masks_digits = masks_digits
        self._ids = _WordIds(self.words, buckets, masks_digits)
        self._chunk_ids = _ChunkIds(self._ids)
        if not self.words or len(self._ids) < len(self.words):
            counts = f"{len(self.words)} words, {len(self._ids)} of them different"
            raise OptionError("words", counts, "at least one word, and each word once")
        self.vocab_size = 1 + len(self.words) + max(buckets, 1)
        self.pair_form = WORDS_FORM
        self.padding_id = 0

    @classmethod
    def of_table(cls, table: WordVectors, buckets: int = BUCKETS) -> WordTokenizer:
        """Make the tokenizer of a table of word vectors.

        Parameters
        ----------
        table : WordVectors
            The table.
        buckets : int
            Number of buckets of unknown words.

        Returns
        -------
        WordTokenizer
        """
        return cls(table.words, buckets, table.masks_digits)

    def check_fits(self, config: BackboneConfig, where: object) -> None:
        """Refuse every encoder, as none has whole words.

        Parameters
        ----------
        config : BackboneConfig
            The encoder's configuration.
        where : object
            The encoder's directory, for messages.

        Raises
        ------
        EncoderError
            Always.
        """
        problem = f"a {config.family.name} encoder with a tokenizer of words"
        raise EncoderError(where, problem, "the encoder's own tokenizer")

    def _all_ids(self, texts: Sequence[str]) -> List[List[int]]:
        return [self._ids_of(text) for text in texts]

    def _ids_of(self, text: str) -> List[int]:
        # No word holds white space. To look chunks up takes half the time of the expression.
        chunks = text.lower().split()
        return list(itertools.chain.from_iterable(map(self._chunk_ids.__getitem__, chunks)))

    def _first_ids(self, text: str, needed: int) -> List[int]:
        check_text(text)
        matches = itertools.islice(_WORD.finditer(text.lower()), needed)
        return [self._ids[match[0]] for match in matches]

    def locate(self, texts: Sequence[str]) -> List[Located]:
        """Look up the words of texts, and say which characters each covers.

        Parameters
        ----------
        texts : sequence of str
            The texts.

        Returns
        -------
        list of Located
            Words of each text. Their ids are those of `encode`.

        Raises
        ------
        InputError
            If a text is no string, or holds half a surrogate pair.
        """
        return [self._locate(text) for text in texts]

    def _locate(self, text: str) -> Located:
        check_text(text)
        lowered = text.lower()
        ids = []
        starts = []
        last = []  # index of the last character of each word
        for match in _WORD.finditer(lowered):
            ids.append(self._ids[match[0]])
            starts.append(match.start())
            last.append(match.end() - 1)
        sources = np.arange(len(text), dtype=np.int64)
        if len(lowered) != len(text):
            # Some characters become several: the character that each lower-cased one comes from.
            lengths = [len(character.lower()) for character in text]
            sources = np.repeat(sources, lengths)
        return Located(
            np.array(ids, dtype=np.int32),
            sources[np.array(starts, dtype=np.int64)],
            sources[np.array(last, dtype=np.int64)] + 1,
        )

    def token(self, number: int) -> str:
        """Word of an id.

        Parameters
        ----------
        number : int
            The id.

        Returns
        -------
        str
            The word; empty for padding, a bucket, and a number that is no id.
        """
        return self.words[number - 1] if 1 <= number <= len(self.words) else ""

    def _to_json(self, pretty: bool = False) -> str:
        fields = {
            "words_format": FORMAT,
            "buckets": self.buckets,
            "masks_digits": self.masks_digits,
            "words": self.words,
        }
        return json.dumps(fields, ensure_ascii=False, indent=0) + "\n"


class _WordIds(Dict[str, int]):
    """Ids of words; those of unknown words are computed."""

    def __init__(self, words: Sequence[str], buckets: int, masks_digits: bool) -> None:
        super().__init__(zip(words, range(1, len(words) + 1)))
        self._first_bucket = len(words) + 1
        self._buckets = max(buckets, 1)
        self._masks_digits = masks_digits

    def __missing__(self, word: str) -> int:
        if self._masks_digits:
            masked = self.get(mask_digits(word))
            if masked is not None:
                return masked
        # As bytes: the library crashes at a string with half a surrogate pair.
        bucket = mmh3.hash(word.encode("utf-8"), 0, signed=False) % self._buckets
        return self._first_bucket + bucket


class _ChunkIds(Dict[str, Tuple[int, ...]]):
    """Ids of the words of chunks without white space, such as ``"caves,"``; some are kept."""

    def __init__(self, ids: _WordIds) -> None:
        super().__init__()
        self._ids = ids

    def __missing__(self, chunk: str) -> Tuple[int, ...]:
        numbers = tuple([self._ids[word] for word in _WORD.findall(chunk)])
        if len(self) < _MOST_KEPT and len(chunk) <= _LONGEST_KEPT:
            self[chunk] = numbers
        return numbers


def embedding_matrix(table: WordVectors, buckets: int = BUCKETS) -> np.ndarray:
    """Vectors of all ids of a table's tokenizer: padding, words, and buckets of unknown words.

    Parameters
    ----------
    table : WordVectors
        The table.
    buckets : int
        Number of buckets, as `WordTokenizer` takes it.

    Returns
    -------
    numpy.ndarray
        (vocab_size, D) float32. Row 0 is zero. The row of a bucket is random, drawn from a fixed
        seed, with the mean norm of the table's vectors. With 0 buckets the last row is zero.
    """
    # Buckets come first from the generator: their directions do not depend on the table's size.
    unknown = np.random.default_rng(_SEED).standard_normal((buckets, table.units))
    norms = np.linalg.norm(table.vectors, axis=1)
    norm = float(norms.mean(dtype=np.float64))
    unknown *= norm / np.linalg.norm(unknown, axis=1, keepdims=True)
    rows = np.zeros((1 + len(table) + max(buckets, 1), table.units), np.float32)
    rows[1 : 1 + len(table)] = table.vectors
    rows[len(rows) - buckets :] = unknown
    return rows


#: How the ``tokenizer.json`` of words starts; that of the `tokenizers` library has another key.
_START = re.compile(rb'\s*\{\s*"words_format"')


def is_word_tokenizer(path: pathlib.Path) -> bool:
    """Whether a ``tokenizer.json`` holds words, as `WordTokenizer.save` writes them."""
    with open(path, "rb") as file:
        return _START.match(file.read(100)) is not None


def read_word_tokenizer(path: pathlib.Path) -> WordTokenizer:
    """Read a tokenizer of words."""
    try:
        fields = parse_json(path.read_bytes())
        if fields["words_format"] != FORMAT:
            version = shorten(fields["words_format"])
            raise ValueError(f"words_format is {version}, this version of wqa reads {FORMAT}")
        "".join(fields["words"]).encode("utf-8")  # an escape may be half a surrogate pair
        return WordTokenizer(fields["words"], fields["buckets"], fields["masks_digits"])
    except (OSError, ValueError, TypeError, KeyError, OptionError) as error:
        problem, expected = f"cannot be read ({error})", "a tokenizer of words, as a run holds it"
        raise EncoderError(path, problem, expected, "copy the run directory again") from None
