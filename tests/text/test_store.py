import hashlib
import json
import random

import numpy as np
import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import TrainingConfig
from wqa.data import (
    Candidate,
    Question,
    builtin_path,
    filter_questions,
    read_questions,
    write_questions,
)
from wqa.errors import DataError, OptionError
from wqa.systems.train import train
from wqa.text import PairInputs, PairStore, build_store, load_tokenizer, plan_batches
from wqa.text.batching import BUCKET
from wqa.training.pairs import TrainingPairs


@pytest.fixture(scope="module")
def inputs(tiny_encoder):
    return PairInputs(load_tokenizer(tiny_encoder), 40)


@pytest.fixture
def corpus(tmp_path):
    """The built-in corpus with a blank candidate, one that is cut, and questions with labels of one
    kind."""
    questions = list(read_questions(builtin_path("dev")))
    odd = [
        Question("blank", "who ?", (Candidate(" ", 1), Candidate("a b", 0))),
        Question("long", "who ?", (Candidate("a " * 80, 1),)),
        Question("wrong", "why ?", (Candidate("so", 0),)),
    ]
    write_questions(tmp_path / "train.jsonl", [*questions[:5], *odd, *questions[5:]])
    return tmp_path / "train.jsonl"


def stored_tokenizer(name):
    return load_tokenizer(DATA / "tokenizers" / name)


@pytest.mark.parametrize("shuffle", ["pair", "question"])
@pytest.mark.parametrize("filter", ["all", "no-all-negative", "clean"])
@pytest.mark.parametrize("name", ["uncased", "byte_level"])
def test_gives_the_batches_that_memory_gives(corpus, name, tmp_path, filter, shuffle):
    inputs = PairInputs(stored_tokenizer(name), 48)
    meta = build_store(corpus, tmp_path / "train.store", inputs)
    blank = inputs.tokenizer.encode([" "]) == [[]]  # a byte-level tokenizer has a space
    assert meta["questions"] == 28 and meta["blank"] == blank and meta["truncated"] >= 1
    questions = list(read_questions(corpus))
    memory = TrainingPairs(questions, inputs, shuffle, filter)
    stored = TrainingPairs(PairStore(tmp_path / "train.store"), inputs, shuffle, filter)
    # A question whose only answer is blank has no answer to train on.
    left_out = {"all": 0, "no-all-negative": 1 + blank, "clean": 2 + blank}[filter]
    assert len(set(memory.questions.tolist())) == 28 - left_out
    if filter == "all":
        assert len(memory) == meta["pairs"]
    np.testing.assert_array_equal(memory.lengths, stored.lengths)
    np.testing.assert_array_equal(memory.questions, stored.questions)
    for seed in (None, 3):
        plans = []
        for pairs in (memory, stored):
            rng = None if seed is None else np.random.default_rng(seed)
            plans.append(pairs.plan(300, rng))
        assert sum(map(len, plans[0])) == len(memory)
        for indices, stored_indices in zip(*plans):
            np.testing.assert_array_equal(indices, stored_indices)
            for ours, theirs in zip(memory.batch(indices), stored.batch(stored_indices)):
                np.testing.assert_array_equal(ours, theirs)
                assert ours.dtype == theirs.dtype and ours.flags.writeable
    # Questions that are filtered before give the same batches.
    before = TrainingPairs(filter_questions(questions, filter), inputs, shuffle, filter)
    np.testing.assert_array_equal(before.lengths, memory.lengths)
    rows = np.arange(len(memory))
    for ours, theirs in zip(before.batch(rows), memory.batch(rows)):
        np.testing.assert_array_equal(ours, theirs)


QUESTIONS = [
    Question("q1", "who is it ?", (Candidate("the moon", 0), Candidate("it is the sun .", 1))),
    Question("q2", "why ?", (Candidate("", 1), Candidate("the sea", 0))),
    Question("q3", "the sun ?", (Candidate("moon", 1), Candidate("moon " * 40, 1))),
]


def both_kinds(questions, inputs, folder, filter, shuffle="pair"):
    """Pairs in memory, and pairs of a store."""
    write_questions(folder / "train.jsonl", questions)
    build_store(folder / "train.jsonl", folder / "train.store", inputs)
    yield TrainingPairs(questions, inputs, shuffle, filter)
    yield TrainingPairs(PairStore(folder / "train.store"), inputs, shuffle, filter)


