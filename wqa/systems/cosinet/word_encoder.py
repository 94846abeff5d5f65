"""Static word vectors distilled from a pretrained encoder, in the manner of Model2Vec.

Tulkens and van Dongen 2024 (Model2Vec): the encoder reads each word of a vocabulary by itself, the
encodings of its tokens are averaged, and the vectors of all words are reduced by principal
components. `wqa.systems.cosinet.word_tables` weights them by frequency.
"""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.inputs import as_float32
from wqa.engines.onednn import check_precision
from wqa.errors import OptionError
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.io.encoder_directories import encoder_directory
from wqa.io.progress import progress_bar
from wqa.models import parse_devices
from wqa.pretrained import load_backbone
from wqa.text import SingleInputs, load_tokenizer

#: Greatest number of tokens of a word, special tokens included; further ones are cut off.
_LONGEST = 32
#: Words that are encoded at a time.
_BLOCK = 2048


class WordEncoder:
    """Encodes words by themselves, by a pretrained encoder.

    Parameters
    ----------
    encoder : str
        Directory of the encoder, as `wqa.io.encoder_directories.encoder_directory` opens it.
    engine : EngineConfig, optional
        Engine, precision, device and threads; by default ``auto`` in float32 on the CPU.

    Attributes
    ----------
    units : int
        Number of elements of an encoding.
    sha256 : str
        Digest of the encoder's parameters.

    Raises
    ------
    EncoderError
        If the encoder cannot be read.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the engine does not fit this machine.
    """

    def __init__(self, encoder: str, engine: Optional[EngineConfig] = None) -> None:
        settings = engine or EngineConfig()
        device = parse_devices(settings.ctx)[0]
        check_precision(settings.precision)
        with encoder_directory(encoder) as folder:
            backbone = load_backbone(folder, device)
            tokenizer = load_tokenizer(folder)
            tokenizer.check_fits(backbone.config, encoder)
        length = min(_LONGEST, backbone.config.max_positions)
        self.units: int = backbone.config.units
        self.sha256: str = encodings_identity(backbone, tokenizer, length)["encoder_sha256"]
        self._inputs = SingleInputs(tokenizer, length)
        self._encoder = DocumentEncoder(backbone, tokenizer, length, settings)

    def encode(self, words: Sequence[str], progress: bool = False) -> Tuple[List[int], np.ndarray]:
        """Encode words.

        Parameters
        ----------
        words : sequence of str
            The words.
        progress : bool
            Show a bar on standard error.

        Returns
        -------
        rows : list of int
            Indices of the words that the encoder has a token for.
        vectors : numpy.ndarray
            (rows, C) float32, the mean over the tokens of each, special tokens left out.
        """
        rows: List[int] = []
        vectors = [np.zeros((0, self.units), np.float32)]
        with progress_bar(len(words), "encoding words", "word", progress) as bar:
            for start in range(0, len(words), _BLOCK):
                block = words[start : start + _BLOCK]
                filled, block_vectors = self._encode_block(block)
                rows += [start + row for row in filled]
                vectors.append(block_vectors)
                bar.update(len(block))
        return rows, np.concatenate(vectors)

    def _encode_block(self, words: Sequence[str]) -> Tuple[List[int], np.ndarray]:
        """Indices of the words that have a token, and their vectors, (rows, C)."""
        # A byte-level tokenizer has other tokens for a word that no space precedes.
        texts = [f" {word}" for word in words]
        rows = []
        token_ids = []
        for row, encoded in enumerate(self._inputs.encode(texts)):
            if not encoded.empty:
                rows.append(row)
                token_ids.append(encoded.token_ids)
        vectors = np.zeros((len(rows), self.units), np.float32)
        for index, encoding in enumerate(self._encoder.encode(token_ids)):
            of_tokens = as_float32(encoding)[1:-1]  # (tokens, C), without the special tokens
            vectors[index] = of_tokens.mean(axis=0)
        return rows, vectors


def principal_components(vectors: np.ndarray, units: int) -> np.ndarray:
    """Project vectors on the principal components of all of them.

    Parameters
    ----------
    vectors : numpy.ndarray
        (V, C) vectors.
    units : int
        D, the number of components to keep.

    Returns
    -------
    numpy.ndarray
        (V, D) float64, the greatest variance first; their mean is zero. The greatest element of a
        component's direction is positive.

    Raises
    ------
    OptionError
        If the vectors have fewer elements than units.
    """
    size = vectors.shape[1]
    if units > size:
        raise OptionError("units", units, f"at most {size}, the units of the encoder")
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # (C, C), variances ascending
    directions = directions[:, ::-1][:, :units]  # (C, D)
    greatest = np.abs(directions).argmax(axis=0)
    signs = np.sign(directions[greatest, np.arange(units)])
    return centred @ (directions * signs)
