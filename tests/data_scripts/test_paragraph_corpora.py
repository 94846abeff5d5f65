"""Corpora of text to documents as paragraphs of sentences."""

import bz2
import collections
import gzip
import hashlib
import importlib
import io
import json
import lzma
import re
import tarfile

import pytest
from conftest import shared_corpus
from hypothesis import given
from hypothesis import strategies as st

mspp_examples, paragraphs, paragraph_files, texts, wikiqa = map(
    importlib.import_module, ("mspp_examples", "paragraphs", "paragraph_files", "texts", "wikiqa")
)
read_paragraphs = paragraph_files.read_paragraphs

RYE = "Rye keeps for a week. Dr. Salo bakes it in Turku."
SALT = "Salt came on sledges! A load weighed forty kilos."
#: The sentences of both.
RYE_SENTENCES = ("Rye keeps for a week.", "Dr. Salo bakes it in Turku.")
SALT_SENTENCES = ("Salt came on sledges!", "A load weighed forty kilos.")


def convert(corpus, archive, out, *arguments):
    command = [corpus, "--out", str(out), *arguments]
    if archive:
        command += ["--archive", str(archive)]
    return paragraphs.main(command)


def contents(path):
    """Paragraphs of each document by id, without the digest of its text."""
    documents = read_paragraphs(path)
    return {re.sub("-[0-9a-f]{8}$", "", one.id): one.paragraphs for one in documents}


def tar_of(members, mode="w"):
    """A tar of files by name."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return raw.getvalue()


def json_lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode("utf-8")


# Corpora


def test_wikipedia_extracts(tmp_path):
    folder = tmp_path / "in"
    for name in ("AA", "AB"):
        (folder / name).mkdir(parents=True)
    lines = json_lines({"id": "12", "title": "Rye", "text": f"Rye\n\n{RYE}\n\n{SALT}"})
    (folder / "AA" / "wiki_00.bz2").write_bytes(bz2.compress(lines))
    (folder / "AB" / "wiki_00").write_bytes(json_lines({"text": RYE}, {"text": SALT, "title": 3}))
    assert convert("wikipedia", folder, tmp_path / "out") == 0
    assert contents(tmp_path / "out" / "train.jsonl") == {
        "wikipedia-1": (RYE_SENTENCES, SALT_SENTENCES),
        "wikipedia-2": (RYE_SENTENCES,),
        "wikipedia-3": (SALT_SENTENCES,),
    }
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    characters = 2 * sum(map(len, RYE_SENTENCES)) + 2 * sum(map(len, SALT_SENTENCES))
    expected = {"documents": 3, "paragraphs": 4, "sentences": 8, "characters": characters}
    assert stats["train"] == {**expected, "single_paragraphs": 2, "examples": 4}
    assert stats["left_out"] == {}


@pytest.mark.parametrize("mode", ["w", "w:xz"])
def test_books_end_their_paragraphs_at_blank_lines(tmp_path, mode):
    text = f"\r\nRye keeps\r\nfor a  week.\r\n \r\n\r\n{SALT}\r\n".encode()
    name = {"w": "b.tar", "w:xz": "b.txz"}[mode]
    packed = gzip.compress(RYE.encode("utf-8"))
    (tmp_path / name).write_bytes(tar_of({"a/one.txt": text, "a/two.txt.gz": packed}, mode))
    assert convert("bookcorpus", tmp_path / name, tmp_path / "out") == 0
    assert contents(tmp_path / "out" / "train.jsonl") == {
        "bookcorpus-1": (("Rye keeps for a week.",), SALT_SENTENCES),
        "bookcorpus-2": (RYE_SENTENCES,),
    }


def test_openwebtext_is_tars_in_a_tar(tmp_path):
    parts = {}
    for number, text in enumerate((RYE, SALT)):
        inner = tar_of({f"{number}-x.txt": text.encode("utf-8")})
        parts[f"openwebtext/urlsf_subset0{number}_data.xz"] = lzma.compress(inner)
    (tmp_path / "openwebtext.tar.xz").write_bytes(tar_of(parts, "w:xz"))
    assert convert("openwebtext", tmp_path / "openwebtext.tar.xz", tmp_path / "out") == 0
    expected = {"openwebtext-1": (RYE_SENTENCES,), "openwebtext-2": (SALT_SENTENCES,)}
    assert contents(tmp_path / "out" / "train.jsonl") == expected


def test_news_end_their_paragraphs_at_line_ends(tmp_path):
    rows = json_lines({"title": "Rye", "text": f"{RYE}\n{SALT}"}, {"text": "\n Rye.\u2028So.\n"})
    (tmp_path / "news.jsonl.gz").write_bytes(gzip.compress(rows))
    assert convert("ccnews", tmp_path / "news.jsonl.gz", tmp_path / "out") == 0
    assert contents(tmp_path / "out" / "train.jsonl") == {
        "ccnews-1": (RYE_SENTENCES, SALT_SENTENCES),
        "ccnews-2": (("Rye.", "So."),),
    }


WIKITEXT = """ \r
 = Rye bread = \r
