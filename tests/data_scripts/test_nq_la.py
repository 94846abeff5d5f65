"""Natural Questions to questions with paragraphs, from small files in both of its forms."""

import gzip
import importlib
import json

import pytest

from wqa.data import read_questions
from wqa.evaluation import evaluate

nq_la, corpus = map(importlib.import_module, ("nq_la", "corpus"))

#: A page in the simplified form: tags are tokens, whose blanks are underscores.
TEXT = (
    "<H1> Bread </H1> "
    "<P> Rye bread is ( often ) sour . </P> "
    '<Table> <Tr> <Th_colspan="2"> Age </Th> <Td> <P> two days </P> </Td> </Tr> </Table> '
    "<P> The <B> dough </B> rests < 2 days >= . </P> "
    "<Ul> <Li> flour </Li> <Li> salt </Li> </Ul> "
    "<P> </P> "
    "<P> It keeps for weeks . </P>"
)
PAGE = TEXT.split(" ")


def spans_of(tokens, tags=("P", "Table", "Tr", "Ul", "Li")):
    """Candidates of a page as the release lists them: by their start, nested ones after."""
    spans, opened = [], []
    for index, token in enumerate(tokens):
        name = token.strip("</>").partition("_")[0]
        if name in tags and token.startswith("</"):
            start = opened.pop()[1]
            spans.append((start, index + 1, not opened))
        elif name in tags and token.startswith("<"):
            opened.append((name, index))
    return sorted(spans)


#: Indices of candidates of the page.
TABLE, NESTED, LIST = 1, 3, 5
FIRST, SECOND, EMPTY, LAST = 0, 4, 8, 9
NONE = -1


def example(key=7, answers=(FIRST,), question=" what is rye bread ", tokens=PAGE, **changes):
    """A question in the simplified form, with the answer of each annotator."""
    spans = spans_of(tokens)
    annotations = []
    for answer in answers:
        start, end, _ = spans[answer] if answer != NONE else (NONE, NONE, None)
        long_answer = {"start_token": start, "end_token": end, "candidate_index": answer}
        annotations.append(
            {"long_answer": long_answer, "short_answers": [], "yes_no_answer": "NONE"}
        )
    fields = {
        "example_id": key,
        "question_text": question,
        "document_url": "https://example.org",
        "document_text": " ".join(tokens),
        "long_answer_candidates": [
            {"start_token": start, "end_token": end, "top_level": is_top}
            for start, end, is_top in spans
        ],
        "annotations": annotations,
    }
    return {**fields, **changes}


def original(simplified):
    """The same in the original form, in which development questions are published."""
    fields = dict(simplified)
    tokens = []
    for token in fields.pop("document_text").split(" "):
        is_tag = token in PAGE and token[:1] == "<" and token[-1:] == ">" and token != "<"
        tokens.append(
            {"token": token.replace("_", " "), "html_token": is_tag, "start_byte": 0, "end_byte": 1}
        )
    return {**fields, "document_tokens": tokens, "document_html": "<html>", "document_title": "B"}


