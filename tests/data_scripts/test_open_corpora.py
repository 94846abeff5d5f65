"""Open collections: SQuAD Open and Natural Questions Open to documents and questions."""

import gzip
import hashlib
import importlib
import json
import sqlite3
import zipfile

import pytest
from conftest import shared_corpus

from wqa.data import read_questions
from wqa.data.documents import Document, read_documents
from wqa.retrieval import build_index, write_retrieved

squad_open, squad_sentences, nq_open = map(
    importlib.import_module, ("squad_open", "squad_sentences", "nq_open")
)

BREAD = "Rye bread keeps for a week. Bakers in Turku add a sour dough that is two days old."
SALT = "Salt was once carried on sledges. A load weighed forty kilos."
LAMP = "The lamp of the pier burns oil of rapeseed."


def entry(key, question, *answers, text=BREAD, **fields):
    """A question of a paragraph, its answers at their first place in the text."""
    spans = [{"text": answer, "answer_start": text.find(answer)} for answer in answers]
    return {"id": key, "question": question, "answers": spans, **fields}


def article(title, *paragraphs):
    return {
        "title": title,
        "paragraphs": [{"context": text, "qas": list(qas)} for text, qas in paragraphs],
    }


TRAIN = [
    article(
        "Rye_bread",
        (
            BREAD,
            [
                entry("r1", " where is it sour ? ", "Turku", "Bakers in Turku", "Turku"),
                entry("r2", "how old is the dough ?", "two days"),
                entry("r3", "who ate it ?", is_impossible=True),
            ],
        ),
        (f"\n{SALT}", [entry("r4", "how heavy ?", "forty kilos", text=f"\n{SALT}")]),
    )
]
DEV = [article("Lamps", (LAMP, [entry("l1", "what does it burn ?", "oil of rapeseed", text=LAMP)]))]


