import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wqa.text.store_builder as builder_module
from wqa.config import TrainingConfig
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.errors import DataError, OptionError
from wqa.text import (
    PairEncoder,
    PairStore,
    build_store,
    load_tokenizer,
    plan_batches,
    plan_by_question,
)
from wqa.text.batching import BUCKET
from wqa.training import train
from wqa.training.pairs import StoredPairs, TrainingPairs


@pytest.fixture(scope="module")
def encoder(tiny_encoder):
    return PairEncoder(load_tokenizer(tiny_encoder), 40)


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


@pytest.mark.parametrize("filter", ["all", "no-all-negative", "clean"])
@pytest.mark.parametrize("family", [False, True])
def test_gives_the_pairs_that_memory_gives(
    corpus, encoder, family, family_encoder, tmp_path, filter
):
    from wqa.data import filter_questions

    encoder = PairEncoder(load_tokenizer(family_encoder), 48) if family else encoder
    meta = build_store(corpus, tmp_path / "train.store", encoder)
    blanks = int(encoder.tokenizer.encode([" "]) == [[]])  # RoBERTa's have a token for a space
    assert meta["questions"] == 28 and meta["blank"] == blanks and meta["truncated"] >= 1
    kept = filter_questions(read_questions(corpus), filter)
    memory, stored = (
        TrainingPairs(kept, encoder),
        StoredPairs(PairStore(tmp_path / "train.store"), encoder, filter),
    )
    if filter == "all":
        assert len(stored) == meta["pairs"]
    # A question whose only answer is blank has an answer on paper, and none in the store.
    blank = [number for number, question in enumerate(kept) if blanks and question.id == "blank"]
    rows = (
        np.flatnonzero(~np.isin(memory.questions, blank))
        if filter != "all"
        else np.arange(len(memory))
    )
    assert len(stored) == len(rows)
    np.testing.assert_array_equal(memory.lengths[rows], stored.lengths)
    for mine, theirs in zip(memory.batch(rows), stored.batch(np.arange(len(stored)))):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype


def test_trains_to_the_same_bits(tiny_encoder, tmp_path):
    encoder = PairEncoder(load_tokenizer(tiny_encoder), 64)
    build_store(builtin_path("dev"), tmp_path / "dev.store", encoder)
    config = TrainingConfig(
        max_updates=3, learning_rate=1e-2, warmup_updates=1, tokens_per_batch=500
    )
    for name, source in (("memory", builtin_path("dev")), ("store", tmp_path / "dev.store")):
        train(
            "cascade",
            str(source),
            str(tmp_path / name),
            str(tiny_encoder),
            exits=(1, 3),
            config=config,
            max_length=64,
        )
    assert (tmp_path / "memory" / "model.params").read_bytes() == (
        tmp_path / "store" / "model.params"
    ).read_bytes()
    records = [
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("memory", "store")
    ]
    assert records[0]["train_sha256"] == records[1]["train_sha256"]


