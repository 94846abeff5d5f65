"""What networks on lists share: inputs, recurrence, losses, training, ranking and export."""

import json
import math
import shutil

import mxnet as mx
import numpy as np
import pytest
from conftest import logged, wqa
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import EngineConfig, TrainingConfig, read_run_config
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.digests import forget_digests
from wqa.data.word_vectors import WordVectors, read_word_vectors
from wqa.errors import DataError, OptionError, QuestionTooLong, RunDirectoryError, ScoreError
from wqa.evaluation import by_document_id
from wqa.models.heads import Recurrence
from wqa.systems.cosinet.inputs import ListInputs, plan_lists
from wqa.systems.cosinet.lists import ListConfig
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.registry import build_network
from wqa.systems.train import train
from wqa.text import WordTokenizer, embedding_matrix

NAMES = ("cosinet", "compare_aggregate")
#: Settings of a training of a few updates.
SHORT = {"epochs": 2, "tokens_per_batch": 1500, "log_every": 2, "checkpoint_every": 3}


@pytest.fixture(scope="module")
def questions():
    """Ten questions to train on, and five to evaluate on."""
    questions = list(read_questions(builtin_path("dev")))
    return {"train": questions[:10], "dev": questions[10:15]}


@pytest.fixture(scope="module")
def files(questions, tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    for name, some in questions.items():
        write_questions(folder / f"{name}.jsonl", some)
    return {name: folder / f"{name}.jsonl" for name in questions}


def training(files, words, out, *more):
    """Arguments of a training of a few updates."""
    options = {
        "--words": words,
        "--train": files["train"],
        "--dev": files["dev"],
        "--out": out,
        "--epochs": 2,
        "--tokens-per-batch": 1500,
        "--log-every": 2,
    }
    given_options = [part for option in options.items() for part in option]
    return ["train", "cosinet", *given_options, *more]


@pytest.fixture(scope="module")
def run(files, tiny_words, tmp_path_factory):
    """A run of Cosinet with a recurrent layer in both directions."""
    out = tmp_path_factory.mktemp("runs") / "cosinet"
    assert wqa(*training(files, tiny_words, out, "--recurrent", "birnn")) == 0
    return out


def small_ranker(recurrent="birnn", max_length=16, system="cosinet", **options):
    """A ranker with random parameters on ten words, "w0" to "w9"."""
    words = [f"w{number}" for number in range(10)]
    vectors = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
    table = WordVectors(words, vectors)
    tokenizer = WordTokenizer.of_table(table, 8)
    matrix = embedding_matrix(table, 8)
    network = build_network(system, rows=len(matrix), width=4, recurrent=recurrent)
    mx.random.seed(7)
    network.initialize(mx.init.Normal(0.1))
    network.vectors.set_data(mx.nd.array(matrix))
    inputs = network.text_inputs(tokenizer, max_length, options.pop("long_questions", "error"))
    return build_ranker(system, network, inputs, **options)


# Configuration


@pytest.mark.parametrize(
    "options, message",
    [
        ({"loss": "pairwise"}, "loss: 'pairwise'"),
        ({"loss": "pointwise", "recurrent": "rnn"}, "pointwise and rnn"),
    ],
)
def test_configurations_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        ListConfig(**options)


# Inputs


def word_inputs(max_length=4, long_questions="error"):
    tokenizer = WordTokenizer(["who", "is", "it", "?", "she"], buckets=3)
    return ListInputs(tokenizer, max_length, long_questions)


def test_pairs_are_words_without_special_tokens():
    pairs = word_inputs().encode("Who is it", ["she is it", " ", "it it it it she"])
    assert [pair.question.tolist() for pair in pairs] == [[1, 2, 3]] * 3
    assert [pair.candidate.tolist() for pair in pairs] == [[5, 2, 3], [], [3] * 4]
    assert [pair.truncated for pair in pairs] == [False, False, True]
    assert [pair.empty for pair in pairs] == [False, True, False]
    assert [pair.length for pair in pairs] == [6, 3, 7]


def test_padded_lists():
    inputs = word_inputs(20)
    first = inputs.encode("who is", ["it", "it is she she is it is it is"])
    second = inputs.encode("it", ["she ?"])
    question_ids, counts, ids, lengths, list_counts = inputs.pad_lists([first, second])
    assert question_ids.tolist() == [[1, 2] + [0] * 6, [3] + [0] * 7]
    assert ids.shape == (2, 2, 16) and ids.dtype == np.int32
    assert ids[0, 0].tolist() == [3] + [0] * 15
    assert ids[1].tolist() == [[5, 4] + [0] * 14, [0] * 16]
    assert (counts.tolist(), list_counts.tolist()) == ([2, 1], [2, 1])
    assert lengths.tolist() == [[1, 9], [2, 0]] and lengths.dtype == np.float32
    # Pairs by themselves are lists of one.
    assert inputs.pad(first)[2].shape == (2, 1, 16)
    assert list(inputs.array_types()) == [*inputs.names, "scores"]


SIZES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(1, 60)), max_size=30)


