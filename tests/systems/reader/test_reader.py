"""The span reader: answers scored, spans decoded, training, reading, and `wqa ask --reader`."""

import json
import re

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, logged, with_letters
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from wqa.cli import main
from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import Candidate, Document, Question, write_documents, write_questions
from wqa.errors import DataError, InputError, OptionError, ScoreError
from wqa.evaluation.answers import exact_match, f1, score_answers
from wqa.pretrained.configs import to_huggingface
from wqa.retrieval import build_index
from wqa.systems.export import huggingface_tensors
from wqa.systems.pairwise.network import PairwiseTransformer
from wqa.systems.reader.reader import Reader, Window, decode_spans, occurrences, windows_of
from wqa.systems.reader.task import ReaderTask, SpanExamples
from wqa.systems.registry import build_network
from wqa.systems.run_directory import load_reader
from wqa.systems.train import train
from wqa.text import Located, PairInputs, load_tokenizer

# Exact match and F1


def test_exact_match_and_f1_by_hand():
    assert exact_match("the Rhine.", ["Danube", "Rhine"]) == 1
    assert exact_match("Rhine river", ["Rhine"]) == 0
    # One word of two is right, one of one is found: 2 * 1/2 * 1 / (1/2 + 1).
    assert f1("Rhine river", ["Rhine"]) == pytest.approx(2 / 3)
    assert f1("Rhine river", ["Danube", "the river Rhine"]) == 1
    # "b" counts twice at most on the right and once on the left.
    assert f1("b x", ["b b"]) == pytest.approx(1 / 2)
    assert f1("Rhine", ["Danube"]) == 0
    assert f1("the", ["a"]) == exact_match("the", ["a"]) == 1
    assert f1("", ["Rhine"]) == exact_match("", ["Rhine"]) == 0


def test_figures_equal_those_of_squads_script():
    rows = json.loads((DATA / "squad_answers.json").read_text(encoding="utf-8"))
    assert len(rows) == 150 and sum(0 < row[3] < 1 for row in rows) > 20
    for prediction, reference, exact, overlap in rows:
        assert exact_match(prediction, [reference]) == exact
        assert f1(prediction, [reference]) == pytest.approx(overlap)


def test_mean_figures_count_questions_without_a_prediction_as_zero():
    questions = [
        Question("Q1", "q", (), ("Rhine",)),
        Question("Q2", "q", (), ("the Danube", "Donau")),
        Question("Q3", "q", (), ("Elbe",)),
    ]
    figures = score_answers({"Q1": "the Rhine", "Q2": "Danube river"}, questions)
    assert figures["questions"] == 3
    assert figures["em"] == pytest.approx(1 / 3)
    assert figures["f1"] == pytest.approx((1 + 2 / 3) / 3)
    with pytest.raises(DataError, match="question 'Q4': no answers"):
        score_answers({}, [Question("Q4", "q", ())])
    with pytest.raises(DataError, match="at least one with answers"):
        score_answers({}, [])


# Tokens, windows and occurrences


@pytest.mark.parametrize("name", ["uncased", "cased", "byte_level", "sentencepiece"])
def test_located_tokens_are_those_of_the_text(name):
    tokenizer = load_tokenizer(DATA / "tokenizers" / name)
    given_texts = ["Where does  the Rhine\n end ?", "Z\u00fcrich \U0001f642 caf\u00e9s", " ", ""]
    for text, located in zip(given_texts, tokenizer.locate(given_texts)):
        assert located.token_ids.tolist() == tokenizer.encode([text])[0]
        assert (located.starts <= located.ends).all() and (np.diff(located.starts) >= 0).all()
        pieces = {text[start:end] for start, end in zip(located.starts, located.ends)}
        assert all(piece == piece.strip() for piece in pieces)
        spans = dict.fromkeys(zip(located.starts, located.ends))
        assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    with pytest.raises(InputError):
        tokenizer.locate(["\ud800"])
    with pytest.raises(InputError, match="1,048,576"):
        tokenizer.locate(["a" * ((1 << 20) + 1)])


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(DATA / "tokenizers" / "uncased")


