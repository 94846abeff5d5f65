"""Documents for pre-training, the examples drawn from them, and their stream."""

import collections
import gc
import gzip
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.data import paragraphs
from wqa.data.paragraphs import (
    Minima,
    ParagraphCounts,
    ParagraphDocument,
    keep_long,
    note_left_out,
    paragraph_files,
    read_paragraphs,
    write_paragraphs,
)
from wqa.errors import DataError, OptionError
from wqa.systems.mspp import stream as paragraph_stream
from wqa.systems.mspp.examples import (
    EASY,
    HARD,
    KINDS,
    POSITIVE,
    ExampleSettings,
    ParagraphExample,
    draw_example,
)
from wqa.systems.mspp.stream import ParagraphStream

GOOD = '{"id": "a", "paragraphs": [["One.", "Two."], ["Three."]]}'
NO_MINIMA = Minima(0, 0, 0)
SENTENCES = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12).filter(str.strip)
IDS = SENTENCES.map(lambda text: "".join(text.split())).filter(bool)
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=4).map(tuple)
DOCUMENTS = st.builds(
    ParagraphDocument, IDS, st.lists(PARAGRAPHS, min_size=1, max_size=4).map(tuple)
)


def numbered(name, *sizes):
    """A document whose sentences are their places: DOCUMENT/PARAGRAPH/SENTENCE."""
    parts = []
    for paragraph, size in enumerate(sizes):
        parts.append(tuple(f"{name}/{paragraph}/{number}" for number in range(size)))
    return ParagraphDocument(str(name), tuple(parts))


def places(span):
    """Document, paragraph and sentence of each sentence of a span."""
    return [tuple(map(int, place.split("/"))) for place in span.split()]


def source(path, documents):
    write_paragraphs(path, documents)
    return path


# Files


def test_reads_a_line(jsonl):
    expected = ParagraphDocument("a", (("One.", "Two."), ("Three.",)))
    assert list(read_paragraphs(jsonl(GOOD))) == [expected]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=5, unique_by=lambda item: item.id))
def test_what_is_written_reads_back(tmp_path_factory, name, documents):
    path = tmp_path_factory.mktemp("round") / name
    write_paragraphs(path, documents)
    assert list(read_paragraphs(path)) == documents


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "an empty line"),
        ("[]", r"\[\]; expected a JSON object"),
        ('{"id": "b"}', "no key 'paragraphs'"),
        ('{"paragraphs": [["One."]]}', "no key 'id'"),
        ('{"id": "b", "paragraphs": [["x"]], "title": "t"}', "unknown key 'title'"),
        ('{"id": "b c", "paragraphs": [["One."]]}', "id is 'b c'; expected text without white"),
        ('{"id": 3, "paragraphs": [["One."]]}', "id is 3"),
        ('{"id": "b", "paragraphs": []}', "paragraphs is \\[\\]; expected a list that is not"),
        ('{"id": "b", "paragraphs": "One."}', "paragraphs is 'One.'"),
        ('{"id": "b", "paragraphs": [["One."], []]}', "line 2, paragraph 2: sentences is \\[\\]"),
        ('{"id": "b", "paragraphs": ["One."]}', "paragraph 1: sentences is 'One.'"),
        ('{"id": "b", "paragraphs": [["One.", ""]]}', "paragraph 1: sentence 2 is blank"),
        ('{"id": "b", "paragraphs": [[" \\u00a0"]]}', "paragraph 1: sentence 1 is blank"),
        ('{"id": "b", "paragraphs": [["One.", null]]}', "sentence 2 is None; expected a string"),
        ('{"id": "b", "paragraphs": [["\\ud800"]]}', "holds half a surrogate pair"),
        ('{"id": "b", "id": "c", "paragraphs": [["One."]]}', "key 'id' occurs twice"),
        ('{"id": "a", "paragraphs": [["One."]]}', "document id 'a' is on line 1 too"),
    ],
)
def test_a_line_that_is_no_document_is_refused_by_its_number(jsonl, line, message):
    path = jsonl(GOOD, line)
    with pytest.raises(DataError, match=message) as caught:
        list(read_paragraphs(path))
    assert str(caught.value).startswith(f"{path}, line 2")


def test_a_file_without_a_document_is_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text("")
    with pytest.raises(DataError, match="the file holds no document"):
        list(read_paragraphs(tmp_path / "x.jsonl"))


def test_ids_are_compared_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(paragraphs, "RECENT_IDS", 2)
    path = tmp_path / "x.jsonl"
    write_paragraphs(path, [numbered(name, 1) for name in (1, 2, 3, 1)])
    assert [document.id for document in read_paragraphs(path)] == ["1", "2", "3", "1"]
    with pytest.raises(DataError, match="document id '2' is on line 2 too"):
        write_paragraphs(path, [numbered(name, 1) for name in (1, 2, 3, 2)])


