"""A question and k candidates as one input: segments, marks, types and positions."""

import numpy as np
import pytest

from wqa.data import Question
from wqa.data.records import Candidate
from wqa.errors import OptionError, QuestionTooLong
from wqa.systems.mspp.inputs import JointInputs
from wqa.text import prepare_questions

#: Ids of the special tokens of the tokenizer below.
START, SEPARATOR, PADDING = 2, 3, 0


class Letters:
    """A tokenizer of letters: a is 11, b is 12."""

    pair_form, start_id, separator_id, padding_id, vocab_size = (
        "bert",
        START,
        SEPARATOR,
        PADDING,
        99,
    )

    def encode(self, texts, most=None):
        return [[ord(letter) - 86 for letter in text.replace(" ", "")][:most] for text in texts]


def make(segment_length=6, k=3, **options):
    return JointInputs(Letters(), segment_length, k, **options)


def join(inputs, question, candidates):
    """An input of token ids without special tokens."""
    return inputs.join([inputs.assemble(question, candidate) for candidate in candidates])


def test_segments_are_packed_one_behind_another():
    joint = join(make(positions="slots"), [11, 12], [[13], [14, 15, 16]])
    assert joint.token_ids.tolist() == [2, 11, 12, 3, 2, 13, 3, 2, 14, 15, 16, 3]
    assert joint.token_types.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert joint.positions.tolist() == [0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 15, 16]
    assert joint.marks.tolist() == [0, 4, 7, -1]
    assert (joint.length, joint.empty) == (12, False)
    arrays = (joint.token_ids, joint.token_types, joint.positions, joint.marks)
    assert {array.dtype for array in arrays} == {np.dtype(np.int32)}


def test_candidates_may_begin_with_the_separator():
    joint = join(make(marks="separator", missing="visible"), [11, 12], [[13], [14, 15, 16]])
    assert joint.token_ids.tolist() == [2, 11, 12, 3, 3, 13, 3, 3, 14, 15, 16, 3, 3, 3]
    assert joint.marks.tolist() == [0, 4, 7, 12]
    with pytest.raises(OptionError, match="marks: 'end'; expected one of start, separator"):
        make(marks="end")


def test_the_family_numbers_the_tokens_by_default():
    joint = join(make(), [11], [[12]])
    assert joint.positions is None
    assert make().names == ("token_ids", "token_types", "marks", "valid_length")
    assert make(positions="slots").names[2] == "positions"


def test_a_missing_candidate_can_be_visible():
    joint = join(make(positions="slots", missing="visible"), [11], [[12]])
    assert joint.token_ids.tolist() == [2, 11, 3, 2, 12, 3, 2, 3, 2, 3]
    assert joint.token_types.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert joint.positions.tolist() == [0, 1, 2, 6, 7, 8, 12, 13, 18, 19]
    assert joint.marks.tolist() == [0, 3, 6, 8]


def test_candidates_are_taken_k_by_k_and_blank_ones_are_in_no_input():
    inputs = make().encode("a b", ["c", "", "d", "  ", "e", "f"])
    assert [(joint.marks >= 0).sum() for joint in inputs] == [4, 2]
    assert inputs[0].token_ids.tolist() == [2, 11, 12, 3, 2, 13, 3, 2, 14, 3, 2, 15, 3]
    assert inputs[1].token_ids.tolist() == [2, 11, 12, 3, 2, 16, 3]
    assert make().encode("a", [" "]) == []


def test_an_over_long_question_is_an_error_truncated_or_skipped():
    with pytest.raises(QuestionTooLong, match="5 or more tokens") as caught:
        make().encode("abcde", ["a"], "Q1")
    assert "Q1" in str(caught.value) and "at most 4" in str(caught.value)
    assert make().encode("abcd", ["a"])[0].length == 6 + 3
    cut = make(long_questions="truncate").encode("abcde", ["a"])
    assert cut[0].token_ids.tolist()[:6] == [2, 11, 12, 13, 14, 3]
    questions = [Question(name, name, (Candidate("a"),)) for name in ("abcde", "ab")]
    prepared = prepare_questions(questions, [make(long_questions="skip")])
    assert [question.id for question in prepared.questions] == ["ab"] and prepared.skipped == 1


def test_rows_are_padded_behind_their_segments():
    inputs = make(positions="slots")
    joints = [join(inputs, [11], [[12]]), join(inputs, [11, 12], [[12, 13], [14, 15, 16, 17]])]
    arrays = dict(zip(inputs.names, inputs.pad(joints)))
    assert arrays["token_ids"].shape == (2, 16)
    assert arrays["token_ids"][0].tolist() == [2, 11, 3, 2, 12, 3] + [PADDING] * 10
    assert arrays["token_types"][0].tolist() == [0] * 3 + [1] * 3 + [0] * 10
    assert arrays["positions"][0].tolist() == [0, 1, 2, 6, 7, 8] + [0] * 10
    assert arrays["marks"].tolist() == [[0, 3, -1, -1], [0, 4, 8, -1]]
    assert arrays["valid_length"].tolist() == [6, 14]
    assert arrays["marks"].dtype == arrays["valid_length"].dtype == np.float32
    # A bucket never exceeds the longest input.
    full = [[12] * 4] * 2
    assert make(k=2).pad([join(make(k=2), [11] * 4, full)])[0].shape == (1, 18)
    assert inputs.pad(joints, 15)[0].shape == (2, 15)
    assert set(inputs.array_types()) == {*inputs.names, "scores"}
