"""A family of encoders is its records: `Family` and `HuggingFaceNames`, and nothing else."""

import dataclasses
import json

import mxnet as mx
import numpy as np
import pytest
import tokenizers
from conftest import DATA, SMALL
from safetensors.numpy import load_file, save_file

from wqa.config import FAMILIES, BackboneConfig, read_run_config
from wqa.config.encoders import Family
from wqa.errors import EncoderError, OptionError
from wqa.pretrained import load_backbone, read_backbone_config
from wqa.pretrained.configs import from_huggingface, to_huggingface
from wqa.pretrained.names import ALBERT_LAYER, HUGGINGFACE, HuggingFaceNames
from wqa.systems.checkpoints import load_classifier
from wqa.systems.convert import convert
from wqa.systems.export import export_huggingface, huggingface_tensors
from wqa.systems.load import load_ranker
from wqa.systems.pairwise.network import PairwiseTransformer

QUESTION = "how are caves formed"
CANDIDATES = ["water carves caves", "the moon is bright", "caves are dark"]
SPECIALS = ("<start>", "<end>", "<none>")


def test_every_family_has_both_records():
    assert sorted(FAMILIES) == sorted(HUGGINGFACE)
    assert {"bert", "roberta", "xlm-roberta", "mpnet", "electra", "albert", "distilbert"} == {
        *FAMILIES
    }
    for name, family in FAMILIES.items():
        assert family.name == name
        assert BackboneConfig(layout=name).family is family


@pytest.fixture
def new_family(monkeypatch):
    """A family that differs from every other one, registered for a test."""
    family = Family(
        "new",
        "roberta",
        SPECIALS,
        has_pooler=True,
        head_activation="gelu",
        positions_after_padding=True,
        shared_layers=True,
    )
    names = HuggingFaceNames(
        "Novel",
        "trunk",
        {"dense": "first.dense", "out": "score"},
        layer="blocks.{}.inner.",
        parts=ALBERT_LAYER,
        projection="widen",
        head_dropout="score_dropout",
        defaults={"embedding_size": 12, "pad_token_id": 2, "type_vocab_size": 1},
    )
    monkeypatch.setitem(FAMILIES, "new", family)
    monkeypatch.setitem(HUGGINGFACE, "new", names)
    return family


