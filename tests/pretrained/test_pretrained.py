import json
import pickle
import shutil
import tarfile

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, make_tar, values_of
from gluonnlp.model import BERTModel, RoBERTaModel
from mxnet import autograd
from safetensors.numpy import load_file, save_file
from sentences import digest, pairs
from test_gluonnlp import REAL, new_encoder, new_model
from test_gluonnlp import inputs as zoo_inputs
from test_hostile_files import archive

from wqa.config import BACKBONES
from wqa.errors import EncoderError
from wqa.io.encoder_directories import encoder_directory
from wqa.models import Backbone
from wqa.pretrained import load_backbone, read_backbone_config
from wqa.pretrained.pickled import PickledTensors
from wqa.pretrained.source import Source
from wqa.systems.pairwise.network import PairwiseTransformer
from wqa.text import PairInputs, load_tokenizer

TINY = [
    "tiny_bert",
    "tiny_roberta",
    "tiny_xlm_roberta",
    "tiny_mpnet",
    "tiny_distilbert",
    "tiny_electra",
    "tiny_electra_small",
    "tiny_albert_v1",
    "tiny_albert_v2",
]


def expected_inputs(expected):
    ids, types = (mx.nd.array(expected[key], dtype="int32") for key in ("token_ids", "token_types"))
    real = np.arange(ids.shape[1])[None] < expected["valid_length"][:, None]
    return ids, types, mx.nd.array(expected["valid_length"]), real


@pytest.mark.parametrize("name", [*TINY, "minilm"])
def test_hidden_states_equal_the_references(name, request):
    folder = request.getfixturevalue("minilm") if name == "minilm" else DATA / name
    expected = np.load(
        DATA / "minilm_expected.npz" if name == "minilm" else folder / "expected.npz"
    )
    backbone = load_backbone(folder)
    ids, types, lengths, real = expected_inputs(expected)
    states = backbone.hidden_states(ids, lengths, types)
    assert len(states) == backbone.config.num_layers + 1
    stride = 4 if name == "minilm" else 1
    for ours, theirs in zip(states, expected["states"]):
        np.testing.assert_allclose(ours.asnumpy()[..., ::stride][real], theirs[real], atol=1e-4)
    backbone.hybridize()
    np.testing.assert_allclose(
        backbone(ids, types, lengths).asnumpy()[real], states[-1].asnumpy()[real], atol=1e-5
    )
    # A row alone, without padding, gives the same.
    length = int(expected["valid_length"][1])
    alone = backbone.hidden_states(ids[1:2, :length], lengths[1:2], types[1:2, :length])
    for ours, theirs in zip(alone, expected["states"]):
        np.testing.assert_allclose(ours.asnumpy()[0][:, ::stride], theirs[1, :length], atol=1e-4)


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("name", TINY)
def test_gradients_equal_the_references(name, hybridized):
    expected, backbone = np.load(DATA / name / "expected.npz"), load_backbone(DATA / name)
    if hybridized:
        backbone.hybridize()
    ids, types, lengths, real = expected_inputs(expected)
    with autograd.record(train_mode=False):  # gradients without dropout
        hidden = backbone(ids, types, lengths)
        total = (hidden * mx.nd.array(expected["weights"] * real[..., None])).sum()
    total.backward()
    parameters, layer = backbone._collect_params_with_prefix(), 0 if "albert" in name else 1
    positions = real.sum(axis=0).astype(bool)
    for key, ours in (
        ("words", "embeddings.word.weight"),
        ("positions", "embeddings.position_weight"),
        ("ffn_1", f"layers.{layer}.ffn_1.weight"),
        ("qkv", f"layers.{layer}.qkv.weight"),
        ("norm", f"layers.{layer}.attention_norm.gamma"),
        ("relative", "layers.relative_positions.weight"),
    ):
        if ours not in parameters:
            continue
        reference, gradient = expected[f"gradient_of_{key}"], parameters[ours].grad().asnumpy()
        assert abs(reference).max() > 0.1 and gradient.shape == reference.shape
        rows = slice(None)
        if key == "words":  # the reference computes no gradient for the padding token
            rows = np.arange(len(reference)) != expected["token_ids"][0, 5]
        elif key == "positions":
            first = backbone.config.first_position
            rows = slice(first, first + len(positions))
        np.testing.assert_allclose(gradient[rows], reference[rows], atol=1e-3, err_msg=key)


