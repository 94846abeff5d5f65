"""Rankers that need no training: the similarity of texts that an encoder reads apart."""

import json

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, assert_same, needs_onednn, needs_precision
from sentences import pairs

from wqa.cli import main
from wqa.data import builtin_path, read_questions
from wqa.data.probe import BaselineName, parse_baseline
from wqa.errors import EncoderError, OptionError, RunDirectoryError
from wqa.systems.dcbert.similarity import MIDPOINT, SCALE, Similarity
from wqa.systems.encode import encode_documents
from wqa.systems.load import load_ranker
from wqa.systems.saving import save_run
from wqa.text import load_tokenizer

TEST = builtin_path("test")


def similarities(ranking):
    """Similarities from 0 to 1 of a ranking's scores."""
    return ranking.scores / SCALE + MIDPOINT


@pytest.fixture(scope="module")
def questions():
    return list(read_questions(TEST))[:3]


@pytest.fixture(params=["maxsim", "cosine"])
def name(request, tiny_encoder):
    return f"{request.param}:{tiny_encoder}"


# The block


@pytest.mark.parametrize("hybridized", [False, True])
def test_similarities_by_hand(hybridized):
    question = np.zeros((2, 4, 2), np.float32)
    question[0] = [(9, 9), (3, 4), (0, 2), (-7, 1)]  # [CLS], two tokens, [SEP]
    question[1, :3] = [(1, 0), (1, 0), (5, 0)]  # [CLS], one token, [SEP], padding
    document = np.array([[(1, 0), (0, 5), (9, -9)], [(0, 1), (3, 4), (1, 0)]], np.float32)
    valid = [mx.nd.array([4, 3]), mx.nd.array([2, 2])]  # the third document rows are padding
    inputs = [mx.nd.array(question), valid[0], mx.nd.array(document), valid[1]]
    expected = {
        # (3, 4) / 5 is nearest to (0, 1) by 0.8, (0, 2) to (0, 1) by 1; (1, 0) to (3, 4) / 5.
        "maxsim": [0.9, 0.6],
        # Sums (5, 16) and (1, 5); (7, 0) and (3, 5).
        "cosine": [85 / np.sqrt(281 * 26), 3 / np.sqrt(34)],
    }
    for interaction, values in expected.items():
        block = Similarity(interaction)
        if hybridized:
            block.hybridize()
        scores = block(*inputs).asnumpy()
        np.testing.assert_allclose(scores, SCALE * (np.array(values) - MIDPOINT), atol=1e-5)


# The ranker


@pytest.mark.parametrize(
    ("engine", "precision", "tolerance"),
    [
        ("mxnet", "float32", 1e-4),
        pytest.param("onednn", "float32", 1e-4, marks=needs_onednn),
        pytest.param("onednn", "bfloat16", 0.5, marks=needs_precision("bfloat16")),
        pytest.param("onednn", "int8", 0.5, marks=needs_precision("int8")),
    ],
)
def test_scores_are_those_of_the_network_pair_by_pair(
    name, questions, engine, precision, tolerance
):
    ranker = load_ranker(name, engine=engine, precision=precision)
    assert ranker.capabilities.system == name.partition(":")[0]
    network = ranker.network
    network.hybridize(False)
    for question, ranking in zip(questions, ranker.rank_all(questions)):
        pairs_of_question = ranker.inputs.encode(question.question, question.texts)
        for pair, score in zip(pairs_of_question, ranking.scores):
            inputs = [mx.nd.array(array) for array in ranker.inputs.pad([pair])]
            inputs[0], inputs[2] = inputs[0].astype("int32"), inputs[2].astype("int32")
            assert abs(network(*inputs).asscalar() - score) < tolerance
        assert ranking.order.tolist() == np.argsort(-ranking.scores, kind="stable").tolist()


@needs_precision("int8")
def test_a_run_is_calibrated_as_it_is_loaded(name, questions, tmp_path):
    ranker, run = load_ranker(name), tmp_path / "run"
    save_run(ranker.network, ranker.inputs, run)
    by_run, by_name = (load_ranker(each, precision="int8") for each in (run, name))
    for own, other in zip(by_run.rank_all(questions), by_name.rank_all(questions)):
        np.testing.assert_allclose(own.scores, other.scores, atol=1e-4)
    with pytest.raises(OptionError, match="engine and precision: mxnet and int8"):
        load_ranker(run, precision="int8", engine="mxnet")


def test_runs_lend_their_encoders(tiny_run, dcbert_run, questions, tmp_path):
    texts = questions[0].texts
    for run in (tiny_run, dcbert_run):
        network = load_ranker(run).network
        ranker = load_ranker(f"cosine:{run}")
        record = json.loads((run / "config.json").read_text())
        assert ranker.inputs.max_length == record["max_length"]
        ends = network.encoders[0], network.encoders[-1]
        for mine, theirs in zip(ranker.network.encoders, ends):
            assert_same(mine, theirs)
        assert np.isfinite(ranker.rank("why ?", texts).scores).all()
    with pytest.raises(OptionError, match="a TwoEncoderSimilarity, which is no system"):
        save_run(ranker.network, ranker.inputs, tmp_path / "run")