@pytest.mark.parametrize("name", ["uncased", "byte_level"])
def test_batches_by_hand(tmp_path, name):
    tokenizer = stored_tokenizer(name)
    questions = QUESTIONS[:2]
    inputs = PairInputs(tokenizer, 60)
    start, end, padding = tokenizer.start_id, tokenizer.separator_id, tokenizer.padding_id
    middle = [end] if name == "uncased" else [end, end]
    texts = ["who is it ?", "it is the sun .", "why ?", "the sea"]
    who, sun, why, sea = tokenizer.encode(texts)
    rows = [[start, *who, *middle, *sun, end], [start, *why, *middle, *sea, end]]
    length = -(-len(rows[0]) // 8) * 8
    for pairs in both_kinds(questions, inputs, tmp_path, "all"):
        assert len(pairs) == 3 and pairs.questions.tolist() == [0, 0, 1]
        assert pairs.lengths.tolist()[1:] == [len(row) for row in rows]
        token_ids, token_types, valid_length, labels = pairs.batch(np.array([1, 2]))
        assert token_ids.tolist() == [row + [padding] * (length - len(row)) for row in rows]
        if name == "uncased":
            for types, question, row in zip(token_types.tolist(), (who, why), rows):
                first = len(question) + 2
                second = len(row) - first
                assert types == [0] * first + [1] * second + [0] * (length - len(row))
        else:  # RoBERTa has one token type
            assert not token_types.any()
        assert valid_length.tolist() == [len(row) for row in rows]
        assert labels.tolist() == [1.0, 0.0]
        assert [array.dtype for array in (token_ids, token_types)] == [np.int32] * 2
        assert [array.dtype for array in (valid_length, labels)] == [np.float32] * 2


@pytest.mark.parametrize(
    "filter, questions, labels",
    [
        ("all", [0, 0, 1, 2, 2], [0, 1, 0, 1, 1]),
        ("no-all-negative", [0, 0, 2, 2], [0, 1, 1, 1]),  # the answer of q2 is blank
        ("clean", [0, 0], [0, 1]),
    ],
)
def test_filters_by_hand(tmp_path, filter, questions, labels):
    inputs = PairInputs(stored_tokenizer("uncased"), 32)
    for pairs in both_kinds(QUESTIONS, inputs, tmp_path, filter):
        assert pairs.questions.tolist() == questions
        assert pairs.batch(np.arange(len(pairs)))[3].tolist() == labels


def test_the_order_of_batches_stays(tmp_path):
    """Trainings repeat those of earlier versions only if this does not change."""
    inputs = PairInputs(stored_tokenizer("uncased"), 40)
    questions = [
        Question(str(number), "who ?", tuple(Candidate("moon " * count, 1) for count in counts))
        for number, counts in enumerate([(1, 9, 20), (2, 30), (4, 4, 12), (25,), (3, 18)])
    ]
    for pairs in both_kinds(questions, inputs, tmp_path, "all"):
        assert pairs.lengths.tolist() == [6, 14, 25, 7, 35, 9, 9, 17, 30, 8, 23]
        plan = pairs.plan(64, np.random.default_rng(5))
        assert [batch.tolist() for batch in plan] == [[2, 8], [3, 0, 9, 1], [6, 5], [4], [10, 7]]


def test_options_of_pairs_that_do_not_exist(inputs):
    with pytest.raises(OptionError, match="filter: 'best'; expected one of all, no-all-negative"):
        TrainingPairs(QUESTIONS, inputs, filter="best")
    with pytest.raises(OptionError, match="shuffle: 'token'; expected one of pair, question"):
        TrainingPairs(QUESTIONS, inputs, "token")
    with pytest.raises(DataError, match="question 'q': candidate 2 has no label"):
        TrainingPairs([Question("q", "?", (Candidate("a", 1), Candidate("b")))], inputs)
    with pytest.raises(DataError, match="no labelled candidate is left"):
        TrainingPairs([], inputs)


def test_trains_to_the_same_bits(tiny_encoder, tmp_path):
    inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
    build_store(builtin_path("dev"), tmp_path / "dev.store", inputs)
    config = TrainingConfig(max_updates=2, warmup_updates=1, tokens_per_batch=500)
    options = {"exits": (1, 3), "config": config, "max_length": 64}
    parameters, digests = [], []
    for name, source in (("memory", builtin_path("dev")), ("store", tmp_path / "dev.store")):
        run = tmp_path / name
        train("cascade", str(source), str(run), str(tiny_encoder), **options)
        parameters.append((run / "model.params").read_bytes())
        digests.append(json.loads((run / "config.json").read_text())["train_sha256"])
    assert parameters[0] == parameters[1] and digests[0] == digests[1]


@pytest.mark.parametrize("harm", ["short", "gone", "format"])
def test_a_half_written_store_is_never_read_and_is_made_anew(corpus, inputs, tmp_path, harm):
    path = tmp_path / "train.store"
    meta = build_store(corpus, path, inputs)
    if harm == "short":
        (path / "candidate_tokens.bin").write_bytes(
            (path / "candidate_tokens.bin").read_bytes()[:-2]
        )
    elif harm == "gone":
        (path / "labels.bin").unlink()
    else:
        (path / "meta.json").write_text(json.dumps({**meta, "format": 0}))
    with pytest.raises(DataError, match="wqa tokenize"):
        PairStore(path)
    assert build_store(corpus, path, inputs) == meta
    assert len(PairStore(path)) == meta["pairs"]


def test_a_whole_store_stays_and_another_is_refused(corpus, inputs, tmp_path):
    path = tmp_path / "train.store"
    meta = build_store(corpus, path, inputs)
    before = (path / "meta.json").stat().st_mtime_ns
    assert build_store(corpus, path, inputs) == meta
    assert (path / "meta.json").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="made with source_sha256 .*; delete the folder, or choose"):
        build_store(builtin_path("dev"), path, inputs)
    longer = PairInputs(inputs.tokenizer, 41)
    with pytest.raises(DataError, match="made with max_length 40; expected 41; tokenize the"):
        TrainingPairs(PairStore(path), longer)


