"""Documents, indexes, retrieval, distant labels and the metrics of retrieval."""

import gzip
import json
import math
from collections import Counter

import numpy as np
import pytest
from conftest import limited_file_size, wqa
from hypothesis import given, settings
from hypothesis import strategies as st
from rankers import ranking_of

from wqa.cli import main
from wqa.data import (
    Candidate,
    Document,
    Question,
    read_documents,
    read_questions,
    write_documents,
    write_questions,
)
from wqa.errors import DataError, OptionError, OutputLocked, StorageError
from wqa.evaluation import (
    by_document_id,
    evaluate,
    evaluate_ranker,
    read_qrels,
    read_run,
    score_run,
)
from wqa.evaluation.comparison import NamedRanker, evaluate_seeds
from wqa.inference import Capabilities, Cost, Ranker
from wqa.retrieval import Index, build_index, contains_answer, retrieve, write_retrieved
from wqa.retrieval.collection import open_collection
from wqa.retrieval.index import best
from wqa.retrieval.methods import BUCKETS, count_terms, ngrams, tokenize
from wqa.systems.load import load_ranker

# Documents


def test_documents_round_trip(tmp_path):
    documents = [
        Document("D1", "A glacier cave is a cave in ice .", "Glacier cave"),
        Document("D2", "Le café\u2028est fermé"),
    ]
    for name in ("documents.jsonl", "documents.jsonl.gz"):
        write_documents(tmp_path / name, documents)
        assert list(read_documents(tmp_path / name)) == documents
    plain = (tmp_path / "documents.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "documents.jsonl.gz").read_bytes()) == plain
    assert b'"title"' not in plain.splitlines()[1]
    assert documents[0].full_text == "Glacier cave\nA glacier cave is a cave in ice ."
    assert documents[1].full_text == documents[1].text


@pytest.mark.parametrize(
    "line, problem",
    [
        ('{"id": "D2", "text": " \\t"}', "text is empty"),
        ('{"id": "D1", "text": "again"}', "document id 'D1' is on line 1 too"),
        ('{"id": "D 2", "text": "t"}', "id is 'D 2'"),
        ('{"id": "D2", "text": null}', "text is None"),
        ('{"id": "D2", "text": "\\ud800"}', "text holds half a surrogate pair"),
        ('{"id": "D2", "text": "t", "title": " "}', "title is empty"),
        ('{"id": "D2", "text": "t", "label": 1}', "unknown key 'label'"),
        ('{"id": "D2", "text": "t", "text": "u"}', "key 'text' occurs twice"),
        ("{", "malformed JSON"),
    ],
)
def test_a_wrong_document_is_refused_with_file_and_line(jsonl, line, problem):
    path = jsonl('{"id": "D1", "text": "a cave"}', line, name="documents.jsonl")
    with pytest.raises(DataError) as caught:
        list(read_documents(path))
    assert caught.value.where == f"{path}, line 2"
    assert problem in str(caught.value)


# Terms


def test_tokens_are_those_of_drqas_simple_tokenizer():
    assert tokenize("Who wrote U.S. law_1, in Île-de-France\u2028for $5?\x00") == [
        *("who", "wrote", "u", ".", "s", ".", "law", "_", "1", ",", "in", "i\u0302le", "-", "de"),
        *("-", "france", "for", "$", "5", "?"),
    ]
    assert tokenize("हिन्दी में") == ["हिन्दी", "में"]
    assert tokenize("café") == tokenize("cafe\u0301")
    assert tokenize(" \t\ud800") == []


def test_ngrams_hold_neither_stop_words_nor_punctuation():
    tokens = tokenize("The glacier cave, in $5 ice caves")
    assert ngrams(tokens, 1) == ["glacier", "cave", "$", "5", "ice", "caves"]
    assert ngrams(tokens, 2) == [
        *("glacier", "cave", "$", "5", "ice", "caves"),
        *("glacier cave", "$ 5", "5 ice", "ice caves"),
    ]


def test_terms_are_murmurhash_buckets():
    # MurmurHash3 of 32 bits with seed 0, as its reference implementation computes it.
    assert 0x5E928F0F % BUCKETS in count_terms("hello world", 2)[0]
    terms, counts = count_terms("ice ice cave", 1)
    assert terms.tolist() == sorted(terms) and sorted(counts) == [1, 2]
    assert [len(part) for part in count_terms("the ?", 2)] == [0, 0]


# Weights

#: Documents of a collection by id. "melt" is in three of five, more than half.
TEXTS = {
    "D1": "Ice caves melt . Ice caves grow .",
    "D2": "Caves of ice melt",
    "D3": "Lakes melt",
    "D4": "The rivers freeze",
    "D5": "Volcanoes erupt",
}
COLLECTION = [Document(name, text) for name, text in TEXTS.items()]


@pytest.fixture
def build(tmp_path):
    """Index documents; returns the open index."""

    def build(documents=COLLECTION, method="tfidf", name="index", **options):
        write_documents(tmp_path / "documents.jsonl", documents)
        build_index(tmp_path / "documents.jsonl", tmp_path / name, method, **options)
        return Index(tmp_path / name)

    return build


def test_tfidf_by_hand(build):
    index = build()
    # "ice" and "caves" are in 2 of 5 documents, "ice caves" and "caves melt" in one.
    two, one = math.log(3.5 / 2.5), math.log(4.5 / 1.5)
    log = math.log
    expected = [
        # D1 has "caves melt" once, the others twice; the question has all of them once.
        2 * log(3) * log(2) * two**2 + (log(3) + log(2)) * log(2) * one**2,
        2 * log(2) ** 2 * two**2,
        0,  # "melt" is in more than half of the documents
        0,
        0,
    ]
    assert index.scores("Do the ice caves melt ?") == pytest.approx(expected, rel=1e-6)
    hits = index.search("Do the ice caves melt ?", 5)
    assert [(hit.document.id, hit.number) for hit in hits] == [("D1", 0), ("D2", 1)]
    assert [hit.score for hit in hits] == pytest.approx(expected[:2], rel=1e-6)
    # A word that the question has twice counts by log(1 + 2).
    assert index.scores("ice ? Ice !")[1] == pytest.approx(log(3) * log(2) * two**2)


def test_bm25_by_hand(build):
    index = build(method="bm25", k1=1.5, b=0.5)
    # Terms of the documents: 6 (a full stop is none), 3, 2, 2, 2; 3 in the mean.
    rare, common = math.log(1 + 3.5 / 2.5), math.log(1 + 2.5 / 3.5)
    long, middle = 1.5 * (0.5 + 0.5 * 2), 1.5
    expected = [
        2 * rare * 2 / (2 + long) + common * 1 / (1 + long),
        2 * rare * 1 / (1 + middle) + common * 1 / (1 + middle),
        common * 1 / (1 + 1.5 * (0.5 + 0.5 * 2 / 3)),
        0,
        0,
    ]
    assert index.scores("Do the ice caves melt ?") == pytest.approx(expected, rel=1e-6)
    assert index.scores("ice ice") == pytest.approx(2 * index.scores("ice"))


WORDS = st.sampled_from(["ice", "cave", "melt", "lake", "river", "snow", "the", "of", ".", "É"])
TEXT = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)