@pytest.mark.parametrize("name", TINY)
def test_classifiers_give_the_references_scores(name):
    expected, source = np.load(DATA / name / "expected.npz"), Source(DATA / name)
    model = PairwiseTransformer(source.config)
    model.initialize()
    source.fill(model.backbone)
    source.fill_classifier(model.head(0))
    ids, types, lengths, _ = expected_inputs(expected)
    theirs = expected["logits"][:, -1]
    if expected["logits"].shape[1] == 2:  # log-odds of softmax's second label
        theirs = theirs - expected["logits"][:, 0]
    for hybridized in (False, True):
        model.hybridize(hybridized)
        np.testing.assert_allclose(model(ids, types, lengths).asnumpy(), theirs, atol=1e-5)
    assert not source.unused() and not source.missing()


# Counts of the reference library's models: without a pooler, and with it where the family has one.
@pytest.mark.parametrize(
    "name, count, pooled",
    [
        ("bert_6_384_12", 22565376, 22713216),
        ("bert_12_768_12", 108891648, 109482240),
        ("bert_24_1024_16", 334092288, 335141888),
        ("roberta_12_768_12", 124055040, None),
        ("roberta_24_1024_16", 354310144, None),
        ("electra_12_256_4", 13483008, None),
        ("electra_12_768_12", 108891648, None),
        ("electra_24_1024_16", 334092288, None),
        ("albert_12_768_12", 11092992, 11683584),
        ("albert_24_1024_16", 16634368, 17683968),
        ("albert_24_2048_16", 54528512, 58724864),
        ("albert_12_4096_64", 205814272, 222595584),
    ],
)
def test_parameter_counts(name, count, pooled):
    config = BACKBONES[name]
    assert Backbone(config).parameter_count() == count
    assert pooled is None or count + config.units * (config.units + 1) == pooled


@pytest.mark.parametrize("name", ["zip", "legacy", "bfloat16", "half_transposed"])
def test_pickled_tensors_equal_safetensors(name):
    tensors = load_file(str(DATA / "tiny_bert" / "model.safetensors"))
    pickled = PickledTensors(DATA / "pickled" / f"{name}.bin")
    shapes = {key: shape for key, shape in pickled.shapes.items() if "position_ids" not in key}
    assert shapes == {key: value.shape for key, value in tensors.items()}
    rtol = {"bfloat16": 2**-8, "half_transposed": 2**-10}.get(name, 0)
    for key, value in tensors.items():
        np.testing.assert_allclose(
            pickled.read(key).astype(np.float32), value, rtol=rtol, atol=1e-6 if rtol else 0
        )


def test_views_of_one_storage():
    pickled = PickledTensors(DATA / "pickled" / "views.bin")
    assert pickled.shapes == {"a": (2, 3), "b": (6,), "n": (), "e": (0, 4)}
    assert pickled.read("a").tolist() == [[2, 3, 4], [5, 6, 7]]
    assert pickled.read("b").tolist() == list(range(0, 12, 2))
    assert pickled.read("n") == 3 and pickled.read("n").dtype == np.int64
    assert pickled.read("e").shape == (0, 4)


class Evil:
    def __reduce__(self):
        return eval, ("open('evil', 'w').close()",)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_asks_for_anything_else_is_refused(tmp_path, monkeypatch, legacy):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"weight": Evil()}, protocol=2)
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
    path = archive(tmp_path / "x.bin", content)
    if legacy:
        path.write_bytes(magic + content)
    with pytest.raises(EncoderError, match=r"(__builtin__|builtins).eval"):
        PickledTensors(path)
    assert not (tmp_path / "evil").exists()
    with pytest.raises(EncoderError, match="torch.nn.modules.linear.Linear|NEWOBJ"):
        PickledTensors(DATA / "pickled" / "module.bin")


def test_broken_pickles(tmp_path):
    path, whole = tmp_path / "x.bin", (DATA / "pickled" / "zip.bin").read_bytes()
    legacy = (DATA / "pickled" / "legacy.bin").read_bytes()
    for content in (
        whole[: len(whole) // 2],
        legacy[: len(legacy) // 2],
        b"",
        archive(path, pickle.dumps([1], 2)).read_bytes(),
    ):
        path.write_bytes(content)
        with pytest.raises(EncoderError, match="x.bin"):
            PickledTensors(path)


def write(folder, tensors, **files):
    folder.mkdir(exist_ok=True)
    shutil.copy(DATA / "tiny_bert" / "config.json", folder)
    for name, part in files.items():
        save_file({key: tensors[key] for key in part}, str(folder / f"{name}.safetensors"))
    return folder


def assert_same(folder, atol=0.0):
    """Hold an encoder to the tiny BERT."""
    found, expected = (values_of(load_backbone(path)) for path in (folder, DATA / "tiny_bert"))
    assert set(found) == set(expected)
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], atol=atol, err_msg=name)