@given(
    tokens=st.integers(0, 120),
    question=st.integers(1, 15),
    stride=st.integers(0, 40),
    max_length=st.integers(36, 60),
)
def test_windows_cover_every_token_and_fit(tokenizer, tokens, question, stride, max_length):
    document = Located(np.arange(tokens), np.arange(tokens), np.arange(tokens) + 1)
    made = windows_of(PairInputs(tokenizer, max_length), [7] * question, [document], stride)
    room = max_length - 3 - question
    assert {token for window in made for token in range(window.start, window.end)} == set(
        range(tokens)
    )
    for window in made:
        assert len(window.pair.token_ids) <= max_length
        ids = window.pair.token_ids[window.pair.boundary : -1]
        assert ids.tolist() == list(range(window.start, window.end))
    step = min(stride or max(room // 2, 1), room)
    assert [window.start for window in made] == [index * step for index in range(len(made))]
    assert all(window.end < tokens for window in made[:-1])


def test_occurrences_are_whole_words_in_any_case():
    text = "In 1995 the\n Rhine rose; in 95 the rhine fell. (Rhine)"
    assert [text[slice(*span)] for span in occurrences(text, ["Rhine"])] == [
        "Rhine",
        "rhine",
        "Rhine",
    ]
    assert [text[slice(*span)] for span in occurrences(text, ["95"])] == ["95"]
    assert [text[slice(*span)] for span in occurrences(text, ["the", "the Rhine"])] == [
        "the\n Rhine",
        "the rhine",
    ]
    assert not list(occurrences(text, ["Rhin", "ose", "1995 Rhine"]))


# Decoding


def brute_force(given_texts, documents, windows, logits, most_tokens, n_best):
    """Best spans by looking at each of them."""
    spans = []
    for window, values in zip(windows, logits):
        document = documents[window.document]
        for first in range(window.start, window.end):
            for last in range(first, min(first + most_tokens, window.end)):
                limits = (document.starts[first], document.ends[first])
                if limits[0] == limits[1] or document.starts[last] == document.ends[last]:
                    continue
                score = float(values[first - window.start, 0]) + float(
                    values[last - window.start, 1]
                )
                start, end = int(document.starts[first]), int(document.ends[last])
                spans.append((-score, window.document, start, end))
    answers, seen = [], set()
    for negated, document, start, end in sorted(spans, key=lambda span: span[0]):
        text = given_texts[document][start:end]
        if text not in seen:
            seen.add(text)
            answers.append((text, -negated, document, start, end))
    return answers[:n_best]


@given(st.data())
def test_spans_decode_as_by_brute_force(data):
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    given_texts, documents, windows, logits = [], [], [], []
    for number, length in enumerate(lengths):
        letters = data.draw(st.text("ab ", min_size=length, max_size=length))
        given_texts.append(letters)
        starts = np.arange(length)
        ends = starts + np.array([letter != " " for letter in letters], dtype=int)
        documents.append(Located(starts, starts, ends))
        stride, size = data.draw(st.integers(1, 4)), 4
        for start in range(0, max(length - size, 0) + stride, stride):
            end = min(start + size, length)
            if start < end:
                windows.append(Window(number, start, end, None))
                values = st.integers(-3, 3).map(float)
                row = st.tuples(values, values)
                logits.append(
                    np.array(data.draw(st.lists(row, min_size=end - start, max_size=end - start)))
                )
    most, n_best = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    decoded = decode_spans(given_texts, documents, windows, logits, most, n_best)
    assert [tuple(answer) for answer in decoded] == brute_force(
        given_texts, documents, windows, logits, most, n_best
    )


# The network


def test_the_network_is_a_dense_layer_on_every_position():
    network = build_network("reader", tiny_config(dropout=0.0))
    mx.random.seed(1)
    network.initialize(mx.init.Normal(0.3))
    token_ids = mx.nd.array([[2, 7, 3, 9, 8, 3], [2, 7, 3, 9, 3, 0]], dtype="int32")
    token_types = mx.nd.array([[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0]], dtype="int32")
    valid = mx.nd.array([6, 5])
    hidden = network.backbone.hidden_states(token_ids, valid, token_types)[-1].asnumpy()
    weight, bias = (getattr(network.head.out, name).data().asnumpy() for name in ("weight", "bias"))
    expected = hidden @ weight.T + bias
    for hybrid in (False, True):
        network.hybridize(hybrid)
        logits = network(token_ids, token_types, valid).asnumpy()
        np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.fixture
def bert_reader(tmp_path):
    """A tiny model for question answering of the reference library, with a vocabulary."""
    return with_letters("tiny_bert_reader", tmp_path)


def test_a_converted_model_computes_the_references_logits_and_reads(bert_reader, tmp_path, capsys):
    assert main(["convert", str(bert_reader), str(tmp_path / "run")]) == 0
    assert " beside it" in capsys.readouterr().out
    reader = load_reader(tmp_path / "run", engine="mxnet")
    with np.load(DATA / "tiny_bert_reader" / "expected.npz") as stored:
        arrays = dict(stored)
    inputs = [
        mx.nd.array(arrays["token_ids"], dtype="int32"),
        mx.nd.array(arrays["token_types"], dtype="int32"),
        mx.nd.array(arrays["valid_length"], dtype="float32"),
    ]
    logits = reader.network(*inputs).asnumpy()
    real = np.arange(12)[None] < arrays["valid_length"][:, None]
    np.testing.assert_allclose(logits[real, 0], arrays["starts"][real], atol=1e-5)
    np.testing.assert_allclose(logits[real, 1], arrays["ends"][real], atol=1e-5)
    assert reader.read("a b", ["c d e f"])[0].text
    read_json = json.loads((tmp_path / "run" / "config.json").read_text())
    assert read_json["system"] == "reader" and read_json["max_length"] == 32


# Training examples


RIVERS = (
    ("the Rhine", "Basel", "the North Sea"),
    ("the Danube", "Ulm", "the Black Sea"),
    ("the Elbe", "Dresden", "the German Bight"),
)


def river_documents():
    return [
        Document(f"D{number}", f"From its source {river} runs past {town} and ends in {sea}.")
        for number, (river, town, sea) in enumerate(RIVERS)
    ]


def river_questions():
    """Two questions a river; its document comes first, the others are negative."""
    documents, questions = river_documents(), []
    for number, (river, town, sea) in enumerate(RIVERS):
        ordered = [documents[number], *documents[:number], *documents[number + 1 :]]
        for name, text, answer in (
            ("sea", f"where does {river} end ?", sea),
            ("town", f"past which town does {river} run ?", town),
        ):
            candidates = tuple(
                Candidate(document.text, int(document is documents[number]), document.id)
                for document in ordered
            )
            questions.append(Question(f"{name}{number}", text, candidates, (answer,)))
    return questions


def examples_of(questions, tokenizer, max_length=40, stride=0, **options):
    return SpanExamples(questions, PairInputs(tokenizer, max_length), stride, **options)


def tokens_of(example):
    return example.pair.token_ids[example.pair.boundary : -1]


def span_text(tokenizer, example):
    ids = tokens_of(example)[example.span[0] : example.span[1] + 1]
    return " ".join(map(tokenizer.token, ids)).replace(" ##", "")


def test_examples_have_the_first_occurrence_and_as_many_windows_without_an_answer(tokenizer):
    made = examples_of(river_questions(), tokenizer, max_length=120)
    spans = [example.span for example in made.examples]
    assert len(spans) == 12 and [span is None for span in spans] == [False, True] * 6
    found = [span_text(tokenizer, example) for example in made.examples if example.span]
    assert found[:2] == ["the north sea", "basel"]
    twice = Question(
        "Q1", "which river ?", (Candidate("By the Rhine, the Rhine is wide.", 1),), ("the Rhine",)
    )
    [example] = examples_of([twice], tokenizer, max_length=80).examples
    [document] = tokenizer.locate([twice.texts[0]])
    assert document.starts[example.span[0]] == 3
    only = examples_of(river_questions(), tokenizer, max_length=120, negatives=0)
    assert len(only.examples) == 6
    fewer = examples_of(river_questions(), tokenizer, max_length=120, negatives=0.5)
    assert len(fewer.examples) == 9


def test_a_title_is_the_span_last_of_all(tokenizer):
    def example(text, label):
        question = Question("Q1", "where ?", (Candidate(text, label),), ("Basel",))
        padding = Question("Q2", "where ?", (Candidate("Basel .", 1),), ("Basel",))
        made = examples_of([padding, question], tokenizer, max_length=80)
        [document] = tokenizer.locate([text])
        [last] = made.examples[1:]
        if last.span is None:
            return None
        return int(document.starts[last.span[0]])

    assert example("Basel\nThe Rhine runs past Basel .", 1) == 26
    assert example("Basel\nThe Rhine runs past it .", 1) == 0
    # All paragraphs of an article have its title: such a one is a document without the answer.
    assert example("Basel\nThe Rhine runs past it .", 0) is None


def test_no_window_without_an_answer_holds_a_part_of_one(tokenizer):
    answer_ids = set(tokenizer.encode(["upper Basel"])[0]) - set(tokenizer.encode(["rain"])[0])
    windows = 0
    for start in range(60):  # some window starts at each token of the answer
        words = ["rain"] * 60
        words[start:start] = ["upper", "Basel"]
        question = Question(
            "Q1", "which town ?", (Candidate(" ".join(words), 1),), ("upper Basel",)
        )
        made = examples_of([question], tokenizer, max_length=40, stride=5, negatives=100)
        negative = [example for example in made.examples if example.span is None]
        windows += len(negative)
        for example in negative:
            assert not answer_ids & set(tokens_of(example).tolist())
    assert windows


def test_a_long_paragraph_gives_the_window_with_the_most_context(tokenizer):
    words = ["rain"] * 60 + ["Basel"] + ["snow"] * 59
    question = Question("Q1", "which town ?", (Candidate(" ".join(words), 1),), ("Basel",))
    made = examples_of([question], tokenizer, max_length=40, stride=5, negatives=100)
    positive = [example for example in made.examples if example.span]
    assert len(positive) == 1
    [document] = tokenizer.locate([question.texts[0]])
    first, last = positive[0].span
    context = min(first, len(tokens_of(positive[0])) - 1 - last)
    assert context >= (len(tokens_of(positive[0])) - (last - first + 1)) // 2 - 5


def test_a_batch_marks_what_can_be_read_and_where_the_answer_is(tokenizer):
    candidates = (Candidate("It runs past Basel .", 1), Candidate("It snows .", 0))
    question = Question("Q1", "where ?", candidates, ("Basel",))
    inputs = PairInputs(tokenizer, 80)
    examples = SpanExamples([question], inputs)
    network = build_network("reader", tiny_config(vocab_size=1300))
    batch = ReaderTask(network, inputs, examples).batch(np.array([0, 1]))
    pairs = inputs.encode(question.question, question.texts)
    for row, pair in enumerate(pairs):
        length = len(pair.token_ids)
        assert batch["token_ids"][row, :length].tolist() == pair.token_ids.tolist()
        # Position 0, and the document's tokens without the separator behind them.
        readable = [0, *range(pair.boundary, length - 1)]
        assert np.flatnonzero(batch["allowed"][row]).tolist() == readable
    start, end = batch["targets"][0].astype(int)
    answer_ids = batch["token_ids"][0, start : end + 1].tolist()
    assert answer_ids == tokenizer.encode(["Basel"])[0]
    assert batch["targets"][1].tolist() == [0, 0]


# Training and reading


def tiny_config(**changes):
    sizes = {"vocab_size": 12, "units": 32, "hidden_size": 64, "num_layers": 2, "num_heads": 4}
    return BackboneConfig(layout="bert", max_positions=96, **{**sizes, **changes})


@pytest.fixture(scope="module")
def rivers(tmp_path_factory):
    """An encoder of the rivers' words without dropout, questions, documents and their index."""
    folder = tmp_path_factory.mktemp("rivers")
    questions, documents = river_questions(), river_documents()
    # Words of most documents would weigh nothing.
    documents += [Document(f"E{number}", f"Snow {number} lies on hills.") for number in range(7)]
    said = [question.question for question in questions] + [item.text for item in documents]
    words = sorted({word for text in said for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = tiny_config(vocab_size=len(vocabulary), dropout=0.0, attention_dropout=0.0)
    model = PairwiseTransformer(config)
    mx.random.seed(0)
    model.initialize(mx.init.Normal(0.1))
    encoder = folder / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text(json.dumps(to_huggingface(config)), encoding="utf-8")
    (encoder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    save_file(huggingface_tensors(model), str(encoder / "model.safetensors"))
    write_questions(folder / "train.jsonl", questions)
    write_documents(folder / "documents.jsonl", documents)
    build_index(folder / "documents.jsonl", folder / "index")
    return folder


def command(rivers, out, *more):
    arguments = ["train", "reader", "--encoder", rivers / "encoder"]
    arguments += ["--train", rivers / "train.jsonl", "--dev", rivers / "train.jsonl"]
    arguments += ["--out", out, "--max-length", "64", "--tokens-per-batch", "600"]
    arguments += ["--warmup-updates", "2", "--seed", "3", *more]
    return list(map(str, arguments))


@pytest.fixture(scope="module")
def reader_run(rivers):
    """A reader that knows its training questions by heart."""
    run = rivers / "run"
    settings = ["--epochs", "120", "--learning-rate", "6e-3", "--negatives", "2"]
    settings += ["--eval-every", "60", "--warmup-updates", "10", "--tokens-per-batch", "300"]
    assert main(command(rivers, run, *settings)) == 0
    return run


def test_a_reader_learns_a_few_questions_and_reads_their_answers(reader_run):
    figures = logged(reader_run, "dev")
    assert max(row["em"] for row in figures) == 1 and figures[-1]["questions"] == 6
    reader = load_reader(reader_run)
    for question in river_questions():
        first, second = reader.read(question.question, question.texts[::-1], n_best=2)
        assert first.text == question.answers[0] and first.score > second.score
        text = question.texts[::-1][first.document]
        assert text[first.start : first.end] == first.text
    assert reader.read("where does the Rhine end ?", []) == []
    assert reader.read("where does the Rhine end ?", [" "]) == []
    [alone] = reader.read("where does the Rhine end ?", ["", "Basel"], n_best=5)
    assert alone[0] == "Basel" and alone.document == 1


@pytest.mark.parametrize(
    "precision, engine, tolerance",
    [
        pytest.param("float32", "onednn", 1e-4, marks=pytest.mark.needs_onednn),
        pytest.param("bfloat16", "onednn", 0.3, marks=pytest.mark.needs_precision("bfloat16")),
    ],
)
def test_the_engines_read_the_same(family_encoder, tmp_path, precision, engine, tolerance):
    config = TrainingConfig(max_updates=2, warmup_updates=1, learning_rate=1e-3)
    data, run = str(tmp_path / "train.jsonl"), str(tmp_path / "run")
    write_questions(data, river_questions())
    train("reader", data, run, str(family_encoder), config=config, max_length=70, stride=9)
    question, documents = "where does the Rhine end ?", [item.text for item in river_documents()]
    expected = load_reader(tmp_path / "run", engine="mxnet").read(question, documents, 40)
    scores = {(answer.document, answer.start, answer.end): answer.score for answer in expected}
    actual = load_reader(tmp_path / "run", engine=engine, precision=precision)
    compared = 0
    for answer in actual.read(question, documents, 40):
        key = (answer.document, answer.start, answer.end)
        if key in scores:
            compared += 1
            assert answer.score == pytest.approx(scores[key], abs=tolerance)
    assert compared > 20


# Runs of the wrong kind


def test_questions_that_cannot_be_read(reader_run):
    reader = load_reader(reader_run)
    for question, documents, message in (
        ("", ["a"], "the question is empty"),
        ("sea " * 60, ["a"], "leave"),
        ("where ?", "a", "a sequence of strings"),
    ):
        with pytest.raises(InputError, match=message):
            reader.read(question, documents)
    with pytest.raises(OptionError, match="n_best"):
        reader.read("where ?", ["a"], 0)
    reader.network.head.out.bias.set_data(mx.nd.array([np.nan, 0]))
    broken = Reader(reader.network, reader.inputs)
    with pytest.raises(ScoreError, match="question 'where.*document 2"):
        broken.read("where ?", ["", "the sea"])


def test_training_questions_without_answers(rivers, tmp_path, refusal):
    questions = [question._replace(answers=()) for question in river_questions()]
    write_questions(tmp_path / "bare.jsonl", questions)
    for flag in ("--train", "--dev"):
        arguments = command(rivers, tmp_path / "run")
        arguments[arguments.index(flag) + 1] = str(tmp_path / "bare.jsonl")
        assert "bare.jsonl, question 'sea0': no answers" in refusal(*arguments)
    assert not (tmp_path / "run" / "config.json").exists()


# wqa ask --reader


def answer(rivers, reader_run, *more):
    arguments = ["ask", rivers / "index", "--reader", reader_run, *more]
    return main(list(map(str, arguments)))


def test_one_question_shows_its_answer_the_text_around_it_and_the_documents(
    rivers, reader_run, capsys
):
    question = "past which town does the Elbe run ?"
    assert answer(rivers, reader_run, "--question", question, "--n-best", "2") == 0
    out = capsys.readouterr().out
    assert "D2: From its source the Elbe runs past [Dresden] and ends in the German" in out
    assert "3 of 3 documents read" in out
    assert answer(rivers, reader_run, "--question", question, "--json", "-", "--read", "1") == 0
    result = json.loads(capsys.readouterr().out)
    assert [document["id"] for document in result["documents"]] == ["D2"]
    assert result["retrieved"] == 3 and result["documents"][0]["score"] is None
    [best] = result["answers"]
    assert best["text"] == "Dresden" and best["document"] == "D2"
    assert answer(rivers, reader_run, "--question", "zebra ?") == 0
    assert "the question retrieves no document" in capsys.readouterr().out


def test_many_questions_give_figures_counts_and_predictions(rivers, reader_run, tmp_path, capsys):
    questions = [question._replace(candidates=()) for question in river_questions()]
    questions.append(Question("none", "zebra ?", (), ("the Baltic",)))
    questions.append(Question("other", "where does the Rhine end ?", (), ("the Baltic",)))
    write_questions(tmp_path / "q.jsonl", questions)
    out = ["--data", tmp_path / "q.jsonl", "--out", tmp_path / "p.json", "--read", "2"]
    assert answer(rivers, reader_run, *out, "--json", tmp_path / "all.json") == 0
    said = capsys.readouterr()
    assert "8 questions" in said.out and "75.00" in said.out
    assert "1 of 8 questions retrieve no document" in said.err
    predictions = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert predictions["sea0"] == predictions["other"] == "the North Sea"
    assert predictions["none"] == "" and len(predictions) == 8
    figures = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert figures["em"] == figures["hit@2"] == 6 / 8
    assert figures["retrieved_nothing"] == 1
    assert [row["id"] for row in figures["results"]][-1] == "other"