@given(SIZES, st.integers(1, 4000), st.integers(0, 5))
def test_batches_of_lists_hold_the_budget(sizes, tokens, seed):
    array = np.array(sizes, dtype=int).reshape(-1, 3)
    plan = plan_lists(array[:, 0], array[:, 1:], tokens, np.random.default_rng(seed))
    indices = [int(index) for rows in plan for index in rows]
    assert sorted(indices) == list(range(len(sizes)))
    for rows in plan:
        widths = -(-array[rows, 1:] // 8) * 8
        padded = len(rows) * array[rows, 0].max() * widths.max(axis=0).sum()
        assert padded <= tokens or len(rows) == 1
    assert len(plan) == len(plan_lists(array[:, 0], array[:, 1:], tokens))


# Recurrence


def recurrent_arrays(layer):
    names = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
    parameters = layer._collect_params_with_prefix()
    arrays = []
    for name in names:
        [found] = [value for key, value in parameters.items() if key.endswith(name)]
        arrays.append(found.data().asnumpy())
    return arrays


def test_weights_start_as_those_of_torch():
    """Uniform up to 1 / sqrt(inputs of an output), up to 1 / sqrt(units) in a recurrent layer."""
    network = build_network("cosinet", rows=9, width=4, recurrent="bilstm")
    network.initialize()
    for block, inputs in (
        (network.question_filters, 5 * 5),
        (network.recurrent.ahead, 150),
        (network.recurrent.back, 150),
        (network.out, 300),
    ):
        for name, parameter in block.collect_params().items():
            greatest = abs(parameter.data().asnumpy()).max()
            if name.endswith("weight"):
                assert 0.9 / math.sqrt(inputs) < greatest <= 1 / math.sqrt(inputs)
            else:
                assert greatest == 0


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def loop(layer, steps, kind):
    """Outputs of one direction, step by step."""
    w_input, w_hidden, b_input, b_hidden = recurrent_arrays(layer)
    hidden = cell = np.zeros(w_hidden.shape[1])
    outputs = []
    for step in steps:
        gates = w_input @ step + b_input + w_hidden @ hidden + b_hidden
        if kind.endswith("rnn"):
            hidden = np.tanh(gates)
        else:
            into, forget, update, out = np.split(gates, 4)
            cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(update)
            hidden = sigmoid(out) * np.tanh(cell)
        outputs.append(hidden)
    return np.array(outputs)


@pytest.mark.parametrize("kind", ["rnn", "birnn", "lstm", "bilstm"])
def test_recurrence_equals_loops_over_real_candidates(kind):
    layer = Recurrence(kind, 6, 4, mx.init.Normal(0.7))
    mx.random.seed(2)
    layer.initialize()
    for name, parameter in layer.collect_params().items():
        if name.endswith("bias"):
            parameter.set_data(mx.nd.random.normal(shape=parameter.shape))
    pairs = np.random.default_rng(3).normal(size=(5, 2, 4)).astype(np.float32)
    counts = [3, 5]
    outputs = layer(mx.nd.array(pairs), mx.nd.array(counts)).asnumpy()
    assert outputs.shape == (5, 2, 6)
    for column, count in enumerate(counts):
        steps = pairs[:count, column]
        expected = loop(layer.ahead, steps, kind)
        if kind.startswith("bi"):
            back = loop(layer.back, steps[::-1], kind)[::-1]
            expected = np.concatenate([expected, back], axis=1)
        np.testing.assert_allclose(outputs[:count, column], expected, atol=1e-5)


# Training


@pytest.mark.parametrize(
    "system, options",
    [
        ("cosinet", {"loss": "pointwise"}),
        ("compare_aggregate", {"loss": "listwise"}),
        ("compare_aggregate", {"loss": "listwise", "recurrent": "birnn"}),
        ("cosinet", {"loss": "listwise", "recurrent": "lstm"}),
    ],
    ids=["pointwise", "listwise", "birnn", "lstm"],
)
def test_a_trained_run_ranks_as_the_network_did(
    system, options, files, questions, tiny_words, tmp_path, monkeypatch
):
    kept = {}

    def evaluator(inputs):
        def evaluate(network):
            ranker = build_ranker(system, network, inputs)
            kept["scores"] = [ranking.scores for ranking in ranker.rank_all(questions["dev"])]
            return {"map": 1.0 + len(kept)}

        return evaluate

    out = tmp_path / "run"
    config = TrainingConfig(**{**ListConfig(**options).training_defaults(), **SHORT, "epochs": 1})
    options = {"config": config, "make_evaluator": evaluator, **options}
    state = train(system, str(files["train"]), str(out), words=str(tiny_words), **options)
    assert state.best_update == state.update > 1
    ranker = load_ranker(out)
    assert ranker.capabilities.system == system and ranker.capabilities.stages == 1
    for ranking, scores in zip(ranker.rank_all(questions["dev"]), kept["scores"]):
        # The ranker of the run takes another engine, where there is one.
        np.testing.assert_allclose(ranking.scores, scores, atol=1e-5)
        assert ranking.order.tolist() == np.argsort(-ranking.scores, kind="stable").tolist()
    # The vectors are those of the table, bit by bit: they do not train.
    table = read_word_vectors(tiny_words)
    matrix = embedding_matrix(table, 1024)
    assert ranker.network.vectors.data().asnumpy().tobytes() == matrix.tobytes()


@pytest.mark.parametrize("more", [["--recurrent", "birnn"], ["--loss", "pointwise"]])
def test_a_training_learns_its_questions(more, questions, tiny_words, tmp_path):
    out, few = tmp_path / "run", questions["train"][:4]
    write_questions(tmp_path / "few.jsonl", few)
    more = ["--epochs", 12, "--learning-rate", 1e-3, "--tokens-per-batch", 600, *more]
    some = {"train": tmp_path / "few.jsonl", "dev": tmp_path / "few.jsonl"}
    assert wqa(*training(some, tiny_words, out, *more)) == 0
    for question, ranking in zip(few, load_ranker(out).rank_all(few)):
        assert question.labels[ranking.order[0]] == 1


def test_defaults_of_the_command(run, files, tiny_words, tmp_path, capsys):
    config = read_run_config(run / "config.json")
    assert config.training.learning_rate == 2e-4 and config.training.schedule == "slanted"
    rates = logged(run, "learning_rate")
    assert rates[-1] == pytest.approx(2e-4 / 32)  # the slanted schedule ends there
    assert config.network["rows"] == load_ranker(run).network.vectors.shape[0]
    assert len(config.network["words_sha256"]) == 64
    out = tmp_path / "pointwise"
    arguments = training(files, tiny_words, out, "--loss", "pointwise", "--max-updates", 1)
    assert wqa(*arguments) == 0
    assert read_run_config(out / "config.json").training.learning_rate == 2e-3


def test_questions_without_a_positive_are_left_out_and_counted(
    questions, files, tiny_words, tmp_path, capsys
):
    wrong = Question("w", "who is wrong ?", (Candidate("no one", 0), Candidate("all", 0)))
    path = tmp_path / "train.jsonl"
    write_questions(path, [*questions["train"], wrong, wrong._replace(id="v")])
    for name, some in (("with", path), ("without", files["train"])):
        out = tmp_path / name
        assert wqa(*training({**files, "train": some}, tiny_words, out)) == 0
        note = f"note: {some}: 2 questions without a positive left out"
        assert (note in capsys.readouterr().err) == (name == "with")
    first, second = (tmp_path / name / "model.params" for name in ("with", "without"))
    assert first.read_bytes() == second.read_bytes()
    write_questions(path, [wrong])
    assert wqa(*training({**files, "train": path}, tiny_words, tmp_path / "none")) == 2
    assert "none of the 1 has a positive candidate" in capsys.readouterr().err
    # Pairs by themselves have labels all the same.
    arguments = training({**files, "train": path}, tiny_words, tmp_path / "pairs")
    assert wqa(*arguments, "--loss", "pointwise") == 0


# Starts


def test_a_run_starts_from_another_one(run, files, tiny_words, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = training(files, "", out, "--init", run, "--recurrent", "lstm", "--epochs", 1)
    assert wqa(*arguments) == 0
    assert logged(out, "start")[0] == (
        f"{run} (cosinet); kept: vectors, question_filters, candidate_filters, out; new: recurrent"
    )
    first, second = (mx.nd.load(str(folder / "model.params")) for folder in (run, out))
    assert (first["vectors"] == second["vectors"]).asnumpy().all()
    assert (out / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    record = read_run_config(out / "config.json").network
    assert record["words_sha256"] == read_run_config(run / "config.json").network["words_sha256"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"words": ""}, "words: none"),
        ({"init": "RUN"}, "words and init: both"),
        ({"init": "RUN", "words": "", "system": "compare_aggregate"}, "the system cosinet"),
        ({"init": "", "encoder": "ENCODER"}, "ENCODER"),
        ({"buckets": -1}, "buckets: -1"),
        ({"teachers": "RUN"}, "teachers"),
    ],
)
def test_wrong_starts_are_refused(run, files, tiny_words, tiny_encoder, tmp_path, change, message):
    options = {"words": str(tiny_words), "system": "cosinet", **change}
    for name, value in options.items():
        if value in ("RUN", "ENCODER"):
            options[name] = str(run if value == "RUN" else tiny_encoder)
    message = message.replace("ENCODER", str(tiny_encoder))
    config = TrainingConfig()
    if "teachers" in options:
        config = TrainingConfig(teachers=(options.pop("teachers"),), schedule="slanted")
    out = tmp_path / "run"
    with pytest.raises((OptionError, DataError), match=message):
        train(options.pop("system"), str(files["train"]), str(out), config=config, **options)
    assert not (out / "config.json").exists()