def write_squad(folder, version="v1.1", packed=False, **parts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, articles in (parts or {"train": TRAIN, "dev": DEV}).items():
        raw = json.dumps({"data": articles}).encode("utf-8")
        if packed:
            (folder / f"{name}-{version}.json.gz").write_bytes(gzip.compress(raw))
        else:
            (folder / f"{name}-{version}.json").write_bytes(raw)
    return folder


def write_dump(path, *rows, columns="id PRIMARY KEY, text"):
    """A dump as DrQA writes it."""
    dump = sqlite3.connect(path)
    dump.execute(f"CREATE TABLE documents ({columns})")
    dump.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    dump.commit()
    dump.close()


def convert(script, *arguments, out):
    return script.main([*map(str, arguments), "--out", str(out)])


def open_questions(path):
    questions = read_questions(path, with_candidates=False)
    return [(question.id, question.question, question.answers) for question in questions]


@pytest.mark.parametrize("packed", [False, True])
def test_squad_open_of_its_own_paragraphs(tmp_path, monkeypatch, packed, capsys):
    monkeypatch.setattr("corpus.is_dev", lambda question, share: question.id == "r2")
    folder, out = write_squad(tmp_path / "in", packed=packed), tmp_path / "out"
    out.mkdir()
    left = out / "train.documents.jsonl"  # by a conversion with --articles
    left.write_text("{}\n")
    (out / "stats.json").write_text('{"dev": {"questions": 1}}')
    assert convert(squad_open, "--archive", folder, out=out) == 0
    assert not left.exists()
    assert list(read_documents(out / "documents.jsonl")) == [
        Document("Rye_bread-0", BREAD, "Rye bread"),
        Document("Rye_bread-1", SALT, "Rye bread"),
        Document("Lamps-0", LAMP, "Lamps"),
    ]
    assert open_questions(out / "train.questions.jsonl") == [
        ("r1", "where is it sour ?", ("Turku", "Bakers in Turku")),
        ("r4", "how heavy ?", ("forty kilos",)),
    ]
    assert open_questions(out / "dev.questions.jsonl") == [
        ("r2", "how old is the dough ?", ("two days",))
    ]
    assert open_questions(out / "test.questions.jsonl") == [
        ("l1", "what does it burn ?", ("oil of rapeseed",))
    ]
    stats = json.loads((out / "stats.json").read_text())
    length = (len(BREAD) + len(SALT) + len(LAMP)) / 3
    assert stats["documents"]["characters_per_document"] == round(length, 2)
    assert stats["train"]["questions"] == 2 and stats["train"]["answers_per_question"] == 1.5
    for name, counts in stats.items():
        path = out / ("documents.jsonl" if name == "documents" else f"{name}.questions.jsonl")
        assert counts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "3 documents" in capsys.readouterr().out


def test_without_training_questions_a_note_names_the_option(tmp_path, capsys):
    """Half of SQuAD's development set is such a file."""
    archive = write_squad(tmp_path / "in", "v2.0", dev=DEV) / "dev-v2.0.json"
    assert convert(squad_open, "--archive", archive, out=tmp_path / "out") == 0
    note = "only the test split is written; --articles TRAIN,DEV,TEST makes three splits of the"
    assert note in capsys.readouterr().err
    [path] = (tmp_path / "out").glob("*.questions.jsonl")
    assert path.name == "test.questions.jsonl"


def test_articles_are_divided_by_the_digests_of_their_titles(tmp_path, refusal):
    texts = [f"Fact number {number} is true." for number in range(6)]
    articles = []
    for number, text in enumerate(texts):
        question = entry(f"q{number}", "which ?", f"number {number}", text=text)
        articles.append(article(f"Title_{number}", (text, [question])))
    folder = write_squad(tmp_path / "in", "v2.0", train=articles[:4], dev=articles[4:])
    for sizes in ("3,1,1", "3,2,2"):
        arguments = ("--archive", folder, "--articles", sizes)
        found = refusal(squad_open, *arguments, out=tmp_path / "out")
        assert "6 articles; expected the " in found
    arguments = ("--archive", folder, "--articles", "3,1,2")
    assert convert(squad_open, *arguments, out=tmp_path / "out") == 0
    titles = [f"Title {number}" for number in range(6)]
    order = sorted(titles, key=lambda title: hashlib.sha256(title.encode()).hexdigest())
    expected = {"train": order[:3], "dev": order[3:4], "test": order[4:]}
    for split, part in expected.items():
        questions = open_questions(tmp_path / "out" / f"{split}.questions.jsonl")
        assert [key for key, _, _ in questions] == [f"q{title[-1]}" for title in part]
    # All paragraphs can be searched, whichever split their questions are in.
    assert [d.title for d in read_documents(tmp_path / "out" / "documents.jsonl")] == titles
    own = tmp_path / "out" / "train.documents.jsonl"
    assert [d.title for d in read_documents(own)] == expected["train"]
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert stats["train documents"]["documents"] == 3


def test_squad_open_over_a_dump_of_wikipedia(tmp_path):
    folder = write_squad(tmp_path / "in", dev=DEV)
    rows = (
        ("Rye bread", f"Rye bread\n\n{BREAD}\n \n\n{SALT}\n"),
        ("Nothing", "Nothing\n\n"),
        ("Ämpäri (bucket)", "One line\u2028still the same."),
    )
    write_dump(folder / "docs.db", *rows)
    before = (folder / "docs.db").read_bytes()
    arguments = ("--archive", folder, "--collection", "wikipedia")
    assert convert(squad_open, *arguments, out=tmp_path / "out") == 0
    assert list(read_documents(tmp_path / "out" / "documents.jsonl")) == [
        Document("1-0", BREAD, "Rye bread"),
        Document("1-1", SALT, "Rye bread"),
        Document("3-0", "One line\u2028still the same.", "Ämpäri (bucket)"),
    ]
    assert len(open_questions(tmp_path / "out" / "test.questions.jsonl")) == 1
    assert (folder / "docs.db").read_bytes() == before
    assert sorted(path.name for path in folder.glob("docs*")) == ["docs.db"]


def test_a_dump_that_does_not_fit(tmp_path, refusal):
    folder = write_squad(tmp_path / "in", dev=DEV)
    arguments = (squad_open, "--archive", folder, "--collection", "wikipedia")

    def error(*rows, **options):
        (folder / "docs.db").unlink(missing_ok=True)
        write_dump(folder / "docs.db", *rows, **options)
        return refusal(*arguments, out=tmp_path / "out")

    assert "docs.db.gz, unpack it" in refusal(*arguments, out=tmp_path / "out")
    assert "no such column: text" in error(("a", "b"), columns="id, body")
    assert "row 2: text is None" in error(("a", "b"), ("c", None))
    assert "row 1: title is 7" in error((7, "b"))
    assert "row 1: text is b'b'" in error(("a", b"b"))
    raw = (folder / "docs.db").read_bytes()
    for damaged in (b"no database" * 99, raw[:4096], b""):
        (folder / "docs.db").write_bytes(damaged)
        found = refusal(*arguments, out=tmp_path / "out")
        assert "docs.db: cannot be read (" in found and "a SQLite table" in found
    assert not (tmp_path / "out" / "documents.jsonl").exists()


BAD_ARTICLES = {
    "the same title": (DEV + DEV, "article 2: title 'Lamps' occurs twice"),
    "no title": ([{"paragraphs": []}], "article 1: title is None"),
    "empty paragraph": ([article("a", (" ", []))], "article 1, paragraph 1: its text is empty"),
    "same id": (
        DEV + [article("b", (LAMP, [entry("l1", "what ?", "oil", text=LAMP)]))],
        "article 2, paragraph 1: two questions have the id",
    ),
    "wrong place": (
        [article("a", (LAMP, [entry("a", "what ?", "butter", text="butter")]))],
        "answer 'butter' does not stand at 0",
    ),
    "no answer": ([article("a", (LAMP, [entry("a", "what ?")]))], "split test: it holds no quest"),
}


@pytest.mark.parametrize("kind", BAD_ARTICLES)
def test_articles_that_do_not_fit(tmp_path, refusal, kind):
    articles, message = BAD_ARTICLES[kind]
    folder = write_squad(tmp_path / "in", dev=articles)
    found = refusal(squad_open, "--archive", folder, out=tmp_path / "out")
    assert message in found
    assert not list((tmp_path / "out").glob("*.jsonl"))


def test_titles_choose_articles(tmp_path, capsys, refusal):
    facts = {title: f"{title} is a fact." for title in ("Oats", "Rye_flour", "Salt", "Tar")}
    articles = []
    for title, text in facts.items():
        articles.append(article(title, (text, [entry(title, "which ?", title, text=text)])))
    folder, titles = write_squad(tmp_path / "in", dev=articles), tmp_path / "titles.txt"
    titles.write_text("Tar\n\nRye flour\nOats\n")
    arguments = ("--archive", folder, "--titles", titles)
    assert convert(squad_open, *arguments, "--articles", "1,1,1", out=tmp_path / "out") == 0
    documents = read_documents(tmp_path / "out" / "documents.jsonl")
    assert [document.title for document in documents] == ["Oats", "Rye flour", "Tar"]
    assert convert(squad_open, *arguments, out=tmp_path / "whole") == 0
    questions = open_questions(tmp_path / "whole" / "test.questions.jsonl")
    assert [key for key, _, _ in questions] == ["Oats", "Rye_flour", "Tar"]
    assert "makes three splits of the 3 articles" in capsys.readouterr().err
    titles.write_text("\n")
    assert f"{titles}: no title" in refusal(squad_open, *arguments, out=tmp_path / "no")
    titles.write_text("Tar\nBarley\n")
    found = refusal(squad_open, *arguments, out=tmp_path / "no")
    assert f"{titles}, line 2: the archive holds no article 'Barley'" in found
    found = refusal(squad_open, *arguments[:3], tmp_path / "none", out=tmp_path / "no")
    assert "none: cannot be read (No such file or directory)" in found


def test_the_half_of_squad_that_is_shared(tmp_path):
    arguments = ("--archive", shared_corpus("squad"), "--articles", "10,3,3")
    assert convert(squad_open, *arguments, out=tmp_path / "out") == 0
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert stats["documents"]["documents"] == 646
    counts = {split: stats[split]["questions"] for split in squad_open.SPLITS}
    assert counts == {"train": 1786, "dev": 616, "test": 508}
    texts = {d.id: d.text for d in read_documents(tmp_path / "out" / "documents.jsonl")}
    assert len({key.rpartition("-")[0] for key in texts}) == 16
    own = {d.id: d.text for d in read_documents(tmp_path / "out" / "train.documents.jsonl")}
    assert len({key.rpartition("-")[0] for key in own}) == 10
    assert own.items() <= texts.items()
    everything = "\n".join(texts.values())
    for split in squad_open.SPLITS:
        for _, _, answers in open_questions(tmp_path / "out" / f"{split}.questions.jsonl"):
            assert all(answer in everything for answer in answers)


PIER = ["The", "lamp", "of", "the", "pier", ",", "Turku", ",", "burns", "oil"]
BOAT = ["A", "boat", "leaves", "at", "six"]


def example(key="1", **changes):
    """A question of the release with two paragraphs, of which the second answers it."""
    fields = {
        "id": key,
        "question": " where is the lamp ? ",
        "context": [BOAT, PIER],
        "answers": [[], [{"text": "pier, Turku", "word_start": 4, "word_end": 6}]],
        "final_answers": ["pier, Turku", "pier, Turku"],
    }
    return {**fields, **changes}


def write_release(path, first=None, packed="folder"):
    """Files of the release with one question each."""
    files = {}
    for number, name in enumerate(name for names in nq_open.NAMES.values() for name in names):
        row = example(f"q{number}")
        if not number and first is not None:
            row = first
        files[name] = (row if isinstance(row, str) else json.dumps(row)) + "\n"
    if packed == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"preprocessed-open-domain-qa-data/{name}", text)
        return path
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        if packed == "gz":
            (path / f"{name}.gz").write_bytes(gzip.compress(text.encode("utf-8")))
        else:
            (path / name).write_text(text)
    return path