def dense_scores(documents, question, method):
    """Scores by another way: dense loops over n-grams that are not hashed."""
    skipped = {"the", "of", "."}

    def grams(text):
        words = text.lower().split()
        pairs = [f"{a} {b}" for a, b in zip(words, words[1:]) if not {a, b} & skipped]
        return Counter([word for word in words if word not in skipped]) + Counter(
            pairs if method == "tfidf" else []
        )

    counted = [grams(document.full_text) for document in documents]
    mean = sum(sum(counts.values()) for counts in counted) / len(counted)
    scores = []
    for counts in counted:
        score = 0.0
        for gram, occurrences in grams(question).items():
            holding = sum(gram in other for other in counted)
            ratio = (len(documents) - holding + 0.5) / (holding + 0.5)
            if method == "tfidf":
                idf = max(0, math.log(ratio))
                score += math.log1p(occurrences) * idf * math.log1p(counts[gram]) * idf
            elif counts[gram]:
                scale = 1.2 * (0.25 + 0.75 * sum(counts.values()) / mean)
                score += occurrences * math.log(1 + ratio) * counts[gram] / (counts[gram] + scale)
        scores.append(score)
    return scores


@pytest.mark.parametrize("method", ["tfidf", "bm25"])
@settings(max_examples=20)
@given(texts=st.lists(TEXT, min_size=1, max_size=8), question=TEXT, top=st.integers(1, 9))
def test_scores_equal_a_dense_reference(tmp_path_factory, method, texts, question, top):
    folder = tmp_path_factory.mktemp("dense")
    documents = [Document("D0", "snow")]
    for number, text in enumerate(texts, 1):
        documents.append(Document(f"D{number}", text, "Snow" if number % 3 == 0 else ""))
    write_documents(folder / "documents.jsonl", documents)
    build_index(folder / "documents.jsonl", folder / "index", method)
    index = Index(folder / "index")
    expected = dense_scores(documents, question, method)
    assert index.scores(question) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    hits = index.search(question, top)
    scores = index.scores(question)
    order = sorted(range(len(documents)), key=lambda number: (-scores[number], number))
    retrieved = [number for number in order if scores[number] > 0][:top]
    assert [hit.number for hit in hits] == retrieved
    assert [hit.document for hit in hits] == [documents[number] for number in retrieved]