# Ranking


def texts(*lists):
    return [" ".join(f"w{number}" for number in numbers) for numbers in lists]


@pytest.mark.parametrize(
    "system, recurrent", [("cosinet", "none"), ("cosinet", "birnn"), ("compare_aggregate", "none")]
)
def test_a_list_of_one_and_of_three_hundred(system, recurrent):
    ranker = small_ranker(recurrent, 12, system)
    assert np.isfinite(ranker.rank("w1", ["w3"]).scores).all()
    rng = np.random.default_rng(6)
    candidates = texts(*(rng.integers(0, 10, rng.integers(1, 12)) for _ in range(300)))
    ranking = ranker.rank("w1", candidates)
    assert sorted(ranking.order) == list(range(300))
    inputs = ranker.inputs
    arrays = inputs.pad_lists([inputs.encode("w1", candidates)])
    whole = ranker.network(*[mx.nd.array(array, dtype=array.dtype) for array in arrays])
    np.testing.assert_allclose(ranking.scores, whole.asnumpy()[0], atol=1e-5)


def test_groups_and_micro_batches_change_no_score(questions):
    ranker = small_ranker()
    asked = questions["train"] + questions["dev"]
    together = [ranking.scores for ranking in ranker.rank_all(asked)]
    engine = EngineConfig(engine="mxnet", batch_tokens=50)
    alone = small_ranker(engine=engine)
    alone._group_size = 1
    for question, scores in zip(asked, together):
        [ranking] = alone.rank_all([question])
        np.testing.assert_allclose(ranking.scores, scores, atol=1e-5)