@pytest.mark.parametrize("packed", ["folder", "gz", "zip"])
def test_natural_questions_open(tmp_path, packed, capsys):
    archive = write_release(tmp_path / "in", packed=packed)
    out = tmp_path / "out"
    assert convert(nq_open, "--archive", archive, out=out) == 0
    questions = list(read_questions(out / "train.jsonl"))
    assert [question.id for question in questions] == ["q0", "q1", "q2", "q3"]
    [question] = read_questions(out / "test.jsonl")
    assert (question.id, question.question) == ("q5", "where is the lamp ?")
    assert question.texts == ("A boat leaves at six", "The lamp of the pier , Turku , burns oil")
    assert question.labels == (0, 1)
    # The span as it stands in the text is an answer too.
    assert question.answers == ("pier, Turku", "pier , Turku")
    expected = []
    for candidate in question.candidates:
        assert candidate.id == hashlib.blake2b(candidate.text.encode(), digest_size=8).hexdigest()
        expected.append(Document(candidate.id, candidate.text))
    assert list(read_documents(out / "documents.jsonl")) == expected  # of six questions, each once
    stats = json.loads((out / "stats.json").read_text())
    assert stats["documents"]["documents"] == 2
    assert stats["train"]["all"]["candidates"] == 8 and stats["train"]["all"]["correct"] == 4
    for split, digest in stats["sha256"].items():
        raw = (out / f"{split}.jsonl").read_bytes()
        assert digest == hashlib.sha256(raw).hexdigest()
    printed = capsys.readouterr().out
    assert "2 documents" in printed and "train" in printed