def test_documents_that_tie_are_in_the_order_of_the_collection(build):
    texts = ["ice", "ice ice", "ice", "snow", "ice", "rock", "lake", "sea", "ash", "ice"]
    index = build([Document(f"D{number}", text) for number, text in enumerate(texts)], "bm25")
    for top, expected in ((1, [1]), (2, [1, 0]), (3, [1, 0, 2]), (9, [1, 0, 2, 4, 9])):
        assert [hit.number for hit in index.search("ice", top)] == expected
    scores = np.array([1.0, 3, 0, 2, 2, 2, -1])
    assert best(scores, 3).tolist() == [1, 3, 4]
    assert best(scores, 7).tolist() == [1, 3, 4, 5, 0]
    level = np.tile([1.0, 2.0], 500)
    assert best(level, 700).tolist() == [*range(1, 1000, 2), *range(0, 400, 2)]
    with pytest.raises(OptionError, match="top: 0; expected a whole number from 1"):
        index.search("ice", 0)


@pytest.mark.parametrize("method", ["tfidf", "bm25"])
def test_an_index_that_is_written_in_blocks_is_the_same(build, monkeypatch, method):
    whole = build(method=method)
    monkeypatch.setattr("wqa.retrieval.collection._BLOCK_DOCUMENTS", 2)
    monkeypatch.setattr("wqa.retrieval.collection._RANGES", 3)
    blocks = build(method=method, name="blocks")
    for question in ("ice caves melt", "rivers freeze", "volcanoes"):
        assert blocks.search(question) == whole.search(question)
        np.testing.assert_array_equal(blocks.scores(question), whole.scores(question))
    assert [blocks.document(number) for number in range(5)] == COLLECTION


def test_a_question_without_known_words_retrieves_nothing(build):
    index = build()
    assert index.search("") == index.search("the ?") == index.search("zebra zzz \ud800") == []


# Indexes on disk