def test_every_form_of_the_weights_loads_alike(tmp_path):
    tensors = load_file(str(DATA / "tiny_bert" / "model.safetensors"))
    for kind in ("zip", "legacy"):
        folder = write(tmp_path / kind, tensors)
        shutil.copy(DATA / "pickled" / f"{kind}.bin", folder / "pytorch_model.bin")
        assert_same(folder)
    names = sorted(tensors)
    shards = {"model-00001-of-00002": names[:20], "model-00002-of-00002": names[20:]}
    folder = write(tmp_path / "sharded", tensors, **shards)
    files = {}
    for shard, part in shards.items():
        files.update(dict.fromkeys(part, f"{shard}.safetensors"))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    assert_same(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(EncoderError, match="names a shard 'model-00002-of-00002.safetensors'"):
        load_backbone(folder)
    folder = write(tmp_path / "bin_sharded", tensors)
    shutil.copy(DATA / "pickled" / "zip.bin", folder / "pytorch_model-00001-of-00001.bin")
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(names, "pytorch_model-00001-of-00001.bin")})
    )
    assert_same(folder)


def test_half_precision_and_bfloat16_are_widened(tmp_path):
    tensors = load_file(str(DATA / "tiny_bert" / "model.safetensors"))
    halves = {name: value.astype(np.float16) for name, value in tensors.items()}
    assert_same(write(tmp_path / "half", halves, model=halves), atol=1e-3)
    raw, header = b"", {}
    for name, value in tensors.items():
        start = len(raw)
        raw += (value.view("<u4") >> 16).astype("<u2").tobytes()
        offsets = [start, len(raw)]
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": offsets}
    head = json.dumps(header).encode()
    folder = write(tmp_path / "bfloat16", tensors)
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + raw)
    assert_same(folder, atol=2e-2)