@pytest.mark.parametrize("marked_context", [0, 1])
def test_a_paragraph_that_is_retrieved_twice_is_one_candidate(tmp_path, marked_context):
    answers = [[], [], []]
    answers[marked_context] = example()["answers"][1]
    row = example("q0", context=[PIER, PIER, BOAT], answers=answers)
    archive = write_release(tmp_path / "in", row)
    assert convert(nq_open, "--archive", archive, out=tmp_path / "out") == 0
    question = next(read_questions(tmp_path / "out" / "train.jsonl"))
    assert question.texts == (" ".join(PIER), " ".join(BOAT)) and question.labels == (1, 0)


def marked(first, last):
    return [[], [{"text": "x", "word_start": first, "word_end": last}]]


BAD_EXAMPLES = {
    "no object": "[1]",
    "no answers": example("q0", answers=[[]]),
    "empty paragraph": example("q0", context=[[], PIER]),
    "half a surrogate": example("q0", context=[["\ud83d"], PIER]),
    "negative": example("q0", answers=marked(-2, 3)),
    "question null": example("q0", question=None),
}


@pytest.mark.parametrize("kind", BAD_EXAMPLES)
def test_lines_of_the_release_that_do_not_fit(tmp_path, refusal, kind):
    archive = write_release(tmp_path / "in", BAD_EXAMPLES[kind])
    error = refusal(nq_open, "--archive", archive, out=tmp_path / "out")
    assert "nq-train0.json, line 1: " in error
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_a_release_that_is_not_whole(tmp_path, refusal):
    archive = write_release(tmp_path / "in")
    (archive / "nq-train2.json").unlink()
    found = refusal(nq_open, "--archive", archive, out=tmp_path / "out")
    assert "holds no nq-train2.json" in found
    packed = write_release(tmp_path / "in.zip", packed="zip")
    raw = packed.read_bytes()
    packed.write_bytes(raw[:200])
    found = refusal(nq_open, "--archive", packed, out=tmp_path / "out")
    assert "in.zip: cannot be read (" in found
    at = raw.index(b"where is the lamp")
    packed.write_bytes(raw[:at] + b"W" + raw[at + 1 :])
    found = refusal(nq_open, "--archive", packed, out=tmp_path / "out")
    assert "nq-train0.json" in found and "cannot be read (Bad CRC-32" in found
    missing = tmp_path / "missing"
    found = refusal(nq_open, "--archive", missing, out=tmp_path / "out")
    assert "cannot be read" in found