def test_an_index_holds_its_documents(build, tmp_path):
    documents = [
        Document("D1", "Ice caves", "Höhlen"),
        Document("D2", "the ?"),
        Document("D\u00e9", "emoji \U0001f9ca line\u2028end"),
    ]
    index = build(documents)
    assert [index.document(number) for number in range(len(index))] == documents
    assert index.meta["documents"] == 3
    assert index.meta["terms"] == len(
        np.unique(np.concatenate([count_terms(document.full_text, 2)[0] for document in documents]))
    )
    # The title is searched too.
    assert [hit.document.id for hit in index.search("höhlen")] == ["D1"]
    assert [hit.document.id for hit in index.search("hohlen")] == []


def test_an_index_holds_the_sentences_of_its_documents(build, tmp_path):
    documents = [
        Document("D1", "Ice melts. Caves grow.", "Höhlen"),
        Document("D2", "..."),
        Document("D3", "\U0001f9ca ice floats."),
    ]
    index = build(documents, sentences=True)
    assert index.meta["splitter"].startswith("sentencex ") and index.meta["sentences"] == 3
    assert [index.sentences(number) for number in range(3)] == [[(0, 10), (11, 22)], [], [(0, 13)]]
    plain = build(documents, name="plain")
    with pytest.raises(DataError, match="without sentences.*`wqa index --sentences`"):
        plain.sentences(0)
    assert index.search("caves")[0].score == plain.search("caves")[0].score
    with pytest.raises(DataError, match="made with splitter None; expected 'sentencex"):
        build(documents, name="plain", sentences=True)


@pytest.mark.parametrize("method", ["bm25", "tfidf"])
@pytest.mark.parametrize(
    "question, answer, other, text",
    [
        ("富士山", "静冈县", "北京烤鸭是一道名菜。", "东京是日本的首都。富士山在静冈县。"),
        ("どこで食べますか", "駅", "ここは東京です。", "わたしは駅で食べます。"),
        ("수도는", "서울", "김치는 맛있다.", "서울은 한국의 수도이다."),
        ("กรุงเทพ", "เมืองหลวง", "ข้าวผัดอร่อย", "เมืองหลวงคือกรุงเทพมหานคร"),
        ("iPhone 手机", "很贵", "手表很好。", "新iPhone手机很贵。"),
    ],
)
def test_scripts_without_spaces_between_words(build, method, question, answer, other, text):
    fill = [Document(f"F{number}", f"Text {number} .") for number in range(6)]
    index = build([Document("D1", other), Document("D2", text), *fill], method=method)
    hits = index.search(question)
    assert hits and hits[0].document.id == "D2"
    assert contains_answer(text, [answer]) and not contains_answer(other, [answer])


def test_a_folder_and_a_table_are_indexed_with_their_sentences(tmp_path, monkeypatch):
    monkeypatch.setattr("wqa.retrieval.collection._BLOCK_DOCUMENTS", 1)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Ice melts. Caves grow.")
    (tmp_path / "docs" / "b.md").write_text("# Title\n\nLava flows.")
    build_index(tmp_path / "docs", tmp_path / "index")
    index = Index(tmp_path / "index")
    assert [index.sentences(0), index.sentences(1)] == [[(0, 10), (11, 22)], [(9, 20)]]
    assert index.document(1).title == "Title"
    build_index(tmp_path / "docs", tmp_path / "index")  # is kept
    (tmp_path / "docs" / "a.txt").write_text("Ice grows.")
    with pytest.raises(DataError, match="made with documents_sha256.*--replace"):
        build_index(tmp_path / "docs", tmp_path / "index")
    build_index(tmp_path / "docs", tmp_path / "index", "tfidf", replace=True)
    assert Index(tmp_path / "index").meta["method"] == "tfidf"
    assert Index(tmp_path / "index").sentences(0) == [(0, 10)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "index"]
    (tmp_path / "t.csv").write_text("body\nIce melts. It does.\n")
    build_index(tmp_path / "t.csv", tmp_path / "table", column="body")
    assert Index(tmp_path / "table").sentences(0) == [(0, 10), (11, 19)]
    build_index(tmp_path / "docs", tmp_path / "whole", sentences=False)
    with pytest.raises(DataError, match="without sentences"):
        Index(tmp_path / "whole").sentences(0)