# Training


@pytest.mark.once
@pytest.mark.parametrize(
    "engine, interaction",
    [("mxnet", "maxsim"), pytest.param("onednn", "cosine", marks=needs_onednn)],
)
def test_training_starts_as_the_untrained_ranker(
    tiny_encoder, questions, tmp_path, engine, interaction
):
    untrained, scores = f"{interaction}:{tiny_encoder}", {}
    data = [f"--{part}={builtin_path(part)}" for part in ("train", "dev")]
    for rate in ("1e-9", "1e-3"):
        options = ["--engine", engine, "--interaction", interaction, "--learning-rate", rate]
        options += ["--encoder", str(tiny_encoder), "--max-updates", "4", "--log-every", "1"]
        assert main(["train", "similarity", *data, "--out", str(tmp_path / rate), *options]) == 0
        ranker = load_ranker(tmp_path / rate)
        scores[rate] = [ranking.scores for ranking in ranker.rank_all(questions)]
    first = [ranking.scores for ranking in load_ranker(untrained).rank_all(questions)]
    np.testing.assert_allclose(np.concatenate(scores["1e-9"]), np.concatenate(first), atol=1e-3)
    assert np.abs(np.concatenate(scores["1e-3"]) - np.concatenate(first)).max() > 0.1
    run = tmp_path / "1e-3"
    again = load_ranker(f"{interaction}:{run}").rank_all(questions)
    for ranking, own in zip(again, scores["1e-3"]):
        np.testing.assert_allclose(ranking.scores, own, atol=1e-4)
    *_, compared = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert list(compared["compared"])[:2] == ["bm25", untrained]
    # The run stands for the ranker that it was.
    assert json.loads((run / "ensemble.json").read_text())["ensemble"] == ["bm25", "."]


def test_a_run_to_start_from_is_compared_by_its_similarity(tiny_run, tmp_path):
    data = [f"--{part}={builtin_path(part)}" for part in ("train", "dev")]
    command = ["train", "similarity", *data, "--init", str(tiny_run), "--out", str(tmp_path / "a")]
    assert main([*command, "--max-updates", "1", "--learning-rate", "1e-9"]) == 0
    *_, last = map(json.loads, (tmp_path / "a" / "metrics.jsonl").read_text().splitlines())
    figures = last["compared"]
    assert figures["run"]["map"] == pytest.approx(figures[f"maxsim:{tiny_run}"]["map"])
    assert json.loads((tmp_path / "a" / "ensemble.json").read_text())["ensemble"] == ["bm25", "."]


def test_labels_teach_an_encoder_which_texts_match(tiny_encoder, questions, tmp_path):
    run, few = tmp_path / "run", tmp_path / "few.jsonl"
    few.write_text("".join(TEST.read_text().splitlines(keepends=True)[: len(questions)]))
    data = ["train", "similarity", "--train", few]
    more = ["--epochs", 30, "--learning-rate", 3e-3, "--seed", 1, "--tokens-per-batch", 800]
    assert main([*map(str, [*data, "--encoder", tiny_encoder, "--out", run, *more])]) == 0
    orders = (ranking.order for ranking in load_ranker(run).rank_all(questions))
    assert all(question.labels[order[0]] for question, order in zip(questions, orders))
    again = tmp_path / "again"
    more = ["--max-updates", 1, "--learning-rate", 1e-9]
    assert main([*map(str, [*data, "--init", run, "--out", again, *more])]) == 0
    rankings = (load_ranker(each).rank_all(questions) for each in (run, again))
    for first, second in zip(*rankings):
        np.testing.assert_allclose(first.scores, second.scores, atol=1e-3)


def test_settings_of_a_similarity_are_checked(tiny_encoder, dcbert_run, tmp_path, capsys):
    command = ["train", "similarity", "--train", str(TEST), "--out", str(tmp_path / "run")]
    for option, error in (
        ("--interaction=dot", "invalid choice: 'dot' (choose from 'maxsim', 'cosine')"),
        ("--question-length=2", "--question-length: 2; expected a whole number from 3"),
        ("--question-length=9999", "--question-length: 9999; expected at most 160, the positions"),
        ("--max-length=9999", "--max-length: 9999; expected at most 160, the positions"),
        (f"--init={dcbert_run}", "parameter backbone.embeddings.position_weight is missing"),
    ):
        start = [] if "init" in option else ["--encoder", str(tiny_encoder)]
        assert main([*command, option, *start]) == 2
        assert error in capsys.readouterr().err and not list(tmp_path.glob("run/*"))


