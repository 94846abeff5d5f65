"""Every family through the commands: convert, train, rank, export."""

import json
import shutil

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, assert_same, dev_run, make_tar, with_letters
from safetensors.numpy import load_file, save_file

from wqa.data import builtin_path
from wqa.errors import EncoderError, OptionError, RunDirectoryError
from wqa.pretrained import load_backbone, read_backbone_config
from wqa.systems.convert import convert
from wqa.systems.export import export_huggingface, export_mxnet
from wqa.systems.load import load_ranker
from wqa.text import pad_pairs

QUESTION = "how are glacier caves formed ?"
CANDIDATES = ["Meltwater carves them.", "The moon is bright.", "", "A cave is dark. " * 9]


def scores(path, **options):
    return load_ranker(path, **options).rank(QUESTION, CANDIDATES).scores


def trained(out, source="", **options):
    """A run after one update that starts from an encoder."""
    return dev_run("pairwise", out, source, max_updates=1, tokens_per_batch=200, **options)


def test_the_cascade_trains_and_ranks_on_every_family(family_encoder, tmp_path):
    settings = {"max_updates": 4, "learning_rate": 1e-3, "warmup_updates": 1, "exits": (1, 2, 3)}
    dev_run("cascade", tmp_path / "run", family_encoder, tokens_per_batch=400, **settings)
    expected = scores(tmp_path / "run")
    np.testing.assert_array_equal(scores(tmp_path / "run"), expected)
    assert np.isfinite(expected[[0, 1, 3]]).all() and len(set(expected)) == 4
    ranking = load_ranker(tmp_path / "run", drop_ratio=0.5).rank(QUESTION, CANDIDATES)
    # Of 3 candidates with text the first exit drops 1, the second 1 of 2.
    assert sorted(ranking.exits.tolist()) == [0, 1, 2, 3]
    files = ["README.md", "export.json", "tokenizer.json"]
    for prefix in ("model", "exit_1", "exit_2", "exit_3"):
        files += [f"{prefix}-symbol.json", f"{prefix}-0000.params"]
    assert export_mxnet(tmp_path / "run", tmp_path / "out") == sorted(files)
    ranker, imports = load_ranker(tmp_path / "run"), mx.gluon.SymbolBlock.imports
    pairs = [pair for pair in ranker.inputs.encode(QUESTION, CANDIDATES) if not pair.empty]
    tokenizer = ranker.inputs.tokenizer
    arrays = [
        mx.nd.array(array, dtype=array.dtype)
        for array in pad_pairs(pairs, 128, tokenizer.padding_id, tokenizer.pair_form == "bert")
    ]
    manifest = json.loads((tmp_path / "out" / "export.json").read_text())["networks"]

    def network(prefix):
        path = str(tmp_path / "out" / prefix)
        return imports(f"{path}-symbol.json", manifest[prefix]["inputs"], f"{path}-0000.params")

    np.testing.assert_allclose(network("model")(*arrays).asnumpy(), expected[[0, 1, 3]], atol=1e-5)
    hidden, _ = network("exit_1")(*arrays)
    hidden, _ = network("exit_2")(hidden, arrays[2])
    np.testing.assert_allclose(
        network("exit_3")(hidden, arrays[2])[1].asnumpy(), expected[[0, 1, 3]], atol=1e-5
    )


def test_classifiers_rank_at_once_convert_and_go_back(family_encoder, tmp_path):
    expected = scores(family_encoder)
    np.testing.assert_array_equal(scores(make_tar(tmp_path / "x.tar.gz", family_encoder)), expected)
    assert np.isfinite(scores(trained(tmp_path / "run", tmp_path / "x.tar.gz"))[0])
    report = convert(family_encoder, tmp_path / "converted")
    assert report.system == "pairwise" and not report.unused and report.read == report.mapped
    np.testing.assert_array_equal(scores(tmp_path / "converted"), expected)
    card = (tmp_path / "converted" / "README.md").read_text(encoding="utf-8")
    assert f"| exits | `[{report.config.num_layers}]` |" in card  # as config.json says it
    assert read_backbone_config(tmp_path / "converted") == read_backbone_config(family_encoder)
    assert_same(load_backbone(tmp_path / "converted"), load_backbone(family_encoder))
    names = export_huggingface(tmp_path / "converted", tmp_path / "back")
    settings = ["config.json", "tokenizer_config.json"]
    assert names == sorted(["README.md", "model.safetensors", "tokenizer.json", *settings])
    tensors, again = (
        load_file(str(folder / "model.safetensors"))
        for folder in (family_encoder, tmp_path / "back")
    )
    assert set(tensors) == set(again)
    for name, value in tensors.items():
        np.testing.assert_array_equal(again[name], value)
    np.testing.assert_array_equal(scores(tmp_path / "back"), expected)