def write_release(folder, train=None, dev=None, packed=False, prefix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, examples in (("simplified-nq-train.jsonl", train), ("nq-dev-all.jsonl", dev)):
        if examples is not None:
            raw = "".join(json.dumps(fields) + "\n" for fields in examples).encode("utf-8")
            path = folder / f"{prefix}{name}"
            if packed:
                path = path.with_name(f"{path.name}.gz")
                raw = gzip.compress(raw)
            path.write_bytes(raw)
    return folder


def convert(*arguments, out):
    return nq_la.main([*map(str, arguments), "--out", str(out)])


def key_of(is_dev, start=0):
    """The first id from a number on that belongs to train, or to dev."""
    keys = range(start, start + 1000)
    return next(key for key in keys if corpus.is_dev(example_of(key), nq_la.DEV_SHARE) == is_dev)


def example_of(key):
    return nq_la.read_example(json.dumps(example(key)), "here")[0]


TRAIN_KEY, DEV_KEY = key_of(False), key_of(True)
TEXTS = ("Rye bread is ( often ) sour .", "The dough rests < 2 days >= .", "It keeps for weeks .")


@pytest.mark.parametrize("form", [dict, original])
def test_candidates_are_the_top_level_paragraphs_of_the_page(form):
    question, reason = nq_la.read_example(json.dumps(form(example(-12, [SECOND]))), "here")
    assert not reason
    assert (question.id, question.question) == ("-12", "what is rye bread")
    assert question.texts == TEXTS  # the paragraph in the table is no candidate, nor an empty one
    assert question.labels == (0, 1, 0)


@pytest.mark.parametrize(
    "answers, labels, reason",
    [
        ((FIRST,), (1, 0, 0), ""),
        ((NONE,), (0, 0, 0), ""),
        ((NONE, NONE, LAST, NONE, NONE), (0, 0, 1), ""),
        ((FIRST, LAST, FIRST, TABLE, NONE), (1, 0, 1), ""),
        ((TABLE,), (0, 0, 0), nq_la.ELSEWHERE),
        ((LIST, NONE, NESTED, NONE, NONE), (0, 0, 0), nq_la.ELSEWHERE),
        ((EMPTY,), (0, 0, 0), nq_la.ELSEWHERE),
    ],
)
def test_a_paragraph_is_correct_if_any_annotator_chose_it(answers, labels, reason):
    question, why = nq_la.read_example(json.dumps(example(1, answers)), "here")
    assert (question.labels, why) == (labels, reason)


@pytest.mark.parametrize("kind", ["plain", "prefixed"])
def test_splits(tmp_path, capsys, kind):
    bare = ["<Table>", "<Tr>", "a", "</Tr>", "</Table>"]
    train = [
        example(TRAIN_KEY, [SECOND]),
        example(DEV_KEY, [FIRST]),
        example(10**18, [TABLE]),
        example(10**18 + 1, [NONE], tokens=bare),
        example(10**18 + 2, [FIRST], " "),
    ]
    dev = [original(example(2, [NONE] * 5)), example("d", [FIRST, LAST, NONE, NONE, TABLE])]
    prefix = "v1.0-simplified_" if kind == "prefixed" else ""
    archive = write_release(tmp_path / "in", train, dev, kind != "plain", prefix)
    out = tmp_path / "out"
    assert convert("--archive", archive, out=out) == 0
    ids = {}
    for split in ("train", "dev", "test"):
        ids[split] = [question.id for question in read_questions(out / f"{split}.jsonl")]
    assert ids == {"train": [str(TRAIN_KEY)], "dev": [str(DEV_KEY)], "test": ["2", "d"]}
    printed = capsys.readouterr()
    for reason in (nq_la.ELSEWHERE, nq_la.NO_PARAGRAPH, nq_la.NO_QUESTION):
        assert f"nq-train.jsonl{'.gz' if kind != 'plain' else ''}: 1 questions {reason}" in (
            printed.err
        )
    stats = json.loads((out / "stats.json").read_text())
    assert stats["test"]["all"]["questions"] == 2
    counts = stats["test"]["no-all-negative"]
    assert (counts["questions"], counts["candidates"], counts["correct"]) == (1, 3, 2)
    test = list(read_questions(out / "test.jsonl"))
    orders = [range(3), range(3)]
    assert evaluate(orders, test, "no-all-negative")["map"] == pytest.approx((1 + 2 / 3) / 2)


def test_one_in_fifty_training_questions_is_a_development_question():
    questions = [example_of(7)._replace(id=str(key)) for key in range(5_000)]
    drawn = [corpus.is_dev(question, nq_la.DEV_SHARE) for question in questions]
    assert sum(drawn) == pytest.approx(100, abs=30)


def without(name):
    fields = example()
    del fields[name]
    return fields


def candidates_with(**changes):
    spans = example()["long_answer_candidates"]
    return example(long_answer_candidates=[{**spans[0], **changes}, *spans[1:]])


def answer_with(**changes):
    annotation = example()["annotations"][0]
    answer = {**annotation["long_answer"], **changes}
    return example(annotations=[{**annotation, "long_answer": answer}])


def tokens_with(token):
    fields = original(example())
    return {**fields, "document_tokens": [token, *fields["document_tokens"][1:]]}


BAD = {
    "no object": (["a"], "TypeError"),
    "no id": (without("example_id"), "KeyError: 'example_id'"),
    "an empty list of annotations": (example(annotations=[]), "no annotation"),
    "half a character": (example(question_text="a \ud800"), "half a surrogate pair"),
    "a span that ends before it begins": (candidates_with(end_token=1), "a span from token 3 to 1"),
    "a span behind the page": (candidates_with(end_token=999), "to 999 of"),
    "no top_level": (candidates_with(top_level=None), "top_level is None"),
    "a candidate that there is not": (answer_with(candidate_index=10), "candidate 10 of 10"),
    "another span": (answer_with(end_token=5), "not the span of candidate 0"),
    "a token of a number": (tokens_with({"token": 3, "html_token": True}), "a token is"),
    "a token without a kind": (tokens_with({"token": "a"}), "KeyError: 'html_token'"),
}


@pytest.mark.parametrize("kind", BAD)
def test_lines_that_do_not_fit(tmp_path, refusal, kind):
    fields, message = BAD[kind]
    archive = write_release(tmp_path / "in", [example(1), example(2), fields, example(3)])
    error = refusal(nq_la, "--archive", archive, out=tmp_path / "out")
    assert "simplified-nq-train.jsonl, line 3: " in error and message in error


@pytest.mark.parametrize(
    "line, message",
    [
        (b"{", "an example of Natural Questions"),
        (b"", "an example of Natural Questions"),
        (b"\xff", "byte 0 is not UTF-8"),
        (json.dumps(example(1)).encode(), "question id '1' is on line 1 too"),
    ],
)
def test_lines_that_are_no_json_or_occur_twice(tmp_path, refusal, line, message):
    archive = write_release(tmp_path / "in", [], [example(1)])
    (archive / "simplified-nq-train.jsonl").unlink()
    with open(archive / "nq-dev-all.jsonl", "ab") as file:
        file.write(line + b"\n")
    error = refusal(nq_la, "--archive", archive, out=tmp_path / "out")
    assert "nq-dev-all.jsonl, line 2" in error and message in error


def test_archives_that_do_not_fit(tmp_path, refusal):
    (tmp_path / "empty").mkdir()
    for archive in (tmp_path / "empty", tmp_path / "missing", tmp_path / "nq-dev-all.jsonl"):
        error = refusal(nq_la, "--archive", archive, out=tmp_path / "out")
        assert "expected simplified-nq-train.jsonl or nq-dev-all.jsonl" in error
    archive = write_release(tmp_path / "in", [example(TRAIN_KEY)], [example(2)], packed=True)
    error = refusal(nq_la, "--archive", archive, out=tmp_path / "out")
    assert "split dev: it holds no question" in error
    path = archive / "nq-dev-all.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-9])
    (archive / "simplified-nq-train.jsonl.gz").unlink()
    error = refusal(nq_la, "--archive", archive, out=tmp_path / "out")
    assert "nq-dev-all.jsonl.gz: cannot be read" in error