def test_replacing_deletes_an_index_alone(build, tmp_path, monkeypatch):
    build(name="first")
    (tmp_path / "link").symlink_to("first")
    build_index(tmp_path / "documents.jsonl", tmp_path / "link", "bm25", replace=True)
    assert (tmp_path / "link").is_symlink() and Index(tmp_path / "first").meta["method"] == "bm25"
    (tmp_path / "first" / "mine.txt").write_text("mine")
    with pytest.raises(OptionError, match="a folder with other files, such as 'mine.txt'"):
        build_index(tmp_path / "documents.jsonl", tmp_path / "first", "tfidf", replace=True)
    build(name="second", method="tfidf")

    def fails(*arguments):
        raise OSError(28, "No space left on device")

    before = sorted((tmp_path / "second").iterdir())
    with monkeypatch.context() as context:
        context.setattr("wqa.io.arrays.write_json", fails)
        with pytest.raises((OSError, StorageError)):
            build_index(tmp_path / "documents.jsonl", tmp_path / "second", "bm25", replace=True)
    assert sorted((tmp_path / "second").iterdir()) == before
    assert Index(tmp_path / "second").meta["method"] == "tfidf"


def test_the_same_command_keeps_an_index_and_another_is_refused(build, tmp_path):
    build()
    before = (tmp_path / "index" / "meta.json").stat().st_mtime_ns
    build()
    assert (tmp_path / "index" / "meta.json").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="made with method 'tfidf'; expected 'bm25'"):
        build(method="bm25")
    with pytest.raises(DataError, match="made with documents_sha256"):
        build(COLLECTION[:2])
    build(method="bm25", name="bm25")
    with pytest.raises(DataError, match="made with settings"):
        build(method="bm25", name="bm25", k1=2)


def test_an_index_that_was_stopped_is_begun_again(build, tmp_path):
    lines = [json.dumps({"id": document.id, "text": document.text}) for document in COLLECTION]
    path = tmp_path / "cut.jsonl"
    path.write_text("\n".join([*lines[:3], "{", ""]), encoding="utf-8")
    with pytest.raises(DataError, match="line 4"):
        build_index(path, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    with limited_file_size(60), pytest.raises(StorageError, match="could not be written"):
        build()
    assert not (tmp_path / "index").exists()
    assert [index.id for index in map(build().document, range(5))] == list(TEXTS)
    assert not list(tmp_path.glob(".*.tmp"))


def test_documents_without_a_word_are_no_index(build):
    with pytest.raises(DataError, match="only stop words and punctuation marks"):
        build([Document("D1", "the ?"), Document("D2", "...")])


@pytest.mark.parametrize(
    "method, given, message",
    [
        ("lucene", {}, "one of tfidf, bm25"),
        ("tfidf", {"k1": 1.0}, "k1: given with tfidf"),
        ("bm25", {"k1": -1}, "k1: -1; expected a number from 0"),
        ("bm25", {"b": 1.5}, "b: 1.5; expected a number from 0 to 1"),
    ],
)
def test_wrong_settings_are_refused(build, method, given, message):
    with pytest.raises(OptionError, match=message):
        build(method=method, **given)


def arrays_of(folder):
    return sorted(folder.glob("*.bin"))


def test_a_damaged_index_is_refused(build, tmp_path, capsys):
    documents = [*COLLECTION, Document("D6", "snow", "Snow", {"page": 3})]
    folder = build(documents, sentences=True).path
    assert len(arrays_of(folder)) == 9
    for path in arrays_of(folder):
        whole = path.read_bytes()
        middle = len(whole) // 2
        damaged = bytearray(whole)
        damaged[middle] ^= 1
        for content in (whole[:-1], whole + b"x"):
            path.write_bytes(content)
            with pytest.raises(DataError, match=path.name):
                Index(folder)
        path.write_bytes(bytes(damaged))  # of the same size
        assert main(["doctor", str(folder)]) == 2
        assert path.name in capsys.readouterr().err
        path.unlink()
        with pytest.raises(DataError, match="is missing"):
            Index(folder)
        path.write_bytes(whole)
    assert main(["doctor", str(folder)]) == 0
    for change, message in (
        ({"format": 0}, "format 0; expected format 3"),
        ({"method": "other"}, "'other'"),
    ):
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps({**meta, **change}))
        with pytest.raises(DataError, match=message):
            Index(folder)
        (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "meta.json").write_text("{")
    with pytest.raises(DataError, match="is no document index"):
        Index(folder)
    with pytest.raises(DataError, match="make it with `wqa index`"):
        Index(tmp_path / "absent")