def test_places_and_corpora_that_do_not_fit(corpus, inputs, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        build_store(tmp_path / "absent.jsonl", tmp_path / "s.store", inputs)
    with pytest.raises(OptionError, match="a file"):
        build_store(corpus, corpus, inputs)
    write_questions(tmp_path / "open.jsonl", [Question("q", "who ?", (Candidate("a"),))])
    with pytest.raises(DataError, match="has no label"):
        build_store(tmp_path / "open.jsonl", tmp_path / "s.store", inputs)
    write_questions(tmp_path / "blank.jsonl", [Question("q", "who ?", (Candidate(" ", 1),))])
    with pytest.raises(DataError, match="no candidate has a token"):
        build_store(tmp_path / "blank.jsonl", tmp_path / "s.store", inputs)


def greedy(lengths, tokens):
    """Batches one sample at a time, in the order of their padded lengths."""
    padded = [-(-length // BUCKET) * BUCKET for length in lengths]
    ordered, batches = sorted(range(len(lengths)), key=lambda index: padded[index]), []
    for index in ordered:
        if batches and padded[index] * (len(batches[-1]) + 1) <= tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def test_samples_of_two_inputs_pad_each_input():
    lengths = np.array([[3, 20], [30, 20], [4, 17], [8, 33], [20, 9], [5, 21]])
    # By padded lengths: (24, 16), then (8, 24) three times, (32, 24) and (8, 40).
    plan = [batch.tolist() for batch in plan_batches(lengths, 112)]
    assert plan == [[4, 0], [2, 5], [1], [3]]
    sizes = []
    for batch in plan:
        greatest = -(-lengths[batch].max(axis=0) // BUCKET) * BUCKET
        sizes.append(len(batch) * greatest.sum())
    assert sizes == [96, 64, 56, 48]  # one row more would need 144, 168, 144 tokens
    for seed in range(3):
        shuffled = plan_batches(lengths, 112, np.random.default_rng(seed))
        assert sorted(np.concatenate(shuffled)) == list(range(6)) and len(shuffled) == len(plan)


@given(st.lists(st.integers(1, 130), max_size=80), st.integers(1, 700))
def test_batches_equal_those_of_one_sample_at_a_time(lengths, tokens):
    assert [batch.tolist() for batch in plan_batches(lengths, tokens)] == greedy(lengths, tokens)


def test_a_store_of_another_familys_tokenizer_is_refused(tiny_run, tmp_path):
    other = PairInputs(stored_tokenizer("byte_level"), 64)
    build_store(builtin_path("dev"), tmp_path / "dev.store", other)
    with pytest.raises(DataError, match="made with tokenizer_sha256 .*tokenize the corpus again"):
        options = {"init": str(tiny_run), "max_length": 64}
        train("cascade", str(tmp_path / "dev.store"), str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()


def test_a_store_with_a_damaged_byte_is_never_trained_on(corpus, inputs, tmp_path):
    path = tmp_path / "train.store"
    meta = build_store(corpus, path, inputs)
    PairStore(path).check(inputs)
    rng = random.Random(3)
    for name, digest in meta["sha256"].items():
        whole = (path / f"{name}.bin").read_bytes()
        assert hashlib.sha256(whole).hexdigest() == digest
        for position in [0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(6))]:
            damaged = bytearray(whole)
            damaged[position] ^= 1 << rng.randrange(8)
            (path / f"{name}.bin").write_bytes(damaged)
            with pytest.raises(DataError, match="train.store.*delete the folder, then make it"):
                TrainingPairs(PairStore(path), inputs)
        (path / f"{name}.bin").write_bytes(whole)
    PairStore(path).check(inputs)