@pytest.mark.parametrize(
    "document",
    [
        ParagraphDocument("a b", (("One.",),)),
        ParagraphDocument("a", ()),
        ParagraphDocument("a", ((),)),
        ParagraphDocument("a", (("One.", " "),)),
        ParagraphDocument("a", (("\ud800",),)),
    ],
)
def test_no_document_is_written_that_would_not_be_read(tmp_path, document):
    with pytest.raises(DataError):
        write_paragraphs(tmp_path / "x.jsonl", [document])
    assert not list(tmp_path.iterdir())


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("b.jsonl", "a.jsonl.gz", "c.jsonl", ".d.jsonl", "stats.json", "x.txt"):
        text = GOOD.encode("utf-8")
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    (tmp_path / "folder.jsonl").mkdir()
    names = [path.name for path in paragraph_files(tmp_path)]
    assert names == ["a.jsonl.gz", "b.jsonl", "c.jsonl"]
    assert paragraph_files(tmp_path / "x.txt") == [tmp_path / "x.txt"]


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / "stats.json").write_text("{}")
    with pytest.raises(DataError, match="the folder holds no file of documents; expected files"):
        ParagraphStream([tmp_path])
    with pytest.raises(DataError, match="no such file or folder"):
        ParagraphStream([tmp_path / "absent"])
    with pytest.raises(OptionError, match="sources: none"):
        ParagraphStream([])


# Minima


def test_what_is_too_short_is_left_out_and_counted(capsys):
    documents = [
        # 8 + 1 + 3 characters, 5 + 1 + 6, 3, and two line ends: 29 in all.
        ParagraphDocument("a", (("12345678", "123"), ("12345", "123456"), ("123",))),
        ParagraphDocument("b", (("1234567890", "12345678"),)),  # 19 characters
        ParagraphDocument("c", (("123", "123", "12345"), ("1234", "1234567"))),  # 13 and 12
        ParagraphDocument("d", (("1234", "1234", "123"),) * 2),  # no long sentence
        ParagraphDocument("e", (("12345678901", "12345678901"),)),
    ]
    counts = ParagraphCounts()
    kept = list(keep_long(documents, Minima(5, 12, 23), counts))
    assert kept == [
        ParagraphDocument("a", (("12345678",), ("12345", "123456"))),
        ParagraphDocument("c", (("12345",), ("1234567",))),
        ParagraphDocument("e", (("12345678901", "12345678901"),)),
    ]
    assert counts == ParagraphCounts(
        documents=3,
        paragraphs=5,
        sentences=7,
        short_documents=2,
        short_paragraphs=1,
        short_sentences=4,
        single_paragraphs=1,
        examples=2,
        characters=8 + 5 + 6 + 5 + 7 + 22,
    )
    note_left_out(counts, "x.jsonl")
    assert capsys.readouterr().err == (
        "note: x.jsonl: 2 documents too short and left out, 1 paragraph too short and left out, "
        "4 sentences too short and left out, 1 document of one paragraph, which get no hard "
        "negatives\n"
    )
    note_left_out(ParagraphCounts(documents=3))
    assert not capsys.readouterr().err


def test_minima_of_zero_keep_everything_and_negative_ones_are_refused():
    documents = [numbered(1, 1, 2), numbered(2, 1)]
    assert list(keep_long(documents, NO_MINIMA, ParagraphCounts())) == documents
    assert Minima() == Minima(sentence=20, paragraph=60, document=200)
    with pytest.raises(OptionError, match="minimum of a paragraph: -1; expected 0 or more"):
        Minima(paragraph=-1)


# Examples