def test_blank_candidates_are_not_in_the_list():
    ranker = small_ranker()
    given_texts = ["w1 w2", "  ", "w3", "", "w4 w5"]
    ranking = ranker.rank("w1", given_texts)
    without = ranker.rank("w1", [given_texts[index] for index in (0, 2, 4)])
    np.testing.assert_allclose(ranking.scores[[0, 2, 4]], without.scores, atol=1e-6)
    assert ranking.blank.tolist() == [False, True, False, True, False]
    assert ranking.order[-2:].tolist() == [1, 3] and ranking.exits.tolist() == [1, 0, 1, 0, 1]
    assert ranking.cost == without.cost
    blank = ranker.rank("w1", ["", " "])
    assert blank.order.tolist() == [0, 1] and blank.blank.all() and not blank.cost.multiply_adds
    # Among others, as a group.
    asked = [Question("a", "w1", (Candidate(""),)), Question("b", "w1", (Candidate("w2"),))]
    first, second = ranker.rank_all(asked)
    assert first.blank.all() and np.isfinite(second.scores).all()


def test_the_original_order_is_read_whatever_the_order_of_candidates(questions):
    ranker = small_ranker()
    for question in questions["dev"]:
        [given_order] = ranker.rank_all([question])
        [by_id] = by_document_id([question])
        assert by_id.ranks != tuple(range(len(by_id.candidates)))
        [ranking] = ranker.rank_all([by_id])
        np.testing.assert_allclose(ranking.scores, given_order.scores[list(by_id.ranks)], atol=1e-6)
    # Another order in itself changes the scores.
    turned = question._replace(candidates=question.candidates[::-1])
    [other] = ranker.rank_all([turned])
    assert np.abs(other.scores[::-1] - given_order.scores).max() > 1e-4


