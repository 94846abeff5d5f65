"""ASNQ, TREC-QA, SQuAD and retrieval collections to canonical JSONL."""

import gzip
import hashlib
import importlib
import json
import tarfile

import pytest
from conftest import shared_corpus

from wqa.data import read_questions

asnq, trecqa, squad = map(importlib.import_module, ("asnq", "trecqa", "squad"))


@pytest.fixture
def archive(tmp_path):
    """Write a small ASNQ and its lists."""

    def write(
        train="t one\ta b\t1\nt one\tc\t4\n",
        dev="d one\tx\t4\ne one\ty\t1\nd one\tz\t2\n",
        lists=("d one", "e one"),
    ):
        folder = tmp_path / "asnq"
        folder.mkdir(exist_ok=True)
        for name, text in (("train.tsv", train), ("dev.tsv", dev)):
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        for split, text in zip(("dev", "test"), lists):
            (folder / f"unique.{split}.gz").write_bytes(
                gzip.compress((text + "\n").encode("utf-8"))
            )
        return folder

    return write


def convert(script, archive, out, *options):
    return script.main(["--archive", str(archive), "--out", str(out), *map(str, options)])


def convert_asnq(folder, out, **options):
    return convert(asnq, options.get("archive", folder), out, "--splits", folder)


def rows(path):
    return [
        (question.id, question.question, question.texts, question.labels)
        for question in read_questions(path)
    ]


@pytest.mark.parametrize("packed", ["folder", "gz", "tar"])
def test_asnq(archive, tmp_path, packed):
    # Labels 1 to 3 are wrong; lines of a question need not stand together; quotes and tabs inside a
    # sentence are text.
    train = 't one\t"an open quote\t1\nt two\tsay ""so""\t4\n'
    train += 't one\ta\tb\t3\r\nt one\t\t2\nt two\tnaïve "end"\t4\n'
    folder = source = archive(train=train)
    if packed == "gz":
        for name in ("train.tsv", "dev.tsv"):
            (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
            (folder / name).unlink()
    elif packed == "tar":
        source = tmp_path / "asnq.tar"
        with tarfile.open(source, "w") as tar:
            for name in ("train.tsv", "dev.tsv"):
                tar.add(folder / name, f"data/asnq/{name}")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "stats.json").write_text('{"old": {"questions": 1}}')
    (tmp_path / "out" / "old.jsonl").write_text("a split of another archive\n")
    assert convert_asnq(folder, tmp_path / "out", archive=source) == 0
    assert rows(tmp_path / "out" / "train.jsonl") == [
        ("train-0", "t one", ('"an open quote', "a\tb", ""), (0, 0, 0)),
        ("train-1", "t two", ('say ""so""', 'naïve "end"'), (1, 1)),
    ]
    assert rows(tmp_path / "out" / "dev.jsonl") == [("dev-0", "d one", ("x", "z"), (1, 0))]
    assert rows(tmp_path / "out" / "test.jsonl") == [("test-0", "e one", ("y",), (0,))]
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    counts = stats["train"]["all"]
    assert (counts["questions"], counts["candidates"], counts["correct"]) == (2, 5, 2)
    assert counts["candidates_per_question"] == 2.5 and counts["correct_per_question"] == 1
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["dev.jsonl", "stats.json", "test.jsonl", "train.jsonl"]