def check_example(example, documents, own, paragraph, wanted):
    """Check each rule of an example; returns its kinds."""
    premise = places(example.premise)
    assert {place[:2] for place in premise} == {(own, paragraph)}
    assert len(example.candidates) == len(example.kinds) == wanted.candidates
    assert example.kinds.count(POSITIVE) == 1
    assert example.labels == tuple(int(kind == POSITIVE) for kind in example.kinds)
    assert 1 <= len(premise) <= wanted.premise_sentences
    hard = []
    for candidate, kind in zip(example.candidates, example.kinds):
        span = places(candidate)
        assert 1 <= len(span) <= wanted.candidate_sentences
        numbers = [place[2] for place in span]
        assert numbers == list(range(numbers[0], numbers[0] + len(span)))  # of one paragraph
        [home] = {place[:2] for place in span}
        if kind == POSITIVE:
            assert home == (own, paragraph) and numbers[0] > premise[-1][2]
        elif kind == HARD:
            assert home[0] == own and home[1] != paragraph
            hard += span
        else:
            assert home[0] != own
        if kind != POSITIVE:  # a negative never shares the premise's paragraph
            assert home != (own, paragraph)
    assert len(set(hard)) == len(hard)  # no sentence is part of two hard negatives
    assert len({place[:2] for place in hard}) <= wanted.paragraphs
    others = sum(map(len, documents[own].paragraphs)) - len(documents[own].paragraphs[paragraph])
    expected = min(wanted.hard, others)
    if wanted.paragraphs >= len(documents[own].paragraphs):
        assert example.kinds.count(HARD) == expected
    return example.kinds


SIZES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=7), min_size=2, max_size=6)
SETTINGS = st.builds(
    ExampleSettings,
    hard=st.integers(0, 4),
    easy=st.integers(0, 4),
    paragraphs=st.integers(1, 4),
    premise_sentences=st.integers(1, 3),
    candidate_sentences=st.integers(1, 3),
)


@given(sizes=SIZES, wanted=SETTINGS, seed=st.integers(0, 1000))
def test_every_example_follows_the_rules(sizes, wanted, seed):
    documents = [numbered(name, *parts) for name, parts in enumerate(sizes)]
    rng = np.random.default_rng(seed)
    for own, parts in enumerate(sizes):
        for paragraph, size in enumerate(parts):
            if size > 1:
                example = draw_example(documents, own, paragraph, wanted, rng)
                check_example(example, documents, own, paragraph, wanted)


def test_a_span_before_the_premise_is_no_negative():
    """The premise is often the last sentence but one: what is before it shares its paragraph."""
    documents = [numbered(0, 6, 2), numbered(1, 2)]
    rng = np.random.default_rng(0)
    late = 0
    for _ in range(500):
        example = draw_example(documents, 0, 0, ExampleSettings(), rng)
        late += places(example.premise)[0][2] > 2
        same = [candidate.startswith("0/0/") for candidate in example.candidates]
        assert tuple(map(int, same)) == example.labels
    assert late > 50


def test_missing_hard_negatives_are_easy():
    documents = [numbered(0, 3), numbered(1, 2, 1), numbered(2, 2, 2, 2), numbered(3, 1)]
    rng = np.random.default_rng(0)
    for own, hard in ((0, 0), (1, 1), (2, 2)):
        kinds = draw_example(documents, own, 0, ExampleSettings(), rng).kinds
        assert (kinds.count(HARD), kinds.count(EASY)) == (hard, 4 - hard)
    assert KINDS[POSITIVE] == "positive" and KINDS[HARD] == "hard" and KINDS[EASY] == "easy"


def test_hard_negatives_come_from_four_other_paragraphs_at_most():
    documents = [numbered(0, *[2] * 30), numbered(1, 2)]
    wanted = ExampleSettings(hard=8, easy=0, candidate_sentences=1)
    rng = np.random.default_rng(0)
    homes = collections.Counter()
    for _ in range(200):
        example = draw_example(documents, 0, 7, wanted, rng)
        hard = [places(text)[0] for text, kind in zip(example.candidates, example.kinds) if kind]
        drawn = {place[1] for place in hard}
        assert len(hard) == 8 and len(drawn) == 4
        homes.update(drawn)
    assert set(homes) == set(range(30)) - {7}


def test_easy_negatives_come_from_different_documents():
    documents = [numbered(name, 2, 2) for name in range(6)]
    wanted = ExampleSettings(hard=0, easy=5)
    rng = np.random.default_rng(0)
    for _ in range(50):
        example = draw_example(documents, 3, 1, wanted, rng)
        homes = sorted(places(text)[0][0] for text in example.candidates)
        assert homes == [0, 1, 2, 3, 4, 5]
    example = draw_example(documents[:2], 0, 0, wanted, rng)
    assert example.kinds.count(EASY) == 5