def test_a_folder_of_texts_may_hold_another_programs_meta(tmp_path):
    (tmp_path / "meta.json").write_text("{}")
    (tmp_path / "a.txt").write_text("Ice melts.")
    with open_collection(tmp_path) as index:
        assert index.meta["documents"] == 1


def test_a_second_writer_is_refused(build, tmp_path):
    from wqa.io.files import lock_output

    write_documents(tmp_path / "documents.jsonl", COLLECTION)
    with lock_output(tmp_path / "index"), pytest.raises(OutputLocked):
        build_index(tmp_path / "documents.jsonl", tmp_path / "index")


# Distant labels


@pytest.mark.parametrize(
    "text, answers, expected",
    [
        ("The Art of war", ["art"], True),
        ("a start", ["art"], False),
        ("the United States", ["Britain", "united   states"], True),
        ("united, states", ["united states"], False),
        ("in the U.S.", ["U.S."], True),
        ("le caf\u00e9", ["cafe\u0301"], True),
        ("le cafe", ["caf\u00e9"], False),
        ("at 10\u2013 11", ["10 \u2013 11"], True),
        ("text", [], False),
    ],
)
def test_a_document_contains_an_answer_exactly(text, answers, expected):
    assert contains_answer(text, answers) is expected


# Questions with the documents that they retrieve

QUESTIONS = [
    Question("Q1", "Do ice caves melt ?", (Candidate("old"),), ("grow", "GROW .")),
    Question("Q2", "Which rivers freeze ?", ()),
    Question("Q3", "zebra", (), ("ice",)),
    Question("Q4", "Which volcanoes ?", (), ("melt",)),
    Question("Q5", "Which lakes ?", (), ("tea",)),
]


def test_retrieved_candidates_have_ids_texts_and_labels(build):
    documents = [*COLLECTION[:3], Document("D4", "The rivers freeze", "Grow"), COLLECTION[4]]
    [first, second, third, *_] = retrieve(build(documents), QUESTIONS, top=2)
    assert first == QUESTIONS[0]._replace(
        candidates=(Candidate(TEXTS["D1"], 1, "D1"), Candidate(TEXTS["D2"], 0, "D2"))
    )
    assert second.candidates == (Candidate("Grow\nThe rivers freeze", None, "D4"),)
    assert third.candidates == ()
    [grown] = retrieve(build(documents), [Question("Q", "rivers", (), ("grow",))])
    assert grown.labels == (0,), "the title alone holds the answer"


def test_a_file_of_retrieved_questions_is_counted(build, tmp_path):
    index = build()
    write_questions(tmp_path / "q.jsonl", QUESTIONS)
    counts = write_retrieved(index.path, tmp_path / "q.jsonl", tmp_path / "c.jsonl", 80)
    expected = {"questions": 4, "candidates": 5, "positives": 1, "without": 1, "unknown": 1}
    assert counts == {**expected, "missed": 3}
    written = list(read_questions(tmp_path / "c.jsonl"))
    assert [question.id for question in written] == ["Q1", "Q2", "Q4", "Q5"]
    assert written[0].answers == ("grow", "GROW .")