@pytest.mark.parametrize(
    "line, message",
    [
        ("one column", "line 2: 'one column'; expected question, tab, sentence, tab, label"),
        ("q\ts\t5", "line 2: label '5'; expected 1, 2, 3 or 4"),
        (" \ts\t4", "an empty question"),
        ("", "line 2"),
        (b"q\t\xff\t4", "byte 2 is not UTF-8"),
    ],
)
def test_asnq_lines_that_do_not_fit(archive, tmp_path, refusal, line, message):
    raw = line if isinstance(line, bytes) else line.encode()
    folder = archive(train=b"t one\ta\t1\n" + raw + b"\nt two\tb\t4\n")
    arguments = (asnq, "--archive", folder, "--splits", folder)
    assert message in refusal(*arguments, out=tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").glob("*.json*")}
    assert written <= {"dev.jsonl", "test.jsonl"}


def test_asnq_lists_that_name_unknown_questions_are_counted_and_said(archive, tmp_path, capsys):
    folder = archive(
        dev="d one\tx\t4\ne one\ty\t1\nf one\tz\t2\n",
        lists=("d one\nghost\nspirit", "f one\nnobody"),
    )
    assert convert_asnq(folder, tmp_path / "out") == 0
    error = capsys.readouterr().err
    assert "2 questions of unique.dev are not in dev.tsv, such as 'ghost'" in error
    assert "1 questions of unique.test are not in dev.tsv, such as 'nobody'" in error
    assert "1 questions of dev.tsv are in neither list and left out, such as 'e one'" in error


def test_asnq_takes_the_lists_from_the_archive(archive, tmp_path, capsys, monkeypatch):
    """Without a download, unless the folder holds none."""

    def refuse(*arguments):
        raise asnq.DataError("the network", "a download of " + arguments[1].name)

    monkeypatch.setattr(asnq, "download", refuse)
    folder = archive()
    arguments = ["--archive", str(folder), "--out", str(tmp_path / "out")]
    assert asnq.main(arguments) == 0
    splits = [*arguments[:3], str(tmp_path / "again"), "--splits", str(folder)]
    assert asnq.main(splits) == 0
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    (folder / "unique.dev.gz").unlink()  # the other list is there: this one was forgotten
    assert asnq.main([*arguments[:3], str(tmp_path / "third")]) == 2
    assert "holds neither unique.dev nor unique.dev.gz" in capsys.readouterr().err
    (folder / "unique.test.gz").unlink()
    assert asnq.main([*arguments[:3], str(tmp_path / "fourth")]) == 2
    assert "a download of unique.dev" in capsys.readouterr().err


def test_published_lists_of_asnq():
    folder = shared_corpus("asnq")
    counts = {split: len(listed) for split, listed in asnq.read_lists(folder).items()}
    assert counts == {"dev": 1336, "test": 1336}  # Table 1
    for split, digest in asnq.LISTS.items():
        content = gzip.decompress((folder / f"unique.{split}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest


@pytest.mark.nightly
def test_published_counts_of_trecqa(tmp_path):
    folder = shared_corpus("trecqa")
    assert convert(trecqa, folder, tmp_path) == 0
    stats = json.loads((tmp_path / "stats.json").read_text())
    # MSPP, Table 5; the test split, 68 and 1,442 when clean, is not in every copy.
    counts = stats["train-all"]["all"]
    assert (counts["distinct_questions"], counts["candidates"]) == (1226, 53417)
    for split, counts in trecqa.PUBLISHED.items():
        if split in stats:
            clean = stats[split]["clean"]
            assert (clean["questions"], clean["candidates"]) == counts
    # 65 are the questions of Table 1 of the Cascade Transformer; question 37 has long candidates
    # alone.
    assert trecqa.PUBLISHED["dev-40"] == (65, 1117)
    assert stats["dev-40"]["all"]["questions"] == 81
    assert stats["dev-40"]["all"]["without_candidates"] == 1
    assert "dev-40-37" not in {row[0] for row in rows(tmp_path / "dev-40.jsonl")}
    assert len(rows(tmp_path / "dev-40-clean.jsonl")) == 65
    questions = list(read_questions(tmp_path / "train-all.jsonl"))
    assert len(questions) == 1229
    assert len(list(read_questions(tmp_path / "train-clean.jsonl"))) == 89
    assert not (tmp_path / "train.jsonl").exists()  # of it the filtered copy alone is at hand
    for question in questions:
        text = " ".join([question.question, *question.texts])
        for token in ("-LRB-", "-RSB-", "<num>"):
            assert token not in text


def write_trecqa(folder, *entries, name="dev.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder


def test_trecqa_by_hand(tmp_path):
    entry = {
        "question": "What did `` X '' cost in <num> ?",
        "candidates": [
            {"sentence": "It -LRB- X -RRB- did n't cost <num> % , Mr. Y said .", "label": 1},
            {"sentence": "R&D &amp; so", "label": 0},
        ],
    }
    only = {"question": "Why ?", "candidates": [{"sentence": "So .", "label": 1}]}
    folder = write_trecqa(tmp_path / "in", entry, only, entry)
    assert convert(trecqa, folder, tmp_path / "out") == 0
    dev = rows(tmp_path / "out" / "dev.jsonl")
    assert dev[0] == (
        "dev-1",
        'What did "X" cost in #?',
        ("It (X) didn't cost #%, Mr. Y said.", "R&D &amp; so"),
        (1, 0),
    )
    assert [row[0] for row in dev] == ["dev-1", "dev-2", "dev-3"]
    assert [row[0] for row in rows(tmp_path / "out" / "dev-clean.jsonl")] == ["dev-1", "dev-3"]
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert stats["dev"]["all"]["distinct_questions"] == 2


XML = """<QApairs id='1.4'>
<question>
What\tis\tit\t?
WP\tVBZ\tPRP\t.
</question>
<negative>
``\t<num>\tof\tR&D\t<b>\t''
POS\tPOS\tPOS\tPOS\tPOS\tPOS
1\t2\t3\t4\t5\t6
</negative>
<positive>
It\tdid\tn't\t.
</positive>
</QApairs>
"""


def test_trecqa_as_pseudo_xml(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "dev.xml").write_text(XML)
    (folder / "train2393.cleanup.xml.gz").write_bytes(gzip.compress(XML.encode()))
    assert convert(trecqa, folder, tmp_path / "out") == 0
    expected = ("What is it?", ('"# of R&D <b>"', "It didn't."), (0, 1))
    assert rows(tmp_path / "out" / "dev.jsonl") == [("dev-1", *expected)]
    assert rows(tmp_path / "out" / "train-all-clean.jsonl") == [("train-all-1", *expected)]


@pytest.mark.parametrize(
    "text, message",
    [
        (XML.rsplit("</QApairs", 1)[0], "ends inside a question"),
        ("", "no <QApairs>"),
        (
            XML.replace("<positive>", "<p>").replace("<negative>", "<n>"),
            "line 6: '<n>'; expected <positive> or <negative>",
        ),
    ],
)
def test_trecqa_pseudo_xml_that_does_not_fit(tmp_path, refusal, text, message):
    (tmp_path / "dev.xml").write_text(text)
    assert message in refusal(trecqa, "--archive", tmp_path, out=tmp_path / "out")
    assert not (tmp_path / "out" / "dev.jsonl").exists()


EMPTY_XML = XML[: XML.index("<negative>")] + "</QApairs>\n"


def test_trecqa_question_without_a_candidate_is_refused_in_a_whole_split(tmp_path, refusal):
    (tmp_path / "train.xml").write_text(XML + EMPTY_XML)
    error = refusal(trecqa, "--archive", tmp_path, out=tmp_path / "out")
    assert "train.xml, line 20: no question or no candidate" in error


@pytest.mark.parametrize("name", ["test.xml", "test.jsonl"])
def test_trecqa_question_without_a_candidate_is_skipped_in_test(tmp_path, capsys, name):
    text = EMPTY_XML + XML
    if name.endswith(".jsonl"):
        row = {"sentence": "It did .", "label": 1}
        entries = ({"question": "q", "candidates": rows} for rows in ([], [row]))
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (tmp_path / name).write_text(text)
    assert convert(trecqa, tmp_path, tmp_path / "out") == 0
    assert [row[0] for row in rows(tmp_path / "out" / "test.jsonl")] == ["test-2"]
    note = capsys.readouterr().err
    assert f"{name}: 1 of 2 questions have no candidate and are skipped" in note


def test_trecqa_dev_40_is_dev_without_long_sentences(tmp_path):
    long, short = " ".join(["word"] * 41), " ".join(["word"] * 40)
    sentences = [{"sentence": text, "label": 1} for text in (long, short)]
    entries = [{"question": "q", "candidates": part} for part in (sentences, sentences[:1])]
    folder = write_trecqa(tmp_path / "in", *entries)
    assert convert(trecqa, folder, tmp_path / "out") == 0
    assert [row[3] for row in rows(tmp_path / "out" / "dev.jsonl")] == [(1, 1), (1,)]
    assert rows(tmp_path / "out" / "dev-40.jsonl") == [("dev-40-1", "q", (short,), (1,))]


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"question": "q"}, "KeyError"),
        ({"question": "q", "candidates": []}, "no candidate"),
        ([], "line 1"),
        (
            {"question": "q", "candidates": [{"sentence": "s", "label": 2}]},
            "candidate 1: label 2; expected 0 or 1",
        ),
        ({"question": "q", "candidates": [{"sentence": None, "label": 0}]}, "line 1"),
    ],
)
def test_trecqa_lines_that_do_not_fit(tmp_path, refusal, entry, message):
    folder = write_trecqa(tmp_path / "in", entry)
    assert message in refusal(trecqa, "--archive", folder, out=tmp_path / "out")