def test_a_build_that_was_stopped_goes_on(corpus, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(builder_module, "JOURNAL_PAIRS", 20)
    build_store(corpus, tmp_path / "whole.store", encoder)
    seen, real = [], PairEncoder.segments

    def stop(self, *arguments):
        seen.append(arguments)
        if len(seen) == 12:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(PairEncoder, "segments", stop)
    with pytest.raises(KeyboardInterrupt):
        build_store(corpus, tmp_path / "train.store", encoder)
    partial = tmp_path / ".train.store.partial"
    assert not (tmp_path / "train.store").exists() and (partial / "journal.json").exists()
    with open(partial / "labels.bin", "ab") as file:
        file.write(b"what a kill left behind the last entry")
    done = json.loads((partial / "journal.json").read_text())["questions"]
    assert 0 < done < 12
    build_store(corpus, tmp_path / "train.store", encoder)
    assert len(seen) == 12 + 28 - done  # what the journal holds was not tokenized again
    for path in (tmp_path / "whole.store").iterdir():
        assert path.read_bytes() == (tmp_path / "train.store" / path.name).read_bytes(), path
    assert not partial.exists()


def test_a_stopped_build_of_another_corpus_is_not_gone_on_with(corpus, encoder, tmp_path):
    partial = tmp_path / ".train.store.partial"
    partial.mkdir()
    (partial / "journal.json").write_text(
        json.dumps({"made": {"source_sha256": "another"}, "files": {}, "questions": 3})
    )
    assert build_store(corpus, tmp_path / "train.store", encoder)["questions"] == 28


@pytest.mark.parametrize("harm", ["meta", "short", "gone", "format"])
def test_a_half_written_store_is_never_read_and_is_made_anew(corpus, encoder, tmp_path, harm):
    path = tmp_path / "train.store"
    meta = build_store(corpus, path, encoder)
    if harm == "meta":
        (path / "meta.json").unlink()
    elif harm == "short":
        (path / "candidate_tokens.bin").write_bytes(
            (path / "candidate_tokens.bin").read_bytes()[:-2]
        )
    elif harm == "gone":
        (path / "labels.bin").unlink()
    else:
        (path / "meta.json").write_text(json.dumps({**meta, "format": 0}))
    with pytest.raises(DataError, match="wqa tokenize"):
        PairStore(path)
    assert build_store(corpus, path, encoder) == meta
    assert len(PairStore(path)) == meta["pairs"]


def test_a_whole_store_stays_and_another_is_refused(corpus, encoder, tmp_path):
    path = tmp_path / "train.store"
    meta = build_store(corpus, path, encoder)
    before = (path / "meta.json").stat().st_mtime_ns
    assert (
        build_store(corpus, path, encoder) == meta
        and (path / "meta.json").stat().st_mtime_ns == before
    )
    with pytest.raises(DataError, match="another corpus, tokenizer or --max-length"):
        build_store(builtin_path("dev"), path, encoder)
    longer = PairEncoder(encoder.tokenizer, 41)
    with pytest.raises(
        DataError, match="made with max_length 40; expected 41; tokenize the corpus again"
    ):
        StoredPairs(PairStore(path), longer)


def test_places_and_corpora_that_do_not_fit(corpus, encoder, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        build_store(tmp_path / "absent.jsonl", tmp_path / "s.store", encoder)
    with pytest.raises(OptionError, match="a file"):
        build_store(corpus, corpus, encoder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(OptionError, match="other files"):
        build_store(corpus, tmp_path / "full", encoder)
    assert (tmp_path / "full" / "letter.txt").exists()
    write_questions(tmp_path / "open.jsonl", [Question("q", "who ?", (Candidate("a"),))])
    with pytest.raises(DataError, match="has no label"):
        build_store(tmp_path / "open.jsonl", tmp_path / "s.store", encoder)
    write_questions(tmp_path / "blank.jsonl", [Question("q", "who ?", (Candidate(" ", 1),))])
    with pytest.raises(DataError, match="no candidate with a token"):
        build_store(tmp_path / "blank.jsonl", tmp_path / "s.store", encoder)
    shutil.rmtree(tmp_path / ".s.store.partial", ignore_errors=True)


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


@given(st.lists(st.integers(1, 130), max_size=80), st.integers(1, 700))
def test_batches_equal_those_of_one_sample_at_a_time(lengths, tokens):
    assert [batch.tolist() for batch in plan_batches(lengths, tokens)] == greedy(lengths, tokens)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 130)), min_size=1, max_size=30),
    st.integers(0, 5),
)
def test_batches_by_question(draws, seed):
    questions = np.concatenate([[number] * count for number, (count, _) in enumerate(draws)])
    lengths = np.concatenate([[length] * count for count, length in draws])
    plain = plan_by_question(lengths, questions, 300, batches_a_block=2)
    shuffled = plan_by_question(
        lengths, questions, 300, np.random.default_rng(seed), batches_a_block=2
    )
    assert len(plain) == len(shuffled)
    for plan in (plain, shuffled):
        assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    # Blocks of whole questions: the batches of a question lie in one run of those of its block.
    firsts = [int(questions[batch].min()) for batch in plain]
    assert firsts == sorted(firsts, key=lambda first: plain_block(lengths, questions, first))


def plain_block(lengths, questions, first):
    return int(lengths[questions < first].sum() // 600)


def test_a_store_of_another_familys_tokenizer_is_refused(tiny_run, family_encoder, tmp_path):
    other = PairEncoder(load_tokenizer(family_encoder), 64)
    build_store(builtin_path("dev"), tmp_path / "dev.store", other)
    with pytest.raises(DataError, match="made with tokenizer_sha256 .*tokenize the corpus again"):
        train(
            "cascade",
            str(tmp_path / "dev.store"),
            str(tmp_path / "run"),
            init=str(tiny_run),
            max_length=64,
        )
    assert not (tmp_path / "run").exists()
