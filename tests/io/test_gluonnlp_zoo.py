"""Encoders of GluonNLP's zoo by name, from a cache in its own layout; nothing is fetched."""

import hashlib
import json
import shutil

import gluonnlp as nlp
import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, dev_run, run_python
from gluonnlp.data import utils as vocabularies
from gluonnlp.model import bert
from mxnet.gluon.model_zoo import model_store
from tiny_encoder import vocabulary

from wqa import load_ranker
from wqa.cli import main
from wqa.config import BACKBONES
from wqa.errors import EncoderError
from wqa.io.encoder_directories import encoder_directory
from wqa.pretrained import from_gluonnlp, load_backbone, read_backbone_config
from wqa.text import PairInputs, load_tokenizer

BYTE_LEVEL = DATA / "tokenizers" / "byte_level"
BERT, ROBERTA = "gluonnlp:bert_2_16_2/tiny_uncased", "gluonnlp:roberta_2_16_2/tiny_cased"
SIZES = {"num_layers": 2, "units": 16, "embed_size": 16, "hidden_size": 32, "num_heads": 2}
TEXTS = ["How are glacier caves formed?", "  it's  1995 , Zürich\n", "a 'quoted' word we've"]
CLOSED = "http://127.0.0.1:9/"  # nothing listens there


def get_model(name, **options):
    """As GluonNLP's, which has a list of names of its own."""
    if name.startswith("roberta"):
        return bert.get_roberta_model(name, **options)
    return bert.get_bert_model(name, **options)


class Zoo:
    """A cache with two tiny encoders of new names, which the library's tables list."""

    def __init__(self, root, patch):
        self.root, self._patch = root, patch
        patch.setattr("gluonnlp.model.get_model", get_model)
        ids = {word: index for index, word in enumerate(vocabulary())}
        self.words = nlp.vocab.BERTVocab(nlp.data.count_tokens(ids), token_to_idx=ids)
        ids = json.loads((BYTE_LEVEL / "vocab.json").read_text(encoding="utf-8"))
        tokens = {"unknown_token": "<unk>", "padding_token": "<pad>", "mask_token": "<mask>"}
        tokens.update(bos_token="<s>", eos_token="</s>")
        self.pieces = nlp.Vocab(nlp.data.count_tokens(ids), token_to_idx=ids, **tokens)
        self.bert = self._make("bert_2_16_2", "tiny_uncased", self.words, mx.nd.zeros((1, 4)))
        self.roberta = self._make("roberta_2_16_2", "tiny_cased", self.pieces)
        name, digest = self._add(BYTE_LEVEL / "merges.txt", "openai_webtext_bpe_ranks-{}.json")
        patch.setattr(nlp.data.GPT2BPETokenizer, "bpe_ranks_file_hash", (name, digest))

    def _make(self, model, dataset, vocab, *types):
        known = f"{model.split('_')[0]}_12_768_12"
        self._patch.setitem(BACKBONES, model, BACKBONES[known])
        settings = {**bert.bert_hparams[known], **SIZES, "max_length": 160}
        self._patch.setitem(bert.bert_hparams, model, settings)
        net, _ = get_model(model, vocab=vocab, pretrained=False)
        mx.random.seed(1)
        net.initialize(mx.init.Normal(0.3))
        net(mx.nd.ones((1, 4)), *types, mx.nd.array([4]), mx.nd.zeros((1, 1)))  # settles the shapes
        new = self.root / "new"
        net.save_parameters(str(new))
        _, digest = self._add(new, f"{model}_{dataset}-{{}}.params")
        self._patch.setitem(model_store._model_sha1, f"{model}_{dataset}", digest)
        new.write_text(vocab.to_json(), encoding="utf-8")
        _, digest = self._add(new, f"{dataset}-{{}}.vocab")
        self._patch.setitem(vocabularies._vocab_sha1, dataset, [digest, ".vocab", {}])
        new.unlink()
        return net

    def _add(self, file, name):
        digest = hashlib.sha1(file.read_bytes()).hexdigest()
        path = self.root / name.format(digest[:8])
        shutil.copy(file, path)
        return path.name, digest

    def file(self, pattern):
        [path] = self.root.glob(pattern)
        return path


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    root = tmp_path / "mxnet" / "models"
    root.mkdir(parents=True)
    monkeypatch.setenv("MXNET_HOME", str(root.parent))
    monkeypatch.setenv("MXNET_GLUON_REPO", CLOSED)
    return Zoo(root, monkeypatch)