\r
 Rye keeps for a week . Salt @-@ baked rye keeps for 2 @.@ 5 or 1 @,@ 000 days ( so they say ) . \r
\r
 = = Salt = = \r
 It " came " on <unk> sledges . \r
 = = = Loads = = = \r
 = Turku = \r
 Turku 's quay = a landing . \r
"""


def test_wikitext_is_joined_as_it_stood(tmp_path):
    (tmp_path / "wiki.test.raw").write_text(WIKITEXT, newline="")
    assert convert("wikitext", tmp_path, tmp_path / "out") == 0
    assert contents(tmp_path / "out" / "train.jsonl") == {
        "wikitext-1": (
            ("Rye keeps for a week.", "Salt-baked rye keeps for 2.5 or 1,000 days (so they say)."),
            ('It "came" on sledges.',),
        ),
        "wikitext-2": (("Turku's quay = a landing.",),),
    }


def selqa(**fields):
    question = {"article": "Rye bread", "section": "Age", "candidates": ["Rye keeps. ", " "]}
    return {**question, **fields}


def test_selqa_is_articles_of_sections(tmp_path):
    first = [selqa(), selqa(section="Salt", candidates=["Salt came.", "It weighed."]), selqa()]
    second = [selqa(section="Loads", candidates=["Forty kilos."]), selqa(article="Turku")]
    (tmp_path / "selqa-ass-dev.json").write_text(json.dumps(first))
    (tmp_path / "selqa-ass-test.json.gz").write_bytes(
        gzip.compress(json.dumps([*second, selqa(article="Oulu", candidates=[])]).encode())
    )
    assert convert("selqa", tmp_path, tmp_path / "out") == 0
    assert contents(tmp_path / "out" / "train.jsonl") == {
        "Rye_bread": (("Rye keeps.",), ("Salt came.", "It weighed."), ("Forty kilos.",)),
        "Turku": (("Rye keeps.",),),
    }


def test_documents_of_wikiqa_hold_each_sentence_once(tmp_path):
    rows = [
        ("Q1", "who?", "D1", "Rye", "D1-0", "Rye keeps.", "0"),
        ("Q1", "who?", "D1", "Rye", "D1-1", "It is baked.", "1"),
        ("Q2", "what?", "D1", "Rye", "D1-0", "Rye keeps.", "0"),
        ("Q2", "what?", "D1", "Rye", "D1-2", "In Turku.", "0"),
        ("Q3", "so?", "D2", "Salt", "D2-0", " ", "0"),
    ]
    header = [[*wikiqa.HEADER]]
    text = "".join("\t".join(row) + "\n" for row in [*header, *rows])
    (tmp_path / "WikiQA-train.tsv").write_text(text)
    assert convert("wikiqa", tmp_path, tmp_path / "out") == 0
    expected = {"D1": (("Rye keeps.", "It is baked.", "In Turku."),)}
    assert contents(tmp_path / "out" / "train.jsonl") == expected


def test_what_holds_no_text_is_counted_and_left_out(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text(RYE)
    (folder / "b.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "c.txt").write_text(" \n ")
    (folder / "d.pdf").write_text("x")
    (folder / ".e.txt").write_text(SALT)
    (folder / "f").symlink_to(folder)
    (folder / "g.jsonl").write_bytes(json_lines({"title": "Rye", "text": "Rye"}))
    assert convert("bookcorpus", folder, tmp_path / "out") == 0
    assert contents(tmp_path / "out" / "train.jsonl") == {"bookcorpus-1": (RYE_SENTENCES,)}
    left_out = {"not UTF-8": 1, "blank": 1, "files of other kinds": 1, "without a paragraph": 1}
    assert json.loads((tmp_path / "out" / "stats.json").read_text())["left_out"] == left_out
    assert (
        "note: left out: 1 blank, 1 files of other kinds, 1 not UTF-8, 1 without a paragraph\n"
    ) in capsys.readouterr().err


# Splits and files


def news(path, count):
    rows = [{"text": f"{RYE}\nThis is number {number}. It is short."} for number in range(count)]
    path.write_bytes(json_lines(*rows))
    return path


def test_some_documents_are_held_out(tmp_path):
    archive, out = news(tmp_path / "x.jsonl", 20), tmp_path / "out"
    assert convert("ccnews", archive, out, "--held-out", "5") == 0
    splits = (out / "dev.jsonl", out / "train.jsonl")
    dev, train = ([document.id for document in read_paragraphs(path)] for path in splits)
    order = sorted(dev + train, key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    assert dev == order[:5] and len({*dev, *train}) == len(dev + train) == 20


def test_numbers_that_do_not_fit(tmp_path, refusal):
    archive = news(tmp_path / "x.jsonl", 3)
    base = (paragraphs, "ccnews", "--archive", archive)
    for arguments, message in (
        (("--held-out", "-1"), "--held-out: -1; expected a whole number from 0"),
        (("--held-out", "3"), "no document beside 3 held-out ones"),
    ):
        assert message in refusal(*base, *arguments, out=tmp_path / "out")
    assert not list((tmp_path / "out").glob("**/*.jsonl"))


def test_articles_of_half_of_squads_development_set(tmp_path):
    assert convert("squad", shared_corpus("squad"), tmp_path, "--held-out", "2") == 0
    stats = json.loads((tmp_path / "stats.json").read_text())
    keys = ("documents", "paragraphs", "sentences", "characters", "examples")
    assert [stats["train"][key] for key in keys] == [14, 576, 3220, 486018, 568]
    assert [stats["dev"][key] for key in keys] == [2, 70, 373, 53717, 70]
    counts = collections.Counter()
    list(paragraph_files.keep_long(read_paragraphs(tmp_path / "train.jsonl"), counts))
    kinds = ("documents", "short document", "single_paragraphs", "paragraphs", "short sentence")
    assert [counts[kind] for kind in kinds] == [14, 0, 0, 576, 36] and counts["examples"] == 568
    drawn = ("--train", tmp_path / "train.jsonl", "--dev", tmp_path / "dev.jsonl")
    assert mspp_examples.main([*map(str, drawn), "--out", str(tmp_path / "drawn")]) == 0
    stats = json.loads((tmp_path / "drawn" / "stats.json").read_text())
    assert [stats[split]["clean"]["questions"] for split in ("train", "dev")] == [568, 70]


@pytest.mark.parametrize(
    "corpus, figures",
    [
        pytest.param("wikitext", [122, 4026, 16741, 3242], marks=pytest.mark.nightly),
        ("selqa", [474, 1482, 17881, 1482]),
        ("wikiqa", [1995, 1995, 18841, 1938]),
    ],
)
def test_corpora_at_hand(tmp_path, corpus, figures):
    assert convert(corpus, shared_corpus(corpus), tmp_path) == 0
    stats = json.loads((tmp_path / "stats.json").read_text())["train"]
    assert [stats[key] for key in ("documents", "paragraphs", "sentences", "examples")] == figures


# Sentences


@given(
    st.lists(
        st.sampled_from(["Rye", "Dr.", "It is.", "(so)", "U.S.", "e.g.", "“No!”", "…", "1.", "?"]),
        min_size=1,
        max_size=30,
    )
)
def test_no_word_is_lost_between_sentences(words):
    text = " ".join(words)
    splitter = paragraphs.SentenceSplitter()
    found = paragraphs.sentences(splitter, f"\n {text} \t")
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


# Damage


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.jsonl", b"{", "x.jsonl, line 1: malformed JSON"),
        ("x.jsonl", b'{"text": "a"}\n[1]\n', "x.jsonl, line 2: .1.; expected a JSON object with"),
        ("x.jsonl", b'{"text": null}\n', "line 1: text is None; expected a string"),
        ("x.jsonl", b'{"text": "\\ud800"}\n', "line 1: text holds half a surrogate pair"),
        ("x.jsonl", b'{"text": "\xff"}\n', "line 1: byte 10 is not UTF-8"),
        ("x.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:20], "x.jsonl.gz: cannot be read"),
        ("x.tar", tar_of({"a.xz": b"Rye."}), "x.tar, 'a.xz': cannot be read"),
        ("x.tar", tar_of({"a.jsonl": b"{}"}), "x.tar, 'a.jsonl', line 1: {}; expected"),
        ("x.tar", tar_of({"a.txt": b"Rye."})[:600], "x.tar: cannot be read"),
        ("x.pdf", b"Rye.", "no document beside 0 held-out"),
    ],
)
def test_a_damaged_corpus_is_one_line(tmp_path, refusal, name, content, message):
    (tmp_path / name).write_bytes(content)
    error = refusal(paragraphs, "wikipedia", "--archive", tmp_path / name, out=tmp_path / "out")
    assert message.replace(".1.", "[1]") in error


def test_archives_that_are_missing(tmp_path, refusal):
    out = tmp_path / "out"
    news = (paragraphs, "ccnews")
    assert "--archive: none for ccnews; expected a file" in refusal(*news, out=out)
    error = refusal(*news, "--archive", tmp_path / "absent", out=out)
    assert "absent: cannot be read" in error
    (tmp_path / "empty").mkdir()
    error = refusal(*news, "--archive", tmp_path / "empty", out=out)
    assert "the corpus: no document" in error
