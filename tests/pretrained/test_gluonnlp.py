"""GluonNLP's models: from and to backbones, and by their names in the zoo."""

import dataclasses

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model import BERTClassifier, BERTEncoder, BERTModel, DistilBERTModel, RoBERTaModel
from mxnet import autograd, gluon

from wqa.config import BackboneConfig
from wqa.errors import EncoderError
from wqa.models import Backbone
from wqa.pretrained import from_gluonnlp, to_gluonnlp

SIZES = {"vocab_size": 30, "units": 16, "embed_size": 16}
SMALL = {"vocab_size": 30, "units": 16, "hidden_size": 32, "num_layers": 2, "num_heads": 2}
SMALL["max_positions"] = 12
BARE = {"use_pooler": False, "use_decoder": False, "use_classifier": False}
LENGTHS = [9, 4, 7]
REAL = np.arange(9)[None] < np.array(LENGTHS)[:, None]


def new_encoder(**settings):
    sizes = {"num_layers": 2, "units": 16, "hidden_size": 32, "num_heads": 2, "max_length": 12}
    return BERTEncoder(**{**sizes, **settings})


def new_model(kind, encoder, **parts):
    """A model with random parameters; its shapes wait for a first input."""
    sizes = dict(SIZES)
    if kind is BERTModel:
        sizes["token_type_vocab_size"] = 2
    model = kind(encoder, **sizes, **parts)
    mx.random.seed(1)
    model.initialize(mx.init.Normal(0.3))
    return model


def inputs():
    rng = np.random.default_rng(2)
    ids = rng.integers(2, 30, (3, 9))
    ids[~REAL] = 1  # RoBERTa's padding
    types = mx.nd.array(rng.integers(0, 2, (3, 9)), dtype="int32")
    return mx.nd.array(ids, dtype="int32"), types, mx.nd.array(LENGTHS)


def outputs(model):
    """Outputs of a model's last layer at positions that are not padding."""
    ids, types, lengths = inputs()
    arguments = [ids, lengths]
    if type(model) is BERTModel:
        arguments = [ids, types if model._use_token_type_embed else [], lengths]
    if model._use_decoder:
        arguments.append(mx.nd.zeros((3, 1)))
    states = model(*arguments)
    return (states[0] if isinstance(states, (tuple, list)) else states).asnumpy()[REAL]


def encodings(backbone, typed):
    ids, types, lengths = inputs()
    return backbone(ids, types if typed else None, lengths).asnumpy()[REAL]


MODELS = [
    (BERTModel, {}, {}),
    (BERTModel, {"activation": "relu"}, BARE),
    (BERTModel, {"activation": "approx_gelu", "num_layers": 3}, {"use_decoder": False}),
    (BERTModel, {"units": 16, "num_heads": 4}, {**BARE, "use_token_type_embed": False}),
    (RoBERTaModel, {"layer_norm_eps": 1e-5}, {}),
    (RoBERTaModel, {"layer_norm_eps": 1e-3}, {"use_decoder": False}),
    (DistilBERTModel, {"dropout": 0.2}, {}),
]


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("kind, settings, parts", MODELS)
def test_a_model_becomes_a_backbone_and_back(kind, settings, parts, hybridized):
    model = new_model(kind, new_encoder(**settings), **parts)
    if hybridized:
        model.hybridize()
    backbone = from_gluonnlp(model)
    again = to_gluonnlp(backbone)
    if hybridized:
        backbone.hybridize()
        again.hybridize()
    expected = outputs(model)
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(encodings(backbone, True), expected, atol=1e-5)
    np.testing.assert_allclose(outputs(again), expected, atol=1e-5)
    assert isinstance(again, RoBERTaModel) == (kind is RoBERTaModel)
    assert again.encoder._dropout == model.encoder._dropout == backbone.config.dropout
    np.testing.assert_allclose(encodings(from_gluonnlp(again), True), expected, atol=1e-5)


def test_parameters_are_copies_with_gradients():
    model = new_model(BERTModel, new_encoder(), **BARE)
    backbone, expected = from_gluonnlp(model), outputs(model)
    again = to_gluonnlp(backbone)
    trainer = gluon.Trainer(backbone.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = backbone(*inputs()).square().sum()
    loss.backward()
    trainer.step(1)
    assert np.abs(encodings(backbone, True) - expected).max() > 1e-2
    np.testing.assert_array_equal(outputs(model), expected)
    np.testing.assert_allclose(outputs(again), expected, atol=1e-5)


def test_token_types_of_a_roberta():
    """Hugging Face's RoBERTa has one token type, which may not be 0."""
    options = {"layout": "roberta", "token_types": 1, "first_position": 2}
    config = BackboneConfig(**SMALL, **options, attention_dropout=0.3)
    mx.random.seed(3)
    backbone = Backbone(config)
    backbone.initialize(mx.init.Normal(0.3))
    model = to_gluonnlp(backbone)
    assert np.abs(backbone.embeddings.token_type.weight.data().asnumpy()).max() > 0.1
    np.testing.assert_allclose(outputs(model), encodings(backbone, False), atol=1e-5)
    assert from_gluonnlp(model).config == config
    with pytest.raises(EncoderError, match="3 token types; expected one, as GluonNLP's RoBERTa"):
        to_gluonnlp(Backbone(dataclasses.replace(config, token_types=3)))


def test_what_is_refused():
    with pytest.raises(EncoderError, match="a BERTClassifier; .*take its bert"):
        from_gluonnlp(BERTClassifier(new_model(BERTModel, new_encoder())))
    with pytest.raises(EncoderError, match="the activation .*; expected one of gelu, approx_gelu"):
        from_gluonnlp(new_model(BERTModel, new_encoder(activation="sigmoid")))
    own = gluon.nn.Embedding(30, 16)
    with pytest.raises(EncoderError, match="BERTModel: tensor 'word_embed.0.weight' is missing"):
        from_gluonnlp(new_model(BERTModel, new_encoder(), word_embed=own, **BARE))
    with pytest.raises(EncoderError, match="family albert; expected bert or roberta"):
        to_gluonnlp(Backbone(BackboneConfig(layout="albert", shared_layers=True)))