def test_cut_candidates_and_long_questions():
    ranker = small_ranker(max_length=3)
    ranking = ranker.rank("w1", texts([1, 2, 3, 4], [1, 2, 3]))
    assert ranking.truncated.tolist() == [True, False]
    assert ranking.scores[0] == pytest.approx(
        ranker.rank("w1", texts([1, 2, 3], [1, 2, 3])).scores[0]
    )
    # In the order of the candidates, not in that in which the network reads them.
    first, second = texts([1, 2], [1, 2, 3, 4])
    question = Question("q", "w1", (Candidate(first, rank=1), Candidate(second, rank=0)))
    [ranking] = ranker.rank_all([question])
    assert question.original_order == (1, 0) and ranking.truncated.tolist() == [False, True]
    long = Question("q", "w1 w2 w3 w4", (Candidate("w1"),))
    with pytest.raises(QuestionTooLong, match="question 'q': 4 or more words; expected at most 3"):
        ranker.prepare([long])
    prepared = small_ranker(max_length=3, long_questions="truncate").prepare([long])
    assert prepared.truncated == 1 and len(prepared.questions) == 1
    skipping = small_ranker(max_length=3, long_questions="skip")
    assert skipping.prepare([long, long._replace(id="p", question="w1")]).skipped == 1


def test_scores_that_are_not_finite_name_question_and_candidate():
    ranker = small_ranker()
    ranker.network.out.bias.set_data(mx.nd.array([np.nan]))
    question = Question("q7", "w1", (Candidate(""), Candidate("w2", id="d2")))
    with pytest.raises(ScoreError, match="question 'q7', scores: nan for document 'd2'"):
        list(ranker.rank_all([question]))
    with pytest.raises(ScoreError, match="question 'w1', scores: nan for candidate 2"):
        ranker.rank("w1", ["", "w2"])


def test_cost_by_hand():
    ranker = small_ranker("birnn")
    cost = ranker.rank("w1 w2", texts([1, 2, 3], [4], [])).cost
    word = 5 * 5 * 300  # width 4, and the relatedness
    of_list = 2 * (600 * 150 + 150 * 150) + 300
    assert cost.multiply_adds == (2 + 3 + 2 + 1) * word + 2 * of_list
    assert cost.candidate_work == cost.full_candidate_work == 2 * word
    assert (cost.paper, cost.relative, cost.relative_tokens) == (1, 1, 1)


def test_commands_take_the_run(run, files, tmp_path, capsys):
    assert wqa("evaluate", run, "--data", files["dev"]) == 0
    candidates = tmp_path / "candidates.txt"
    candidates.write_text("the sky is blue\nit is green\n")
    question = ["--question", "why is the sky blue ?", "--candidates", candidates]
    assert wqa("rank", run, *question) == 0
    assert "the sky is blue" in capsys.readouterr().out
    sequence = tmp_path / "sequence.json"
    sequence.write_text(json.dumps({"rankers": [str(run), str(run)], "keep": 3}))
    assert wqa("evaluate", sequence, "--data", files["dev"]) == 0
    assert wqa("score", run, "--data", files["dev"], "--out", tmp_path / "scores") == 0


def test_a_run_with_a_tokenizer_of_other_words_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    WordTokenizer(["a", "b"]).save(tmp_path / "run" / "tokenizer.json")
    with pytest.raises(RunDirectoryError, match="tokenizer.json"):
        load_ranker(tmp_path / "run")
    forget_digests(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="1,027 ids; expected"):
        load_ranker(tmp_path / "run")