def test_questions_that_all_retrieve_nothing_are_an_error(build, tmp_path):
    index = build()
    write_questions(tmp_path / "q.jsonl", [Question("Q3", "zebra", ())])
    with pytest.raises(DataError, match="none of its 1 questions retrieves a document"):
        write_retrieved(index.path, tmp_path / "q.jsonl", tmp_path / "c.jsonl")
    assert not (tmp_path / "c.jsonl").exists()


def test_the_file_of_the_questions_is_not_replaced(build, tmp_path):
    index, path = build(), tmp_path / "q.jsonl"
    write_questions(path, QUESTIONS)
    before = path.read_bytes()
    with pytest.raises(OptionError, match="out: .*q.jsonl, the file of the questions"):
        write_retrieved(index.path, path, str(tmp_path / "." / "q.jsonl"))
    assert path.read_bytes() == before


# Metrics


class NumberRanker(Ranker):
    """Scores a candidate by the number that is its text."""

    def rank_all(self, questions):
        for question in questions:
            yield ranking_of(list(map(float, question.texts)), Cost(0, 1, 1, 1, 1))


class ExitRanker(NumberRanker):
    """One whose only layer is an exit."""

    @property
    def capabilities(self):
        return Capabilities("number", exits=(1,), num_layers=1, stage_layers=(1.0,))

    def set_drops(self, *_, **__):
        pass


#: Candidates in the order of retrieval; neither ids nor scores are in it. Q1: the first, correct,
#: falls to rank 3, and the correct third rises to rank 1. Q2: no correct document.
RETRIEVED = [
    Question(
        "Q1", "one ?", (Candidate("1", 1, "D2"), Candidate("5", 0, "D9"), Candidate("7", 1, "D5"))
    ),
    Question("Q2", "two ?", (Candidate("1", 0, "D1"), Candidate("1", 0, "D2"))),
    Question("Q3", "three ?", (Candidate("2", 1), Candidate("2", 0))),
]
NAMES = ("hit@1", "hit@2", "pbt@1", "pbt@2", "ptb@1", "ptb@2")


def figures(row):
    return [row[name] for name in NAMES]


def test_the_order_of_retrieval_reaches_the_metrics_of_rankers():
    # Q3's two tie, and the greater id is first: its first document falls to rank 2.
    [row] = evaluate_ranker(NumberRanker(), RETRIEVED, filter="all", metrics=NAMES)
    assert figures(row) == pytest.approx([1 / 3, 2 / 3, 1 / 3, 1 / 3, 2 / 3, 1 / 3])
    rankings = NumberRanker().rank_all(RETRIEVED)
    assert figures(evaluate(rankings, RETRIEVED, metrics=NAMES)) == pytest.approx(figures(row))
    named = [NamedRanker("a", NumberRanker())] * 2
    *_, mean, _ = evaluate_seeds(named, RETRIEVED, filter="all", metrics=NAMES)
    assert figures(mean) == pytest.approx(figures(row))
    for question in by_document_id(RETRIEVED):
        assert by_document_id([question]) == [question]
        assert sorted(question.ranks) == list(range(len(question.candidates)))


def test_missing_questions_count_as_misses():
    [row] = evaluate_ranker(NumberRanker(), RETRIEVED, None, "all", NAMES, total=6)
    assert row["questions"] == 6
    assert figures(row) == pytest.approx([1 / 6, 1 / 3, 1 / 6, 1 / 6, 1 / 3, 1 / 6])
    ranker = ExitRanker()
    for row in evaluate_ranker(ranker, RETRIEVED, None, "all", NAMES, True, total=6):
        assert row["questions"] == 6
        assert figures(row) == pytest.approx([1 / 6, 1 / 3, 1 / 6, 1 / 6, 1 / 3, 1 / 6])
    for total, filter, message in (
        (2, "all", "total: 2; expected 3 or more"),
        (6, "clean", "total: with the filter clean"),
    ):
        with pytest.raises(OptionError, match=message):
            evaluate_ranker(NumberRanker(), RETRIEVED, filter=filter, total=total)