@pytest.fixture
def new_encoder(new_family, tmp_path):
    """A Hugging Face directory of the new family, with random weights."""
    words = sorted(set(" ".join([QUESTION, *CANDIDATES]).split()))
    vocabulary = {word: number for number, word in enumerate([*SPECIALS, "<unknown>", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<unknown>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    sizes = {"vocab_size": len(vocabulary), "num_layers": 3, "embedding_size": 12}
    form = {"layout": "new", "token_types": 1, "first_position": 3, "shared_layers": True}
    config = dataclasses.replace(SMALL, **sizes, **form)
    mx.random.seed(3)
    model = PairwiseTransformer(config)
    model.initialize(mx.init.Normal(0.3))
    folder = tmp_path / "encoder"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(to_huggingface(config)))
    save_file(huggingface_tensors(model), str(folder / "model.safetensors"))
    return folder


def test_a_new_family_is_named_by_its_record(new_encoder):
    tensors = load_file(str(new_encoder / "model.safetensors"))
    for name in (
        "trunk.embeddings.word_embeddings.weight",
        "trunk.widen.weight",
        "trunk.blocks.0.inner.attention.query.weight",
        "trunk.first.dense.weight",
        "score.weight",
    ):
        assert name in tensors
    assert not [name for name in tensors if "blocks.1" in name]
    config = json.loads((new_encoder / "config.json").read_text())
    assert config["architectures"] == ["NovelForSequenceClassification"]
    assert (config["pad_token_id"], config["embedding_size"]) == (2, 12)
    assert config["score_dropout"] == 0.1
    # The tensors name the family where model_type does not.
    path = new_encoder / "config.json"
    expected = from_huggingface(config, path, ())
    del config["model_type"], config["embedding_size"], config["pad_token_id"]
    assert from_huggingface(config, path, tensors) == expected
    with pytest.raises(EncoderError, match="expected one of .*, albert, new"):
        from_huggingface(config, path, ())


def test_a_new_family_converts_and_ranks(new_encoder, tmp_path):
    report = convert(new_encoder, tmp_path / "run")
    assert str(report).startswith("family      new, 3 layers")
    assert report.system == "pairwise" and not report.unused
    assert json.loads((tmp_path / "run" / "config.json").read_text())["backbone"]["layout"] == "new"
    stored = read_run_config(tmp_path / "run" / "config.json")
    assert stored.backbone == read_backbone_config(new_encoder)
    head = load_classifier(new_encoder).head(0)
    assert head.pooler is head.dense
    scores = load_ranker(tmp_path / "run").rank(QUESTION, CANDIDATES).scores
    np.testing.assert_array_equal(
        load_ranker(new_encoder).rank(QUESTION, CANDIDATES).scores, scores
    )
    export_huggingface(tmp_path / "run", tmp_path / "back")
    tensors = load_file(str(tmp_path / "back" / "model.safetensors"))
    for name, value in load_file(str(new_encoder / "model.safetensors")).items():
        np.testing.assert_array_equal(tensors[name], value, err_msg=name)


def edited_mpnet(folder, shape=None, **settings):
    """A copy of the tiny MPNet with other settings, or with a table of another shape."""
    config = json.loads((DATA / "tiny_mpnet" / "config.json").read_text())
    tensors = load_file(str(DATA / "tiny_mpnet" / "model.safetensors"))
    if shape:
        tensors["mpnet.encoder.relative_attention_bias.weight"] = np.ones(shape, np.float32)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("name", ["tiny_bert", "tiny_mpnet", "tiny_xlm_roberta", "tiny_distilbert"])
def test_ids_that_an_encoder_does_not_have_are_refused(name, hybridized):
    backbone = load_backbone(DATA / name)
    backbone.hybridize(hybridized)
    length = backbone.config.max_positions
    long, other = mx.nd.full((1, length + 1), 7), mx.nd.array([[7, backbone.config.vocab_size]])
    for ids, named in ((long, f"{length + 1} tokens"), (other, "id"), (-other, "id -")):
        lengths = mx.nd.array([ids.shape[1]])
        with pytest.raises(OptionError, match=named):
            backbone(ids, mx.nd.zeros_like(ids), lengths)
        with pytest.raises(OptionError, match=named):
            backbone.hidden_states(ids, lengths)
        with pytest.raises(OptionError, match=named):
            PairwiseTransformer(backbone.config)(ids, mx.nd.zeros_like(ids), lengths)
    assert backbone(long[:, 1:]).shape == (1, length, backbone.config.units)


@pytest.mark.parametrize("name", ["tiny_mpnet", "tiny_xlm_roberta", "tiny_distilbert"])
def test_a_classifier_goes_back_to_its_own_library(name, tmp_path):
    """The written tensors are the read ones, and the scores of the directory stay."""
    expected = np.load(DATA / name / "expected.npz")
    model = load_classifier(DATA / name)
    rows = [mx.nd.array(expected[key]) for key in ("token_ids", "token_types", "valid_length")]
    written = huggingface_tensors(model)
    folder = tmp_path / "back"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_huggingface(model.backbone.config)))
    save_file(written, str(folder / "model.safetensors"))
    again = load_classifier(folder)
    np.testing.assert_allclose(again(*rows).asnumpy(), model(*rows).asnumpy(), atol=1e-6)
    original = load_file(str(DATA / name / "model.safetensors"))
    assert {key for key in written if "classifier" not in key} <= set(original)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "model."])
def test_names_of_tensors_in_a_wrapper(tmp_path, prefix):
    folder = edited_mpnet(tmp_path / "encoder")
    tensors = load_file(str(folder / "model.safetensors"))
    wrapped = {prefix + name: values for name, values in tensors.items()}
    save_file(wrapped, str(folder / "model.safetensors"))
    expected = np.load(DATA / "tiny_mpnet" / "expected.npz")
    rows = [mx.nd.array(expected[key]) for key in ("token_ids", "token_types", "valid_length")]
    scores = load_classifier(folder)(*rows).asnumpy()
    logits = expected["logits"]
    np.testing.assert_allclose(scores, logits[:, 1] - logits[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "answer", "noted"),
    [
        ({"0": "LABEL_0", "1": "LABEL_1"}, 1, False),
        ({"0": "not_entailment", "1": "entailment"}, 1, False),
        ({"0": "entailment", "1": "not_entailment"}, 0, False),
        ({"0": "Yes", "1": "No"}, 0, False),
        ({"0": "1", "1": "0"}, 0, False),
        ({"0": "grau", "1": "blau"}, 1, True),
    ],
)
def test_the_names_of_labels_say_which_is_the_answer(tmp_path, caplog, labels, answer, noted):
    folder = edited_mpnet(tmp_path / "encoder", id2label=labels)
    expected = np.load(DATA / "tiny_mpnet" / "expected.npz")
    rows = [mx.nd.array(expected[key]) for key in ("token_ids", "token_types", "valid_length")]
    scores = load_classifier(folder)(*rows).asnumpy()
    logits = expected["logits"]
    np.testing.assert_allclose(scores, logits[:, answer] - logits[:, 1 - answer], atol=1e-5)
    assert len(caplog.records) == noted  # one line, however many tensors the classifier has