def test_a_converted_classifier_starts_both_ways(tiny_encoder, tmp_path):
    from conftest import write_family_encoder

    convert(write_family_encoder(tmp_path / "bert", "bert"), tmp_path / "converted")
    none, before = {"learning_rate": 1e-12, "warmup_updates": 0}, scores(tmp_path / "converted")
    trained(tmp_path / "adapted", init=tmp_path / "converted", **none)
    # Its classifier went along.
    np.testing.assert_allclose(scores(tmp_path / "adapted"), before, atol=1e-6)
    trained(tmp_path / "fresh", tmp_path / "converted", **none)
    assert abs(scores(tmp_path / "fresh")[[0, 1, 3]] - before[[0, 1, 3]]).max() > 1e-2
    pooler = load_ranker(tmp_path / "fresh").network.head(0).dense.weight.data().asnumpy()
    kept = load_ranker(tmp_path / "converted").network.head(0).dense.weight.data().asnumpy()
    np.testing.assert_allclose(pooler, kept, atol=1e-6)  # BERT's pooler is the encoder's


def test_a_zoo_directory_converts_with_its_vocabulary(tmp_path):
    from gluonnlp.model import BERTModel
    from gluonnlp.model.bert import BERTEncoder

    words = (DATA / "tokenizers" / "uncased" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    encoder = BERTEncoder(num_layers=2, units=16, hidden_size=32, num_heads=2, max_length=160)
    sizes = {"vocab_size": len(words), "token_type_vocab_size": 2, "units": 16, "embed_size": 16}
    model = BERTModel(encoder, **sizes)
    model.initialize(mx.init.Normal(0.3))
    # A batch settles the shapes.
    model(mx.nd.ones((1, 4)), mx.nd.zeros((1, 4)), mx.nd.array([4]), mx.nd.array([[1]]))
    (tmp_path / "zoo").mkdir()
    model.save_parameters(str(tmp_path / "zoo" / "bert_2_16_2_corpus_uncased-0123abcd.params"))
    (tmp_path / "zoo" / "corpus_uncased-0123abcd.vocab").write_text(
        json.dumps({"idx_to_token": words})
    )
    report = convert(tmp_path / "zoo", tmp_path / "out")
    assert report.system == "encoder" and all(
        name.startswith(("decoder.", "classifier.")) for name in report.unused
    )
    for run, source in (("a", "zoo"), ("b", "out")):
        trained(tmp_path / run, tmp_path / source)
    np.testing.assert_array_equal(scores(tmp_path / "a"), scores(tmp_path / "b"))


def test_a_shallower_ranker_leaves_the_upper_layers_out(tiny_encoder, tmp_path):
    trained(tmp_path / "run", tiny_encoder, exits=(2,))
    export_huggingface(tmp_path / "run", tmp_path / "out")
    assert read_backbone_config(tmp_path / "out").num_layers == 2
    np.testing.assert_allclose(scores(tmp_path / "out"), scores(tmp_path / "run"), atol=1e-6)
    convert(tmp_path / "run", tmp_path / "again")
    np.testing.assert_array_equal(scores(tmp_path / "again"), scores(tmp_path / "run"))


def test_an_encoder_without_a_classifier(tiny_encoder, tmp_path):
    tensors = load_file(str(tiny_encoder / "model.safetensors"))
    folder = shutil.copytree(tiny_encoder, tmp_path / "encoder")
    more = {**tensors, "cls.predictions.bias": np.zeros(3, np.float32)}
    save_file(more, str(folder / "model.safetensors"))
    report = convert(folder, tmp_path / "converted")
    text = str(report)
    assert report.system == "encoder" and "cls.predictions.bias" in text
    assert f"{len(tensors) + 1} read, {len(tensors)} mapped" in text
    assert_same(load_backbone(tmp_path / "converted"), load_backbone(tiny_encoder))
    for path in (tmp_path / "converted", tiny_encoder):
        with pytest.raises((RunDirectoryError, EncoderError), match="an encoder without a"):
            load_ranker(path)
    for name, source in (("a", tiny_encoder), ("b", tmp_path / "converted")):
        trained(tmp_path / name, source, learning_rate=1e-12)
    # The pooler went along, the seed did the rest.
    np.testing.assert_array_equal(scores(tmp_path / "a"), scores(tmp_path / "b"))
    with pytest.raises(OptionError, match="exists already"):
        convert(folder, tmp_path / "converted")


@pytest.fixture
def checked(tmp_path):
    """The tiny BERT whose outputs are stored, with a vocabulary."""
    return with_letters("tiny_bert", tmp_path)


def test_a_vocabulary_that_does_not_fit(checked, tmp_path, refusal):
    with open(checked / "vocab.txt", "a") as file:
        file.writelines(f"word{number}\n" for number in range(40))
    error = refusal("convert", checked, tmp_path / "out")
    assert "a tokenizer of 81 ids; expected at most 64, the encoder's" in error
    command = ["train", "cascade", "--encoder", checked, "--train", builtin_path("dev")]
    assert "a tokenizer of 81 ids" in refusal(*command, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