def test_places_and_lengths_are_uniform():
    """Each share lies within four standard deviations of its expectation."""
    documents = [numbered(0, 3), numbered(1, 1), numbered(2, 1)]
    wanted = ExampleSettings(hard=0, easy=1, candidate_sentences=2)
    rng = np.random.default_rng(1)
    count = 4000
    pairs, orders, easy = (collections.Counter() for _ in range(3))
    for _ in range(count):
        example = draw_example(documents, 0, 0, wanted, rng)
        positive = example.candidates[example.labels.index(1)]
        pairs[example.premise, positive] += 1
        orders[example.labels] += 1
        easy[example.candidates[example.labels.index(0)]] += 1
    # One sentence in half of the cases: the premise is the first or the second, and after the
    # first either of the two that follow. Two sentences in the other half, which fit in one way.
    shares = {
        ("0/0/0", "0/0/1"): 1 / 8,
        ("0/0/0", "0/0/2"): 1 / 8,
        ("0/0/1", "0/0/2"): 1 / 4,
        ("0/0/0", "0/0/1 0/0/2"): 1 / 2,
    }
    assert set(pairs) == set(shares)
    expected = [(pairs, shares), (orders, {(0, 1): 0.5, (1, 0): 0.5})]
    expected.append((easy, {"1/0/0": 0.5, "2/0/0": 0.5}))
    for counts, parts in expected:
        for key, share in parts.items():
            deviation = (count * share * (1 - share)) ** 0.5
            assert abs(counts[key] - count * share) < 4 * deviation, key


def test_a_paragraph_of_10_000_sentences_is_fast():
    documents = [numbered(0, 10_000, 10_000, 2), numbered(1, 10_000)]
    rng = np.random.default_rng(0)
    start = time.process_time()
    for number in range(300):
        example = draw_example(documents, 0, number % 3, ExampleSettings(), rng)
        check_example(example, documents, 0, number % 3, ExampleSettings())
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "name, value", [("hard", -1), ("paragraphs", 0), ("candidate_sentences", 0)]
)
def test_settings_outside_their_ranges_are_refused(name, value):
    with pytest.raises(OptionError, match=f"{name}: {value}"):
        ExampleSettings(**{name: value})
    assert ExampleSettings().candidates == 5


# Streams