def test_the_first_retriever_alone(tmp_path):
    run, qrels = tmp_path / "run", tmp_path / "qrels"
    names = (*NAMES, "map")
    [row] = evaluate_ranker(
        load_ranker("rr"), RETRIEVED, None, "all", names, False, str(run), str(qrels)
    )
    assert figures(row) == pytest.approx([2 / 3, 2 / 3, 0, 0, 0, 0])
    assert row["map"] == pytest.approx(((1 + 2 / 3) / 2 + 1) / 3)
    scored = score_run(read_run(run), read_qrels(qrels), metrics=("map", "hit@1"))
    assert [scored["map"], scored["hit@1"]] == pytest.approx([row["map"], row["hit@1"]])
    [again] = evaluate_ranker(load_ranker("rr"), by_document_id(RETRIEVED), None, "all", names)
    assert figures(again) == figures(row)
    with pytest.raises(OptionError, match="pbt@1 of a TREC run, which lacks the order"):
        score_run(read_run(run), read_qrels(qrels), metrics=("pbt@1",))


# Commands


def test_commands_from_documents_to_figures(tmp_path, capsys):
    documents, questions = tmp_path / "documents.jsonl.gz", tmp_path / "questions.jsonl"
    index, out = tmp_path / "index", tmp_path / "retrieved.jsonl.gz"
    write_documents(documents, COLLECTION)
    write_questions(questions, [QUESTIONS[0], *QUESTIONS[2:]])
    assert wqa("index", documents, "--out", index) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{index}: 5 documents, 9 terms, bm25, ")
    assert Index(index).meta["settings"] == {"k1": 1.2, "b": 0.75}
    documents.unlink()
    assert wqa("retrieve", index, "--data", questions, "--out", out, "--top", 3) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}: 3 questions, 5 candidates, 1 of them with an answer\n"
    assert "note: 1 of 4 questions retrieve no document" in printed.err
    assert "`wqa evaluate --total 4`" in printed.err
    assert "3 questions retrieve no document with an answer" in printed.err
    scored = tmp_path / "figures.json"
    options = ("--data", out, "--metrics", "hit@3,ptb@1", "--total", 4, "--json", scored)
    assert wqa("evaluate", "rr", *options) == 0
    row = json.loads(scored.read_text())
    assert (row["filter"], row["questions"], row["hit@3"], row["ptb@1"]) == ("all", 4, 0.25, 0)
    assert "4 questions scored" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["index", "absent.jsonl", "--out", "index"], "absent.jsonl: cannot be read (No such"),
        (["index", "d.jsonl", "--out", "d.jsonl"], "d.jsonl, a file"),
        (["retrieve", "absent", "--data", "q.jsonl", "--out", "c.jsonl"], "no such file or folder"),
        (["retrieve", "index", "--data", "no.jsonl", "--out", "c.jsonl"], "No such file"),
        (["retrieve", "index", "--data", "q.jsonl", "--out", "c.jsonl", "--top", "0"], "--top: 0"),
        (["evaluate", "rr"], "--data: nothing"),
        (["evaluate", "rr", "--data", "q.jsonl", "--total", "-1"], "--total: -1"),
        (["evaluate", "--run", "r", "--qrels", "q", "--total", "3"], "--total: with --run"),
        (["evaluate", "rr", "--data", "q.jsonl"], "no key 'candidates'"),
    ],
)
def test_errors_of_commands_are_one_line(build, tmp_path, monkeypatch, refusal, arguments, message):
    build()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents.jsonl").rename("d.jsonl")
    write_questions("q.jsonl", QUESTIONS[1:])
    assert message in refusal(*arguments)
    assert not (tmp_path / "c.jsonl").exists()
