"""Training pairs in memory: which are kept, their candidates by number, and their keys."""

import numpy as np
import pytest

from wqa.data import Candidate, Question
from wqa.data.scores import candidate_keys
from wqa.errors import DataError, OptionError
from wqa.text import PairInputs, load_tokenizer
from wqa.training.pairs import TrainingPairs


def question(number, *labelled):
    """A question with candidates, each a text with its label."""
    candidates = tuple(Candidate(text, label) for text, label in labelled)
    return Question(f"q{number}", "how does ice melt ?", candidates)


QUESTIONS = [
    question(0, ("ice", 0), ("the cave", 0)),
    question(1, ("a cave", 1), ("ice", 0), ("ice", 0)),
    question(2, ("ice", 1)),
]


@pytest.fixture
def pairs_of(tiny_encoder):
    inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
    return lambda **options: TrainingPairs(QUESTIONS, inputs, **options)


@pytest.mark.parametrize(
    "name, kept, numbers",
    [
        ("all", range(6), [0, 1, 2, 0, 0, 0]),
        ("no-all-negative", range(2, 6), [0, 1, 1, 1]),
        ("clean", range(2, 5), [0, 1, 1]),
    ],
)
def test_a_filter_keeps_whole_questions(pairs_of, name, kept, numbers):
    """Candidates of equal tokens have one number, in the order in which they first occur."""
    pairs = pairs_of(filter=name, with_keys=True)
    labels, questions = [0, 0, 1, 0, 0, 1], [0, 0, 1, 1, 1, 2]
    keys = np.concatenate([candidate_keys(entry) for entry in QUESTIONS])
    assert len(pairs) == len(kept)
    assert pairs.labels.tolist() == [labels[pair] for pair in kept]
    assert pairs.questions.tolist() == [questions[pair] for pair in kept]
    assert pairs.candidates.tolist() == numbers
    np.testing.assert_array_equal(pairs.keys, keys[kept.start : kept.stop])
    assert pairs_of(filter=name).keys is None


@pytest.mark.parametrize("shuffle", ["pair", "question"])
def test_an_epoch_has_each_pair_once_within_the_tokens(pairs_of, shuffle):
    pairs = pairs_of(shuffle=shuffle)
    most = int(pairs.lengths.max())
    for rng in (None, np.random.default_rng(0)):
        batches = pairs.plan(2 * most, rng)
        assert sorted(np.concatenate(batches).tolist()) == list(range(6))
    ids, types, lengths, labels = pairs.batch(np.array([2, 5]))
    assert ids.shape == types.shape and lengths.tolist() == pairs.lengths[[2, 5]].tolist()
    assert labels.dtype == np.float32 and labels.tolist() == [1, 1]


def test_pairs_that_are_refused(pairs_of, tiny_encoder):
    inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
    with pytest.raises(DataError, match="no labelled candidate is left"):
        TrainingPairs([QUESTIONS[0]], inputs, filter="clean")
    with pytest.raises(OptionError, match="filter"):
        pairs_of(filter="best")
    with pytest.raises(OptionError, match="shuffle"):
        pairs_of(shuffle="none")