def test_the_first_names_of_norms_and_no_family(tmp_path):
    """Directories from before 2020: gamma and beta, and a config.json without model_type."""
    tensors = {}
    for name, value in load_file(str(DATA / "tiny_bert" / "model.safetensors")).items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        tensors[name.replace("LayerNorm.bias", "LayerNorm.beta")] = value
    folder = write(tmp_path / "old", tensors, model=tensors)
    config = json.loads((folder / "config.json").read_text())
    for field in ("model_type", "architectures"):
        config.pop(field, None)
    (folder / "config.json").write_text(json.dumps(config))
    assert_same(folder)
    folder = tmp_path / "tanda"
    shutil.copytree(DATA / "tiny_roberta", folder)
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))
    assert read_backbone_config(folder) == read_backbone_config(DATA / "tiny_roberta")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_zoo_files_load_as_gluonnlp_computes(tmp_path, family):
    kind, epsilon = {"bert": (BERTModel, 1e-12), "roberta": (RoBERTaModel, 1e-5)}[family]
    encoder = new_encoder(layer_norm_eps=epsilon, output_all_encodings=True)
    model = new_model(kind, encoder, use_decoder=False)
    ids, types, lengths = zoo_inputs()
    if family == "roberta":
        types = mx.nd.zeros_like(types)
        states = model(ids, lengths)
    else:
        states = model(ids, types, lengths)[0]
    path = tmp_path / f"{family}_2_16_2_corpus_uncased-0123abcd.params"
    model.save_parameters(str(path))
    backbone = load_backbone(tmp_path)
    config = backbone.config
    assert (config.family.name, config.num_layers, config.max_positions) == (family, 2, 12)
    for ours, theirs in zip(
        backbone.hidden_states(ids, lengths, types)[1:],
        states if isinstance(states, list) else states[0],
    ):
        np.testing.assert_allclose(ours.asnumpy()[REAL], theirs.asnumpy()[REAL], atol=1e-5)
    path.rename(tmp_path / "weights.params")
    with pytest.raises(EncoderError, match="a name without sizes.*bert_12_768_12"):
        load_backbone(tmp_path)
    (tmp_path / "weights.params").rename(tmp_path / f"{family}_3_16_2.params")
    with pytest.raises(EncoderError, match="missing tensors: encoder.transformer_cells.2.*;"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("name", ["uncased", "cased", "byte_level", "sentencepiece", "minilm"])
def test_pairs_give_the_references_ids(name, request):
    folder = request.getfixturevalue("minilm") if name == "minilm" else DATA / "tokenizers" / name
    inputs = PairInputs(load_tokenizer(folder), 100_000)
    expected = np.load(DATA / "tokenizers" / name / "expected.npz")
    rows = [inputs.encode(question, [candidate])[0].token_ids for question, candidate in pairs()]
    assert len(rows) > 2000
    digests = np.array([digest(ids) for ids in rows])
    if name != "sentencepiece":
        np.testing.assert_array_equal(digests, expected["compiled"])
        return
    # SentencePiece itself; where segmentations of a long run have one score, it may order equal
    # pieces otherwise.
    assert sum(digests == expected["python"]) > 2000
    assert [digest(sorted(ids)) for ids in rows] == expected["python_sorted"].tolist()


def test_a_cased_vocabulary_without_settings_is_seen_as_such(tmp_path):
    shutil.copy(DATA / "tokenizers" / "cased" / "vocab.txt", tmp_path)
    assert load_tokenizer(tmp_path).encode(["Who"]) != load_tokenizer(tmp_path).encode(["who"])
    shutil.copy(DATA / "tokenizers" / "uncased" / "vocab.txt", tmp_path)
    assert load_tokenizer(tmp_path).encode(["Who"]) == load_tokenizer(tmp_path).encode(["who"])


def test_the_zoos_vocabulary(tmp_path):
    words = (DATA / "tokenizers" / "uncased" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "corpus_uncased-0123abcd.vocab").write_text(
        json.dumps({"idx_to_token": words, "token_to_idx": {}})
    )
    texts = ["How are glacier caves formed?", "Zürich"]
    assert load_tokenizer(tmp_path).encode(texts) == load_tokenizer(
        DATA / "tokenizers" / "uncased"
    ).encode(texts)
    (tmp_path / "corpus_uncased-0123abcd.vocab").write_text(json.dumps({"idx_to_token": ["a"]}))
    with pytest.raises(EncoderError, match="no vocabulary of words"):
        load_tokenizer(tmp_path)


def test_archives(tmp_path):
    for name in ("x.tar", "x.tar.gz"):
        assert_same(make_tar(tmp_path / name, DATA / "tiny_bert"))
    with encoder_directory(tmp_path / "x.tar") as folder:
        assert (folder / "config.json").exists()
    assert not folder.exists()
    for name, kind in (("up", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
        # Members that are no files of the encoder are left out.
        assert_same(make_tar(tmp_path / "evil.tar", DATA / "tiny_bert", **{name: kind}))
    assert not list(tmp_path.glob("**/evil"))
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "x.tar.gz").read_bytes()[:2000])
    with pytest.raises(EncoderError, match="cut.tar.gz: cannot be"):
        load_backbone(tmp_path / "cut.tar.gz")
    config, parts = DATA / "tiny_bert" / "config.json", tmp_path / "parts.tar"
    with tarfile.open(parts, "w") as tar:  # as of sentence-transformers
        tar.add(DATA / "tiny_bert", "enc")
        tar.add(config, "enc/1_Pooling/config.json")
    assert_same(parts)
    with tarfile.open(tmp_path / "two.tar", "w") as tar:
        for name in ("a", "b"):
            tar.add(config, f"{name}/config.json")
    with pytest.raises(EncoderError, match=r"holds 2 encoders \(a/config.json, b/config.json\)"):
        load_backbone(tmp_path / "two.tar")


def test_broken_encoders(tmp_path):
    with pytest.raises(EncoderError, match="config.json: the file is missing"):
        load_backbone(tmp_path)
    tensors = load_file(str(DATA / "tiny_bert" / "model.safetensors"))
    folder, path = write(tmp_path / "tiny", tensors), tmp_path / "tiny" / "model.safetensors"
    with pytest.raises(EncoderError, match="tiny: holds no weights"):
        load_backbone(folder)
    name = "bert.encoder.layer.1.attention.self.key.weight"
    save_file({key: value for key, value in tensors.items() if key != name}, str(path))
    with pytest.raises(EncoderError, match="encoder.layer.1.attention.self.key.weight"):
        load_backbone(folder)
    save_file({**tensors, name: tensors[name][:, :-1].copy()}, str(path))
    with pytest.raises(EncoderError, match=rf"{name}: .*\(16, 15\).*\(16, 16\)"):
        load_backbone(folder)
    path.write_bytes((DATA / "tiny_bert" / "model.safetensors").read_bytes()[:9000])
    with pytest.raises(EncoderError, match="model.safetensors: cannot be read"):
        load_backbone(folder)
    save_file(tensors, str(path))
    (folder / "pytorch_model.bin").write_bytes(b"not read beside the other form")
    assert_same(folder)
