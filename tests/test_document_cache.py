"""The cache of encoded documents: the encoder, the files, and `wqa encode`."""

import mxnet as mx
import numpy as np
import pytest
from conftest import needs_onednn, needs_precision

from wqa.config import EngineConfig
from wqa.errors import InputError, OptionError
from wqa.inference.document_encoder import DocumentEncoder
from wqa.onednn.library import as_float32
from wqa.pretrained import load_backbone
from wqa.text import load_tokenizer

# The encoder


@pytest.fixture(scope="module")
def backbone(tiny_encoder):
    return load_backbone(tiny_encoder)


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder):
    return load_tokenizer(tiny_encoder)


def texts_of(lengths, vocab_size, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, vocab_size, length).astype(np.int32) for length in lengths]


def expected_encodings(backbone, token_ids):
    """Each text by itself, through the blocks."""
    encodings = []
    for ids in token_ids:
        tokens = mx.nd.array(ids[None], dtype="int32")
        length = mx.nd.array([len(ids)])
        encodings.append(backbone.hidden_states(tokens, length)[-1].asnumpy()[0])
    return encodings


LENGTHS = (7, 30, 3, 12, 7, 64, 1, 12)
ENGINES = (
    pytest.param("onednn", "float32", 2e-5, marks=needs_onednn),
    pytest.param("mxnet", "float32", 2e-5),
    pytest.param("onednn", "bfloat16", 6e-2, marks=needs_precision("bfloat16")),
)


@pytest.mark.parametrize("engine, precision, tolerance", ENGINES)
def test_texts_are_encoded_apart_in_their_order(backbone, tokenizer, engine, precision, tolerance):
    token_ids = texts_of(LENGTHS, backbone.config.vocab_size)
    config = EngineConfig(engine, precision, batch_tokens=80)
    encoder = DocumentEncoder(backbone, tokenizer, 64, config)
    encodings = encoder.encode(token_ids)
    for rows, expected in zip(encodings, expected_encodings(backbone, token_ids)):
        assert rows.shape == expected.shape
        assert rows.dtype == (np.uint16 if encoder.kind == "bfloat16" else np.float32)
        np.testing.assert_allclose(as_float32(rows), expected, atol=tolerance)
    assert encoder.encode([]) == []


def test_what_cannot_be_encoded_is_refused(backbone, tokenizer):
    encoder = DocumentEncoder(backbone, tokenizer, 16, EngineConfig("mxnet"))
    with pytest.raises(InputError, match="text 2: 17 tokens; expected 1 to 16"):
        encoder.encode(texts_of((3, 17), 9))
    with pytest.raises(InputError, match="text 1: 0 tokens"):
        encoder.encode([np.zeros(0, np.int32)])
    with pytest.raises(InputError, match="text 1: token ids from 5 to 10000000"):
        encoder.encode([np.array([5, 10**7], np.int32)])
    with pytest.raises(OptionError, match="max_length: 999; expected 1 to 160"):
        DocumentEncoder(backbone, tokenizer, 999)