def paragraph(text, *answers, impossible=False):
    entries = []
    for number, texts in enumerate(answers):
        spans = [{"text": answer, "answer_start": text.index(answer)} for answer in texts]
        fields = {"id": f"{number} {text}", "question": f" who {number} ? ", "answers": spans}
        entries.append({**fields, "is_impossible": impossible})
    return {"context": text, "qas": entries}


def write_squad(folder, *paragraphs, name="dev-v2.0.json"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(
        json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": list(paragraphs)}]})
    )
    return folder


def test_squad_by_hand(tmp_path):
    text = "Dr. Smith came first. He met Mr. Jones in 1990. They left."
    folder = write_squad(
        tmp_path / "in",
        paragraph(text, ["Mr. Jones", "1990"], ["They", "Dr. Smith"]),
        paragraph("Nobody knows. So.", [], impossible=True),
    )
    assert convert(squad, folder, tmp_path / "out") == 0
    first, second = rows(tmp_path / "out" / "test.jsonl")
    assert first[1:] == (
        "who 0 ?",
        ("Dr. Smith came first.", "He met Mr. Jones in 1990.", "They left."),
        (0, 1, 0),
    )
    assert second[3] == (1, 0, 1)  # two spans were annotated


def test_squad_with_its_unanswered_questions(tmp_path):
    """They have the candidates of their paragraph, and the others are as without them."""
    paragraphs = (
        paragraph("He met Mr. Jones. They left.", ["Mr. Jones"]),
        paragraph("Nobody knows. So.", [], impossible=True),
    )
    paragraphs[1]["qas"][0]["plausible_answers"] = [{"text": "So", "answer_start": 14}]
    folder = write_squad(tmp_path / "in", *paragraphs)
    for out, more in (("answered", []), ("all", ["--unanswered"])):
        arguments = ["--archive", str(folder), "--out", str(tmp_path / out), *more]
        assert squad.main(arguments) == 0
    first, second = rows(tmp_path / "all" / "test.jsonl")
    assert [first] == rows(tmp_path / "answered" / "test.jsonl")
    assert second[2:] == (("Nobody knows.", "So."), (0, 0))
    stats = json.loads((tmp_path / "all" / "stats.json").read_text())["test"]
    assert (stats["all"]["questions"], stats["no-all-negative"]["questions"]) == (2, 1)


def test_squad_joins_sentences_that_would_cut_an_answer(tmp_path):
    text = "It reads thus. Yes! No! is the cry. The end."
    folder = write_squad(tmp_path / "in", paragraph(text, ["Yes! No!"]))
    assert convert(squad, folder, tmp_path / "out") == 0
    [(_, _, texts, labels)] = rows(tmp_path / "out" / "test.jsonl")
    assert "Yes! No!" in texts[labels.index(1)]
    assert " ".join(texts).replace("  ", " ") == text


def test_squad_divides_the_training_questions(tmp_path):
    folder = write_squad(
        tmp_path / "in",
        *(paragraph(f"Sentence {n} is here. And {n} more.", [f"{n}"]) for n in range(60)),
        name="train-v2.0.json",
    )
    assert convert(squad, folder, tmp_path / "out") == 0
    train, dev = rows(tmp_path / "out" / "train.jsonl"), rows(tmp_path / "out" / "dev.jsonl")
    assert 0 < len(dev) < 20 and len(train) + len(dev) == 60
    assert not {row[0] for row in train} & {row[0] for row in dev}


def test_squad_that_does_not_fit(tmp_path, refusal):
    wrong = paragraph("Some text here.", ["text"])
    wrong["qas"][0]["answers"][0]["answer_start"] = 2
    for content, message in (
        (wrong, "answer 'text' does not stand at 2"),
        ({"context": "a"}, "KeyError"),
        (3, "TypeError"),
    ):
        folder = write_squad(tmp_path / "in", content)
        error = refusal(squad, "--archive", folder, out=tmp_path / "out")
        assert message in error and "paragraph 1" in error
        assert not (tmp_path / "out" / "test.jsonl").exists()
    (folder / "dev-v2.0.json").write_text("{")
    for archive in (folder / "dev-v2.0.json", tmp_path / "out"):
        refusal(squad, "--archive", archive, out=tmp_path / "out")


def test_counts_of_half_of_squads_development_set(tmp_path):
    folder = shared_corpus("squad")
    assert convert(squad, folder, tmp_path, "--unanswered") == 0
    stats = json.loads((tmp_path / "stats.json").read_text())["test"]
    # 47.88 % of the questions have an answer, as 49.92 % of the whole set's (Table 2).
    assert (stats["all"]["questions"], stats["all"]["candidates"]) == (6078, 34197)
    counts = stats["no-all-negative"]
    assert (counts["questions"], counts["candidates"], counts["correct"]) == (2910, 16525, 3143)
