"""The span reader: answers scored, spans decoded, training, reading, and `wqa answer`."""

import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import Question
from wqa.errors import DataError
from wqa.evaluation.answers import (
    exact_match,
    f1,
    normalize_answer,
    score_answers,
    write_predictions,
)

# Exact match and F1


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The  Cat!", "cat"),
        ("an apple a day", "apple day"),
        ("Theatre, another", "theatre another"),
        ("U.S.", "us"),
        ("a-b", "ab"),
        ("the", ""),
        ("1,234 metres", "1234 metres"),
        ("caf\u00e9 \u2013 The \u201cA\u201d", "caf\u00e9 \u2013 \u201c \u201d"),
    ],
)
def test_answers_are_normalised_as_by_squad(text, expected):
    assert normalize_answer(text) == expected


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


def independent_f1(prediction, answer):
    """F1 by precision and recall of words that are struck off a list."""

    def words(text):
        kept = [letter for letter in text.lower() if letter not in string.punctuation]
        return re.sub(r"\b(an|the|a)\b", " ", "".join(kept)).split()

    left, right = words(prediction), words(answer)
    if not left or not right:
        return float(left == right)
    remaining, hits = list(right), 0
    for word in left:
        if word in remaining:
            remaining.remove(word)
            hits += 1
    if not hits:
        return 0.0
    precision, recall = hits / len(left), hits / len(right)
    return 2 * precision * recall / (precision + recall)


texts = st.lists(st.sampled_from(["the", "A", "an", "b", "B,", "c.", "the\u00e9", "-", "1"])).map(
    " ".join
)


@given(texts, st.lists(texts, min_size=1, max_size=3))
def test_f1_equals_an_independent_one(prediction, answers):
    expected = max(independent_f1(prediction, answer) for answer in answers)
    assert f1(prediction, answers) == pytest.approx(expected)
    assert f1(prediction, answers) >= exact_match(prediction, answers)


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


def test_predictions_are_one_json_object(tmp_path):
    path = tmp_path / "predictions.json"
    write_predictions(path, {"Q1": "Z\u00fcrich", "Q2": ""})
    assert json.loads(path.read_text(encoding="utf-8")) == {"Q1": "Z\u00fcrich", "Q2": ""}