@pytest.mark.parametrize("name, files", [(BERT, 2), (ROBERTA, 3)])
def test_an_encoder_of_the_cache(zoo, name, files):
    expected = from_gluonnlp(zoo.roberta if "roberta" in name else zoo.bert)
    backbone = load_backbone(name)
    ids = mx.nd.array([[0, 9, 8, 2], [0, 7, 2, 5]], dtype="int32")
    np.testing.assert_allclose(backbone(ids).asnumpy(), expected(ids).asnumpy(), atol=1e-6)
    assert read_backbone_config(name) == backbone.config == expected.config
    with encoder_directory(name) as folder:
        assert len(list(folder.iterdir())) == files
    assert not folder.exists()


def test_roberta_s_tokens_are_gluonnlp_s(zoo):
    theirs, ours = nlp.data.GPT2BPETokenizer(root=str(zoo.root)), load_tokenizer(ROBERTA)
    assert ours.encode(TEXTS) == [zoo.pieces[theirs(text)] for text in TEXTS]
    assert (ours.start_id, ours.separator_id, ours.padding_id) == (0, 2, 1)


def test_bert_s_pairs_are_gluonnlp_s(zoo):
    tokenizer = nlp.data.BERTTokenizer(zoo.words, lower=True)
    theirs = nlp.data.BERTSentenceTransform(tokenizer, max_seq_length=160, pad=False)
    inputs = PairInputs(load_tokenizer(BERT), 160)
    for text in TEXTS:
        [pair] = inputs.encode("how are caves formed?", [text])
        ids, length, types = theirs(("how are caves formed?", text))
        assert list(pair.token_ids) == ids.tolist() and len(ids) == length
        assert pair.boundary == types.tolist().index(1)


def test_a_directory_with_the_zoo_s_files(zoo, tmp_path):
    for file in (zoo.file("roberta*"), zoo.file("tiny_cased*")):
        shutil.copy(file, tmp_path)
    with pytest.raises(EncoderError, match="without .*openai_webtext_bpe_ranks.*GPT2BPETokenizer"):
        load_tokenizer(tmp_path)
    merges = tmp_path / zoo.file("openai*").name
    shutil.copy(zoo.file("openai*"), merges)
    load_tokenizer(tmp_path).check_fits(load_backbone(tmp_path).config, tmp_path)
    merges.write_text("#version: 0.2\nh e\nĠ t h\n", encoding="utf-8")
    with pytest.raises(EncoderError, match="line 3: 'Ġ t h'; expected two parts of a word"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", [BERT, ROBERTA])
def test_training_starts_from_it(zoo, tmp_path, name):
    run, converted = tmp_path / "run", tmp_path / "converted"
    dev_run("cascade", run, name, exits=(1, 2), max_updates=1, tokens_per_batch=400)
    assert json.loads((run / "config.json").read_text())["encoder"] == name
    ranking = load_ranker(run).rank("how are caves formed?", ["Water melts.", "Tea."])
    assert sorted(ranking.order) == [0, 1]
    assert main(["convert", name, str(converted)]) == 0
    assert read_backbone_config(converted) == read_backbone_config(name)


@pytest.mark.parametrize(
    "name, message",
    [
        ("gluonnlp:", "no MODEL/DATASET of the zoo; expected gluonnlp:bert_12_768_12/book"),
        ("gluonnlp:elmo/gbw", "or one of .*bert_12_768_12"),
        ("gluonnlp:bert_2_16_2/tiny", "no MODEL/DATASET"),
        ("gluonnlp:bert_2_16_2/tiny_cased", "cannot be fetched"),
    ],
)
def test_unknown_names(zoo, name, message):
    for load in (load_backbone, load_tokenizer):
        with pytest.raises(EncoderError, match=message):
            load(name)


@pytest.mark.parametrize("pattern", ["roberta*.params", "tiny_cased*.vocab", "openai*.json"])
def test_a_missing_or_damaged_file_without_a_network(zoo, pattern):
    path = zoo.file(pattern)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(EncoderError, match=f"cannot be fetched to {zoo.root}"):
        load_backbone(ROBERTA)
    path.unlink(missing_ok=True)
    with pytest.raises(EncoderError, match="cannot be fetched") as caught:
        load_backbone(ROBERTA)
    assert caught.value.hint.endswith(f"copy the files to {zoo.root}")
    assert load_backbone(BERT).config.num_layers == 2


def test_a_published_name_without_a_network(tmp_path):
    name = "gluonnlp:roberta_12_768_12/openwebtext_ccnews_stories_books_cased"
    places = {"MXNET_HOME": str(tmp_path / "home"), "MXNET_GLUON_REPO": CLOSED}
    done = run_python("-m", "wqa", "convert", name, "out", variables=places, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    note, line = done.stderr.splitlines()
    assert note.startswith("note: GluonNLP fetches roberta_12_768_12 of openwebtext")
    assert line.startswith(f"error: {name}: cannot be fetched to {tmp_path / 'home' / 'models'}")
