"""Questions that leave too few tokens for a candidate: an error, truncated or skipped."""

import json
import shutil

import numpy as np
import pytest
from conftest import DATA, logged

from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.digests import forget_digests
from wqa.errors import DataError, InputError, OptionError, QuestionTooLong
from wqa.evaluation import evaluate
from wqa.inference import SequentialRanker
from wqa.systems.load import load_ranker
from wqa.text import PairInputs, PairStore, build_store, load_tokenizer, prepare_questions
from wqa.training.pairs import TrainingPairs

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

#: A question of 70 tokens: too long for a limit of 64, not for one of 128.
LONG = Question(
    "long", "why is the moon in the sky ? " * 9, (Candidate("the sun", 0), Candidate("moon", 1))
)
SHORT = list(read_questions(builtin_path("dev")))[:6]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A corpus with an over-long question in the middle, and the same without it."""
    folder = tmp_path_factory.mktemp("corpora")
    write_questions(folder / "long.jsonl", [*SHORT[:3], LONG, *SHORT[3:]])
    write_questions(folder / "short.jsonl", SHORT)
    return folder


@pytest.fixture(scope="module")
def wide_run(tiny_run, tmp_path_factory):
    """The tiny run with a length limit of 128 tokens."""
    folder = tmp_path_factory.mktemp("wide") / "run"
    shutil.copytree(tiny_run, folder)
    forget_digests(folder, ["config.json"])
    values = json.loads((folder / "config.json").read_text())
    values["max_length"] = 128
    values["sha256"].pop("config.json", None)
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def assert_names_all(code, err, where="long.jsonl"):
    """One line that names the file or the question, what it has, the limit and the option."""
    [line] = [
        line for line in err.splitlines() if line.startswith("wqa: error") or "tokens" in line
    ]
    assert code == 2 and where in line and "question 'long'" in line
    assert "tokens leave 0 of 64" in line and "at least 16" in line
    assert "--long-questions truncate" in line


@pytest.mark.parametrize("name", ["uncased", "cased", "byte_level", "sentencepiece"])
@pytest.mark.parametrize("words", [12, 9000])
def test_truncated_ids_are_the_first_of_the_question(name, words):
    tokenizer = load_tokenizer(DATA / "tokenizers" / name)
    inputs = PairInputs(tokenizer, 48, "truncate")
    texts = ["who ate caf\u00e9s? " * words, "a " * 90, "", "the moon"]
    whole, *candidates = tokenizer.encode(texts)
    longest = 48 - inputs.form.specials - 16
    assert len(whole) > longest
    expected = [
        inputs.assemble(whole[:longest], candidates[0][:16], True),
        inputs.assemble(whole[:longest], candidates[1]),
        inputs.assemble(whole[:longest], candidates[2]),
    ]
    for ours, theirs in zip(inputs.encode(texts[0], texts[1:]), expected):
        np.testing.assert_array_equal(ours.token_ids, theirs.token_ids)
        assert ours[1:] == theirs[1:] and len(ours.token_ids) <= 48
    assert inputs.segments(texts[0], texts[1:]).question_truncated


def test_a_question_that_fits_is_whole_under_each_option(tiny_encoder):
    tokenizer = load_tokenizer(tiny_encoder)
    for count in (20, 21, 22):  # 40 less 3 special tokens and 16 of a candidate is 21
        question = " ".join(["moon"] * count)
        for option in ("error", "truncate", "skip"):
            inputs = PairInputs(tokenizer, 40, option)
            if count <= 21 or option == "truncate":
                segments = inputs.segments(question, ["sun " * 30])
                assert len(segments.question) == min(count, 21)
                assert segments.question_truncated == (count > 21)
                assert len(segments.candidates[0]) == 37 - min(count, 21)
            else:
                with pytest.raises(QuestionTooLong, match='22 tokens leave 15 of 40.*="truncate"'):
                    inputs.segments(question, ["sun"])
    with pytest.raises(OptionError, match="long_questions: 'cut'; expected one of error, truncate"):
        PairInputs(tokenizer, 40, "cut")
    with pytest.raises(OptionError, match="long_questions: 'cut'"):
        load_ranker("no run", long_questions="cut")


def test_corpora_are_prepared_by_one_rule(tiny_encoder):
    tokenizer = load_tokenizer(tiny_encoder)
    corpus = [SHORT[0], LONG, SHORT[1]]
    narrow, wide = (PairInputs(tokenizer, length, "skip") for length in (64, 128))
    assert prepare_questions(corpus, [wide]) == (corpus, 0, 0)
    assert prepare_questions(iter(corpus), [wide, narrow]) == ([SHORT[0], SHORT[1]], 0, 1)
    cutting = PairInputs(tokenizer, 64, "truncate")
    prepared = prepare_questions(corpus, [cutting])
    assert prepared == (corpus, 1, 0)
    assert prepared.counts == {"truncated_questions": 1, "skipped_questions": 0}
    assert prepare_questions(corpus, [cutting, narrow]) == ([SHORT[0], SHORT[1]], 0, 1)
    with pytest.raises(QuestionTooLong, match="question 'long'"):
        prepare_questions(corpus, [wide, PairInputs(tokenizer, 64)])
    with pytest.raises(DataError, match="all 1 are over-long, and skipped"):
        prepare_questions([LONG], [narrow])


@pytest.mark.parametrize("option", ["truncate", "skip"])
def test_pairs_to_train_on(tiny_encoder, corpora, tmp_path, option):
    tokenizer = load_tokenizer(tiny_encoder)
    inputs = PairInputs(tokenizer, 64, option)
    memory = TrainingPairs(read_questions(corpora / "long.jsonl"), inputs)
    build_store(corpora / "long.jsonl", tmp_path / "long.store", inputs)
    stored = TrainingPairs(PairStore(tmp_path / "long.store"), inputs)
    counts = (int(option == "truncate"), int(option == "skip"))
    assert counts == (memory.truncated_questions, memory.skipped_questions)
    assert counts == (stored.truncated_questions, stored.skipped_questions)
    questions = SHORT
    if option == "truncate":
        # The tokens of a word, so that the cut text has the ids of the first tokens.
        words = LONG.question.split()[: 64 - 3 - 16]
        questions = [*SHORT[:3], LONG._replace(question=" ".join(words)), *SHORT[3:]]
    expected = TrainingPairs(questions, PairInputs(tokenizer, 64))
    rows = np.arange(len(expected))
    for pairs in (memory, stored):
        assert len(pairs) == len(expected)
        for ours, theirs in zip(pairs.batch(rows), expected.batch(rows)):
            np.testing.assert_array_equal(ours, theirs)


def test_a_store_records_the_option(tiny_encoder, corpora, tmp_path):
    tokenizer = load_tokenizer(tiny_encoder)
    error, truncate, skip = (
        PairInputs(tokenizer, 64, option) for option in ("error", "truncate", "skip")
    )
    path = tmp_path / "long.store"
    meta = build_store(corpora / "long.jsonl", path, skip)
    assert meta["long_questions"] == "skip" and meta["skipped_questions"] == 1
    assert meta["truncated_questions"] == 0 and meta["questions"] == len(SHORT)
    assert build_store(corpora / "long.jsonl", path, skip) == meta  # it stands
    message = 'made with long_questions="skip".*1 skipped_questions.*set long_questions="skip"'
    for inputs in (error, truncate):
        with pytest.raises(DataError, match=message):
            TrainingPairs(PairStore(path), inputs)
        with pytest.raises(DataError, match=message):
            build_store(corpora / "long.jsonl", path, inputs)
    # Where no question is too long, the option changes nothing.
    path = tmp_path / "short.store"
    build_store(corpora / "short.jsonl", path, skip)
    for inputs in (error, truncate):
        TrainingPairs(PairStore(path), inputs)
        assert build_store(corpora / "short.jsonl", path, inputs)["long_questions"] == "skip"


def test_tokenize(tiny_encoder, corpora, tmp_path, run_main):
    arguments = ("tokenize", "--encoder", tiny_encoder, "--data", corpora / "long.jsonl")
    for option, count in (("skip", 6), ("truncate", 7)):
        more = ("--max-length", 64, "--long-questions", option, "--out", tmp_path / option)
        code, out, err = run_main(*arguments, *more)
        assert code == 0 and f"{count} questions, " in out
        assert "long.jsonl: 1 over-long question " in err and option in err


def test_train(tiny_encoder, corpora, tmp_path, run_main):
    run, data = tmp_path / "run", corpora / "long.jsonl"
    arguments = ["train", "pairwise", "--encoder", tiny_encoder, "--out", run, "--max-length", 64]
    arguments += ["--max-updates", 2, "--eval-every", 1, "--train", corpora / "short.jsonl"]
    arguments += ["--dev", data]
    code, _, err = run_main(*arguments)
    assert_names_all(code, err)
    assert not (run / "metrics.jsonl").exists()  # it fails before it trains
    code, _, err = run_main(*arguments, "--long-questions", "skip")
    assert code == 0 and "long.jsonl: 1 over-long question skipped with all candidates" in err
    assert json.loads((run / "config.json").read_text())["training"]["long_questions"] == "skip"
    assert {figures["questions"] for figures in logged(run, "dev")} == {6}
    code, _, err = run_main(*arguments, "--long-questions", "truncate", "--resume")
    assert code == 2 and "long_questions was skip" in err.splitlines()[-1]


def test_evaluate(tiny_run, corpora, tmp_path, run_main):
    arguments = ("evaluate", tiny_run, "--data", corpora / "long.jsonl", "--per-exit")
    code, _, err = run_main(*arguments)
    assert_names_all(code, err, where="question 'long'")
    rows = {}
    for option, said, note, counts in (
        (
            "skip",
            "6 questions scored, filter no-all-negative, 1 over-long left out\n",
            "sk",
            (0, 1),
        ),
        ("truncate", "7 questions scored, filter no-all-negative\n", "truncated", (1, 0)),
    ):
        path = tmp_path / f"{option}.json"
        code, out, err = run_main(*arguments, "--long-questions", option, "--json", path)
        assert code == 0 and out.startswith(said)
        assert len(err.splitlines()) == 1 and f"1 over-long question {note}" in err
        rows[option] = json.loads(path.read_text())
        for row in rows[option]:
            assert (row["truncated_questions"], row["skipped_questions"]) == counts
    expected = evaluate(load_ranker(tiny_run).rank_all(SHORT), SHORT)
    assert rows["skip"][0]["map"] == expected["map"]


def test_rank(tiny_run, tmp_path, run_main):
    (tmp_path / "candidates").write_text("the moon\nthe sun\n")
    rank = ("rank", tiny_run, "--candidates", tmp_path / "candidates", "--json", "-", "--question")
    code, _, err = run_main(*rank, LONG.question)
    assert code == 2 and "--long-questions truncate" in err
    code, out, err = run_main(*rank, LONG.question, "--long-questions", "truncate")
    assert code == 0 and "1 over-long question truncated" in err
    cut = " ".join(LONG.question.split()[: 64 - 3 - 16])
    _, expected, err = run_main(*rank, cut)
    assert json.loads(out)["ranking"] == json.loads(expected)["ranking"] and err == ""


def test_a_sequence_prepares_for_all_its_rankers(tiny_run, wide_run):
    for option in ("error", "truncate", "skip"):
        rankers = [load_ranker(run, long_questions=option) for run in (wide_run, tiny_run)]
        ranker = SequentialRanker(rankers)
        if option == "error":
            with pytest.raises(QuestionTooLong, match="question 'long'"):
                ranker.prepare([SHORT[0], LONG])
        else:
            prepared = ranker.prepare([SHORT[0], LONG])
            assert prepared.truncated == int(option == "truncate")
            assert prepared.skipped == int(option == "skip")
            assert len(list(ranker.rank_all(prepared.questions))) == len(prepared.questions)
    # Without it, a question to skip is an error: a ranking for each question is promised.
    with pytest.raises(InputError, match="question 'long'"):
        list(ranker.rank_all([LONG]))