def write_sentences(folder, **parts):
    """Parts of Du et al.'s release: the sentence and the question of each line."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in parts.items():
        for side, column in (("src", 0), ("tgt", 1)):
            lines = "".join(f"{pair[column]} \n" for pair in pairs)
            (folder / f"{side}-{name}.txt").write_text(lines)
    return folder


def numbered(start, end):
    return [(f"fact {n} is true .", f"which is fact {n} ?") for n in range(start, end)]


def test_the_sentences_of_squad(tmp_path, capsys):
    marked = ("the `` moon '' -lrb- luna -rrb- is -lsb- grey -rsb- .", "which colour ?")
    # The last question of the file is about a sentence of its first, so it trains as that does.
    dev = [*numbered(4, 10), ("fact 4 is true .", "what is true ?")]
    folder = write_sentences(tmp_path / "in", test=[marked, *numbered(0, 4)], dev=dev)
    out = tmp_path / "out"
    assert convert(squad_sentences, "--archive", folder, "--held-out", "2,3", out=out) == 0
    train, dev, test = [
        open_questions(out / f"{split}.questions.jsonl") for split in ("train", "dev", "test")
    ]
    assert train[0] == ("test-1", "which colour ?", ('the " moon " ( luna ) is [ grey ] .',))
    assert [key for key, _, _ in train] == [
        *(f"test-{n}" for n in range(1, 6)),
        *("dev-1", "dev-2", "dev-7"),
    ]
    assert dev == [
        ("dev-3", "which is fact 6 ?", ("fact 6 is true .",)),
        ("dev-4", "which is fact 7 ?", ("fact 7 is true .",)),
    ]
    assert [key for key, _, _ in test] == ["dev-5", "dev-6"]
    documents = list(read_documents(out / "documents.jsonl"))
    assert [document.text for document in documents[1:]] == [
        f"fact {n} is true ." for n in range(10)
    ]
    assert documents[0] == Document("test-1", 'the " moon " ( luna ) is [ grey ] .')
    assert list(read_documents(out / "train.documents.jsonl")) == documents[:7]
    stats = json.loads((out / "stats.json").read_text())
    counts = {split: stats[split]["questions"] for split in ("train", "dev", "test")}
    assert counts == {"train": 8, "dev": 2, "test": 2}
    # Each question's own sentence is its only correct candidate.
    build_index(out / "documents.jsonl", tmp_path / "index")
    retrieved = write_retrieved(
        tmp_path / "index", out / "test.questions.jsonl", tmp_path / "test.jsonl", 20
    )
    assert retrieved["positives"] == 2
    assert "11 documents" in capsys.readouterr().out


def test_sentences_that_do_not_fit(tmp_path, capsys, refusal):
    def error(*arguments, **parts):
        folder = write_sentences(tmp_path / str(len(list(tmp_path.iterdir()))), **parts)
        archive = ("--archive", folder, *arguments)
        return refusal(squad_sentences, *archive, out=tmp_path / "out")

    assert "holds none of src-train.txt, src-test.txt and src-dev.txt" in error()
    assert "src-dev.txt, line 2: it is empty" in error(dev=[("a", "b"), ("", "c")])
    message = "part dev: 9 questions; expected more than the 9 that --held-out takes"
    assert message in error("--held-out", "4,5", dev=numbered(0, 9))
    folder = write_sentences(tmp_path / "in", dev=numbered(0, 9))
    arguments = (squad_sentences, "--archive", folder)
    with open(folder / "tgt-dev.txt", "a") as file:
        file.write("one more ?\n")
    message = refusal(*arguments, out=tmp_path / "out")
    assert "tgt-dev.txt: 10 lines; expected 9, as src-dev.txt has" in message
    (folder / "tgt-dev.txt").unlink()
    assert "holds no tgt-dev.txt" in refusal(*arguments, out=tmp_path / "out")
    with pytest.raises(SystemExit):
        convert(squad_sentences, "--held-out", "5", out=tmp_path / "out")
    assert "expected 2 positive numbers" in capsys.readouterr().err


def test_the_sentences_of_the_release(tmp_path):
    out = tmp_path / "out"
    archive = shared_corpus("squad_questions")
    assert convert(squad_sentences, "--archive", archive, out=out) == 0
    stats = json.loads((out / "stats.json").read_text())
    counts = {name: part.get("questions", part.get("documents")) for name, part in stats.items()}
    assert counts == {
        "documents": 13_447,
        "train documents": 10_263,
        "train": 17_947,
        "dev": 1_501,
        "test": 2_999,
    }