# Names


def test_names_of_similarities(tmp_path, monkeypatch, tiny_encoder):
    monkeypatch.chdir(tmp_path)
    minilm = BaselineName("maxsim", encoder="minilm")
    assert parse_baseline("minilm") == parse_baseline("maxsim:minilm") == minilm
    assert str(parse_baseline("cosine:some/encoder")) == "cosine:some/encoder"
    with pytest.raises(OptionError, match="expected cosine:ENCODER, such as cosine:minilm"):
        parse_baseline("cosine")
    (tmp_path / "minilm").mkdir()
    assert parse_baseline("minilm") is None
    (tmp_path / "folder" / "tiny").mkdir(parents=True)
    # A name in a file is a path beside the file.
    assert parse_baseline("cosine:tiny", tmp_path / "folder").encoder.endswith("folder/tiny")
    with pytest.raises(EncoderError, match="there is no such directory or archive"):
        load_ranker("cosine:nothing/at/all/here")


def test_a_run_without_an_encoder_is_refused(tiny_words, tmp_path, capsys):
    run = tmp_path / "cosinet"
    command = ["train", "cosinet", "--words", tiny_words, "--train", builtin_path("dev")]
    assert main([*map(str, [*command, "--out", run, "--max-updates", 1])]) == 0
    with pytest.raises(RunDirectoryError, match="a run of cosinet; expected a run with an encoder"):
        load_ranker(f"maxsim:{run}")


# Commands


def test_commands_read_a_cache_and_count_it(name, questions, tmp_path, capsys):
    documents, data = tmp_path / "documents.jsonl", tmp_path / "data.jsonl"
    question = questions[0]
    ids = [f"D{number}" for number in range(len(question.texts))]
    lines = [json.dumps({"id": id, "text": text}) for id, text in zip(ids, question.texts)]
    documents.write_text("\n".join(lines) + "\n")
    rows = [
        {"id": id, "text": text, "label": candidate.label}
        for id, text, candidate in zip(ids, question.texts, question.candidates)
    ]
    row = {"id": "Q", "question": question.question, "candidates": rows}
    data.write_text(json.dumps(row) + "\n")
    cache = tmp_path / "cache"
    more = ["--store", "float32"]
    assert main(["encode", name, "--documents", str(documents), "--out", str(cache), *more]) == 0
    assert encode_documents(name, documents, cache, store="float32")["documents"] == len(ids)
    capsys.readouterr()
    assert main(["evaluate", name, "--data", str(data), "--cache", str(cache)]) == 0
    assert f"all {len(ids)} documents came from the cache" in capsys.readouterr().err
    [stored] = read_questions(data)
    [cached] = load_ranker(name, cache=cache).rank_all([stored])
    [encoded] = load_ranker(name).rank_all([stored])
    np.testing.assert_allclose(cached.scores, encoded.scores, atol=1e-4)
    assert cached.cost.candidate_work < encoded.cost.candidate_work
    with pytest.raises(OptionError, match="cache: with rr, which reads no encodings"):
        load_ranker("rr", cache=cache)
    # A sequence hands the cache to the ranker that reads it.
    sequence = tmp_path / "sequence.json"
    sequence.write_text(json.dumps({"rankers": ["wo+rr", name], "keep": [2]}))
    [ranking] = load_ranker(sequence, cache=cache).rank_all([stored])
    best = ranking.order[:2]
    np.testing.assert_allclose(ranking.scores[best], cached.scores[best], atol=1e-4)


# all-MiniLM-L6-v2


def test_minilm_answers_without_training(minilm):
    texts = (
        "Steam that is forced through a small hole makes the whistle of the kettle sound.",
        "Tea is made from the leaves of a shrub.",
    )
    ranking = load_ranker("minilm").rank("why does a kettle whistle ?", texts)
    assert ranking.order.tolist() == [0, 1] and ranking.scores[0] > 1 > -1 > ranking.scores[1]


@pytest.mark.parametrize("engine", ["mxnet", pytest.param("onednn", marks=needs_onednn)])
def test_cosines_are_those_of_its_own_package(minilm, engine):
    pooled = np.load(DATA / "minilm_pooled.npz")["pooled"].astype(np.float64)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    texts = [candidate for _, candidate in pairs()[:1000:5]]
    short = [len(ids) <= 126 for ids in load_tokenizer(minilm).encode(texts)]
    kept = np.flatnonzero(short)
    ranker = load_ranker("cosine:minilm", engine=engine)
    ranking = ranker.rank(texts[kept[0]], [texts[index] for index in kept])
    expected = pooled[kept] @ pooled[kept[0]]
    assert len(kept) > 150
    np.testing.assert_allclose(similarities(ranking), expected, atol=1e-5)
