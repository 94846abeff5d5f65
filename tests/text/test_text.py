import json
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import BackboneConfig
from wqa.errors import EncoderError, InputError, OptionError, QuestionTooLong
from wqa.text import (
    PairInputs,
    bucketed,
    load_tokenizer,
    pack_batches,
    pad_pairs,
    plan_batches,
    plan_by_question,
    split_rows,
)


@pytest.fixture(scope="module")
def bert(tiny_encoder):
    return load_tokenizer(tiny_encoder)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """Byte-level BPE of single bytes and two merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    folder = tmp_path_factory.mktemp("roberta")
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "th", "the", "<mask>"]
    (folder / "vocab.json").write_text(
        json.dumps({token: number for number, token in enumerate(vocab)})
    )
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
    return load_tokenizer(folder)


def test_bert_form(bert):
    pair = PairInputs(bert).encode("who ?", ["the moon ."])[0]
    who, mark, the, moon, stop = (
        bert.encode([word])[0][0] for word in ("who", "?", "the", "moon", ".")
    )
    cls, sep = bert.start_id, bert.separator_id
    assert pair.token_ids.tolist() == [cls, who, mark, sep, the, moon, stop, sep]
    assert pair.boundary == 4 and not pair.truncated and not pair.empty
    ids, types, length = pad_pairs([pair], 16, bert.padding_id, typed=True)
    assert types.tolist() == [[0] * 4 + [1] * 4 + [0] * 8] and length.tolist() == [8.0]
    assert ids[0, 8:].tolist() == [bert.padding_id] * 8
    assert not pad_pairs([pair], 16, bert.padding_id, typed=False)[1].any()


def test_roberta_form(roberta):
    pair = PairInputs(roberta).encode("the", ["to the"])[0]
    the, (t, o, space) = (
        roberta.encode(["the"])[0][0],
        (roberta.encode([c])[0][0] for c in ("t", "o", " ")),
    )
    start, end = roberta.start_id, roberta.separator_id
    assert pair.token_ids.tolist() == [start, the, end, end, t, o, space, the, end]
    assert roberta.pair_form == "roberta" and bool(roberta.vocab_size)


def test_only_the_candidate_is_shortened(bert):
    inputs = PairInputs(bert, 32)
    whole, cut, blank, spaces = inputs.encode("who is it ?", ["the moon", "moon " * 40, "", " \t"])
    assert (whole.truncated, cut.truncated, blank.truncated) == (False, True, False)
    assert (whole.empty, cut.empty, blank.empty, spaces.empty) == (False, False, True, True)
    assert len(cut.token_ids) == 32 and cut.token_ids[-1] == bert.separator_id
    assert cut.token_ids[:6].tolist() == whole.token_ids[:6].tolist()
    # Exactly as long as there is room is not shortened.
    room = 32 - 3 - 4
    assert [
        p.truncated for p in inputs.encode("who is it ?", ["moon " * room, "moon " * (room + 1)])
    ] == [False, True]


def test_questions_that_cannot_be_encoded(bert):
    inputs = PairInputs(bert, 32)
    inputs.encode("moon " * 13, ["x"])  # leaves 16
    with pytest.raises(QuestionTooLong, match="Q9.*leave 15 of 32"):
        inputs.encode("moon " * 14, ["x"], name="Q9")
    for question in ("", "  \n"):
        with pytest.raises(InputError, match="the question is empty"):
            inputs.encode(question, ["x"])
    with pytest.raises(InputError, match="the candidate list is empty"):
        inputs.encode("who ?", [])
    with pytest.raises(InputError, match=r"question 'Q9': 'half \\ud83d'; .* whole characters"):
        inputs.encode("who ?", ["fine", "half \ud83d"], name="Q9")
    with pytest.raises(InputError, match="list of strings"):
        inputs.encode("who ?", "one string")
    with pytest.raises(OptionError, match="max_length: 19; expected at least 20 tokens"):
        PairInputs(bert, 19)


def test_missing_and_broken_tokenizers(tmp_path, bert):
    with pytest.raises(EncoderError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EncoderError, match="cannot be read"):
        load_tokenizer(tmp_path)
    bert.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).encode(["The moon?"]) == bert.encode(["the moon ?"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "vocab.txt").write_text("a\nb\n[UNK]\n")
    with pytest.raises(EncoderError, match="CLS"):
        load_tokenizer(tmp_path / "other")


def test_a_tokenizer_of_another_encoder_is_refused(bert, roberta):
    config = BackboneConfig(vocab_size=bert.vocab_size)
    bert.check_fits(config, "here")
    with pytest.raises(EncoderError, match="a tokenizer of roberta.s pairs"):
        roberta.check_fits(config, "here")
    with pytest.raises(EncoderError, match="here: a tokenizer of"):
        bert.check_fits(BackboneConfig(vocab_size=bert.vocab_size - 1), "here")
    with pytest.raises(EncoderError, match="rows of word embeddings; expected the encoder's own"):
        bert.check_fits(BackboneConfig(vocab_size=2 * bert.vocab_size + 1), "here")


def test_rows_that_no_token_uses_are_no_fault(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(30516))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == 30521
    for rows in (30521, 50000, 2 * 30521):  # the second is a published encoder's
        tokenizer.check_fits(BackboneConfig(vocab_size=rows), "here")


def test_minilm_tokenizer_gives_the_reference_ids(minilm):
    from conftest import DATA

    expected, tokenizer = np.load(DATA / "minilm_expected.npz"), load_tokenizer(minilm)
    for row, (question, candidate) in enumerate(zip(expected["questions"], expected["candidates"])):
        pair = PairInputs(tokenizer).encode(str(question), [str(candidate)])[0]
        length = int(expected["valid_length"][row])
        assert pair.token_ids.tolist() == expected["token_ids"][row, :length].tolist()
        assert pair.boundary == expected["token_types"][row].tolist().index(1)


def test_vocab_txt_equals_tokenizer_json(minilm, tmp_path):
    (tmp_path / "vocab.txt").write_bytes((minilm / "vocab.txt").read_bytes())
    texts = [
        "Zürich, it's 1,000 km!",
        "日本 unaffable\tNaïve",
        string.punctuation,
        "İstanbul ﬁne",
        "a\u200bb",
    ]
    assert load_tokenizer(tmp_path).encode(texts) == load_tokenizer(minilm).encode(texts)


def test_buckets():
    assert [bucketed(length) for length in (1, 8, 9, 128)] == [8, 8, 16, 128]
    assert bucketed(125, 126) == 126 and bucketed(126, 126) == 126 and bucketed(20, 126) == 24


LENGTHS_TO_PLAN = [5, 30, 8, 12, 60, 7, 16, 33, 9, 200, 4, 24]


@pytest.mark.parametrize(
    "seed, expected",
    [
        # 64 tokens hold eight rows of 8, four of 16, two of 32; rows of 8 may be padded to 16.
        (None, [[0, 2, 5, 10], [3, 6, 8], [11, 1], [7], [4], [9]]),
        (7, [[7], [11, 1], [10, 0, 2, 5], [4], [6, 3, 8], [9]]),
    ],
)
def test_plans_stay(seed, expected):
    rng = None if seed is None else np.random.default_rng(seed)
    assert [batch.tolist() for batch in plan_batches(LENGTHS_TO_PLAN, 64, rng)] == expected


@pytest.mark.parametrize(
    "seed, expected",
    [
        # The questions start at tokens 0, 43, 115, 171 and 380: blocks of 64 start at samples
        # 0, 5, 8 and 10.
        (None, [[0, 2, 3], [1], [4], [5, 6], [7], [8], [9], [10, 11]]),
        (7, [[0, 2, 3], [4], [1], [8], [9], [5, 6], [7], [10, 11]]),
    ],
)
def test_plans_by_question_stay(seed, expected):
    rng = None if seed is None else np.random.default_rng(seed)
    questions = np.array([0, 0, 0, 1, 1, 2, 2, 2, 4, 4, 5, 5])
    plan = plan_by_question(LENGTHS_TO_PLAN, questions, 64, rng, batches_a_block=1)
    assert [batch.tolist() for batch in plan] == expected


def test_no_sample_gives_no_batch():
    assert plan_batches([], 64) == plan_by_question([], np.array([]), 64) == []
    assert pack_batches([], 64) == []


@given(lengths=st.lists(st.integers(1, 40), max_size=40).map(sorted), tokens=st.integers(1, 90))
def test_packed_batches_are_as_long_as_the_budget_allows(lengths, tokens):
    batches = [batch.tolist() for batch in pack_batches(lengths, tokens)]
    assert sum(batches, []) == list(range(len(lengths)))
    for batch, following in zip(batches, [*batches[1:], None]):
        total = sum(lengths[index] for index in batch)
        assert total <= tokens or len(batch) == 1
        assert following is None or total + lengths[following[0]] > tokens


def test_split_rows():
    assert split_rows(5, 2) == [(0, 2), (2, 5)] and split_rows(1, 2) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_class": "BertJapaneseTokenizer"},
        {"tokenizer_class": "BertTokenizer", "word_tokenizer_type": "mecab"},
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(tmp_path, settings):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(EncoderError, match="tokenizer_config.json"):
        load_tokenizer(tmp_path)