def corpus(folder, files=3, documents=7):
    """Files of documents of different sizes, and the number of their examples."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    examples = number = 0
    for name in range(files):
        written = []
        for _ in range(documents):
            sizes = rng.integers(1, 5, rng.integers(1, 6))
            written.append(numbered(number, *sizes))
            examples += int(sum(sizes > 1))
            number += 1
        source(folder / f"{name}.jsonl", written)
    return examples


def stream_of(folder, buffer_size=4, **options):
    return ParagraphStream([folder], minima=NO_MINIMA, buffer_size=buffer_size, **options)


@pytest.mark.parametrize("buffer_size", [2, 4, 7, 100])
def test_an_epoch_has_one_example_of_each_paragraph(tmp_path, buffer_size):
    count = corpus(tmp_path / "in")
    stream = stream_of(tmp_path / "in", buffer_size)
    assert stream.count().examples == count
    epochs = []
    for epoch in range(2):
        examples = list(stream.examples(5, epoch))
        homes = [places(example.premise)[0][:2] for example in examples]
        assert len(homes) == len(set(homes)) == count
        epochs.append(examples)
    assert epochs[0] != epochs[1]
    assert epochs[0] == list(stream.examples(5, 0)) != list(stream.examples(6, 0))


def test_examples_are_mixed_within_the_buffer(tmp_path):
    corpus(tmp_path / "in")
    homes = {}
    for buffer_size in (2, 100):
        stream = stream_of(tmp_path / "in", buffer_size)
        drawn = [places(example.premise)[0][0] for example in stream.examples(0)]
        homes[buffer_size] = sum(first == second for first, second in zip(drawn, drawn[1:]))
    assert homes[100] < homes[2]


@settings(max_examples=40)
@given(
    start=st.integers(0, 60),
    buffer_size=st.integers(2, 25),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
)
def test_an_epoch_resumes_to_the_same_examples(tmp_path_factory, start, buffer_size, seed, epoch):
    folder = tmp_path_factory.getbasetemp() / "resumed"
    if not folder.exists():
        corpus(folder)
    stream = stream_of(folder, buffer_size)
    whole = list(stream.examples(seed, epoch))
    assert list(stream.examples(seed, epoch, start)) == whole[start:]


def test_what_was_drawn_before_is_not_drawn_again(tmp_path, monkeypatch):
    count = corpus(tmp_path / "in")
    drawn = []

    def counted(*arguments):
        drawn.append(1)
        return draw_example(*arguments)

    monkeypatch.setattr(paragraph_stream, "draw_example", counted)
    list(stream_of(tmp_path / "in").examples(0, start=count - 3))
    assert len(drawn) == 3


def test_paragraphs_of_one_length_have_draws_of_their_own(tmp_path):
    path = source(tmp_path / "x.jsonl", [numbered(name, *[9] * 20) for name in range(2)])
    starts, orders = collections.Counter(), collections.Counter()
    for example in stream_of(path).examples(0):
        starts[places(example.premise)[0][2]] += 1
        orders[example.labels] += 1
    assert len(starts) > 4 and len(orders) == 5


def test_batches_of_an_epoch_are_read_on(tmp_path, monkeypatch):
    count = corpus(tmp_path / "in")
    stream = stream_of(tmp_path / "in")
    begun = []

    def counted(*arguments):
        begun.append(arguments[2])
        return examples(*arguments)

    examples = stream.examples
    monkeypatch.setattr(stream, "examples", counted)
    for epoch in range(2):
        whole = list(examples(3, epoch))
        for start in range(0, count, 5):
            assert stream.take(3, epoch, start, 5) == whole[start : start + 5]
        assert stream.take(3, epoch, count, 5) == []
    assert begun == [0, 0]
    # Another place begins the epoch again, and so does a stream that resumes.
    assert stream.take(3, 0, 7, 2) == list(examples(3, 0))[7:9]
    assert stream_of(tmp_path / "in").take(3, 0, 9, 2) == stream.take(3, 0, 9, 2)
    assert begun == [0, 0, 7]


def alive():
    """Number of documents in memory."""
    return sum(type(item) is ParagraphDocument for item in gc.get_objects())


@pytest.mark.parametrize("buffer_size", [2, 5])
def test_no_more_documents_than_the_buffer_are_held(tmp_path, buffer_size):
    corpus(tmp_path / "in", documents=10)
    gc.collect()
    gc.freeze()  # what there is before is not looked through
    most = 0
    try:
        for _ in stream_of(tmp_path / "in", buffer_size).examples(0):
            most = max(most, alive())
    finally:
        gc.unfreeze()
    assert most == buffer_size + 1  # and the one that is read, before its short parts are left out


def test_a_buffer_ends_early_where_its_documents_are_long(tmp_path, monkeypatch):
    path = source(tmp_path / "x.jsonl", [numbered(name, 40) for name in range(9)])
    monkeypatch.setattr(paragraph_stream, "MOST_CHARACTERS", 600)  # two documents have 460
    stream = stream_of(path, 100)
    most = max(len(buffer.documents) for buffer in stream._buffers(0, 0))
    assert most == 3 and len(list(stream.examples(0))) == 9


def test_the_last_document_still_has_easy_negatives(tmp_path):
    path = source(tmp_path / "x.jsonl", [numbered(name, 2) for name in range(5)])
    for example in stream_of(path, 2).examples(0):
        own = places(example.premise)[0][0]
        homes = [places(candidate)[0][0] for candidate in example.candidates]
        assert homes.count(own) == 1


def test_sources_without_negatives_or_positives_are_refused(tmp_path):
    alone = source(tmp_path / "alone.jsonl", [numbered(0, 4, 2)])
    with pytest.raises(DataError, match="document 0: no other document for its easy negatives"):
        list(stream_of(alone).examples(0))
    [first, _] = stream_of(alone, settings=ExampleSettings(hard=2, easy=0)).examples(0)
    assert isinstance(first, ParagraphExample)
    short = source(tmp_path / "short.jsonl", [numbered(0, 1, 1), numbered(1, 1)])
    with pytest.raises(DataError, match="short.jsonl: no paragraph with two sentences is left"):
        list(stream_of(short).examples(0))
    with pytest.raises(DataError, match="no paragraph with two sentences is left; .* lower the"):
        list(ParagraphStream([alone]).examples(0))
    with pytest.raises(OptionError, match="buffer_size: 1; expected 2 or more"):
        stream_of(alone, 1)


def test_several_sources_are_one_stream(tmp_path):
    first = source(tmp_path / "a.jsonl", [numbered(0, 2)])
    corpus(tmp_path / "in", 1, 3)
    stream = ParagraphStream([first, tmp_path / "in"], minima=NO_MINIMA)
    assert [path.name for path in stream.files] == ["a.jsonl", "0.jsonl"]


def test_a_damaged_file_is_named_while_its_examples_are_drawn(tmp_path):
    corpus(tmp_path / "in", 1, 3)
    with open(tmp_path / "in" / "0.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "x", "paragraphs": [[""]]}) + "\n")
    with pytest.raises(DataError, match="0.jsonl, line 4, paragraph 1: sentence 1 is blank"):
        list(stream_of(tmp_path / "in").examples(0))
    stream = stream_of(tmp_path / "in", 2)
    taken = stream.take(0, 0, 0, 2)
    assert len(taken) == 2
    for _ in range(2):
        with pytest.raises(DataError, match="0.jsonl, line 4"):
            stream.take(0, 0, 2, 50)
