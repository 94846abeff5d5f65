"""Claims with their evidence: their files, FEVER's script, and label accuracy."""

import gzip
import importlib
import json
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data.documents import LABELS, NO_EVIDENCE, Claim, read_claims, write_claims
from wqa.errors import DataError
from wqa.evaluation.answers import label_accuracy

fever = importlib.import_module("fever")

GOOD = '{"id": "7", "claim": "Rye floats.", "evidence": ["Rye. It sinks."], "label": "REFUTES"}'
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20).filter(str.strip)
CLAIMS = st.lists(
    st.builds(
        Claim,
        TEXT,
        TEXT,
        st.lists(TEXT, min_size=1, max_size=5).map(tuple),
        st.sampled_from([*LABELS, None]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda claim: claim.id,
)


# Files


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@given(claims=CLAIMS)
def test_what_is_written_reads_back(tmp_path_factory, name, claims):
    path = tmp_path_factory.mktemp("round") / name
    write_claims(path, claims)
    assert list(read_claims(path, labelled=False)) == claims


@pytest.mark.parametrize(
    "change, message",
    [
        ({"label": "MAYBE"}, "label is 'MAYBE'; expected one of SUPPORTS, NOT ENOUGH INFO, REF"),
        ({"label": ...}, "no key 'label'"),
        ({"evidence": []}, r"evidence is \[\]; expected a list of .* give 'no doc. ' where"),
        ({"evidence": ["Rye.", " "]}, "evidence 2 is empty"),
        ({"id": 8}, "id is 8; expected a string"),
        ({"id": "7"}, "claim id '7' is on line 1 too"),
        ({"title": "x"}, "unknown key 'title'"),
    ],
)
def test_a_line_that_is_no_claim_is_refused_by_its_number(jsonl, change, message):
    fields = {**json.loads(GOOD), "id": "8", **change}
    kept = {name: value for name, value in fields.items() if value is not ...}
    path = jsonl(GOOD, json.dumps(kept))
    with pytest.raises(DataError, match=message) as caught:
        list(read_claims(path))
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_claims_without_labels_and_without_lines(jsonl, tmp_path):
    path = jsonl(GOOD.replace(', "label": "REFUTES"', ""))
    [claim] = read_claims(path, labelled=False)
    assert claim.label is None
    with pytest.raises(DataError, match="line 1: no key 'label'"):
        list(read_claims(path))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="the file holds no claim"):
        list(read_claims(tmp_path / "empty.jsonl"))


# Label accuracy


def labelled(labels):
    return [Claim(str(n), "x", ("e",), label) for n, label in enumerate(labels)]


def test_label_accuracy_and_the_confusion():
    claims = labelled(["SUPPORTS", "SUPPORTS", "SUPPORTS", "REFUTES", "REFUTES"])
    predicted = ["SUPPORTS", "REFUTES", "SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
    predictions = {str(n): label for n, label in enumerate(predicted)}
    scores = label_accuracy({**predictions, "other": "?"}, claims)
    assert scores.claims == 5 and scores.accuracy == 3 / 5
    assert scores.confusion == ((2, 0, 1), (0, 0, 0), (0, 1, 1))
    assert scores.table().splitlines() == [
        "label / predicted  SUPPORTS  NOT ENOUGH INFO  REFUTES  correct",
        "         SUPPORTS         2                0        1    66.67",
        "  NOT ENOUGH INFO         0                0        0        -",
        "          REFUTES         0                1        1    50.00",
    ]


# FEVER


def row(key, label="SUPPORTS", pieces=1, **fields):
    """A line of KernelGAT's data."""
    evidence = [[f"Rye_{n}", n, f"Sentence {n} .", 0.5] for n in range(pieces)]
    values = {"id": key, "claim": f"Claim {key}.", "evidence": evidence, "label": label, **fields}
    return {name: value for name, value in values.items() if value is not ...}


TRAIN = [row(1, "REFUTES"), row(2, "NOT ENOUGH INFO", 0), row(3, pieces=7)]


def write_release(folder, **splits):
    folder.mkdir(parents=True, exist_ok=True)
    parts = splits or {"train": TRAIN, "dev": [row(1)], "test": [row(1, ...), row(2)]}
    for split, rows in parts.items():
        text = "".join(json.dumps(item) + "\n" for item in rows)
        (folder / f"bert_{split}.json").write_text(text)
    return folder


def convert(archive, out):
    return fever.main(["--archive", str(archive), "--out", str(out)])


@pytest.mark.parametrize("form", ["folder", "gz", "zip"])
def test_fever(tmp_path, capsys, form):
    folder = archive = write_release(tmp_path / "in")
    if form == "gz":
        for path in list(folder.iterdir()):
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    elif form == "zip":
        archive = tmp_path / "KernelGAT.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for path in folder.iterdir():
                packed.write(path, f"KernelGAT/data/{path.name}")
    assert convert(archive, tmp_path / "out") == 0
    claims = {}
    for split in ("train", "dev", "test"):
        claims[split] = list(read_claims(tmp_path / "out" / f"{split}.jsonl", labelled=False))
    assert claims["train"] == [
        Claim("1", "Claim 1.", ("Rye_0. Sentence 0 .",), "REFUTES"),
        Claim("2", "Claim 2.", (NO_EVIDENCE,), "NOT ENOUGH INFO"),
        Claim("3", "Claim 3.", tuple(f"Rye_{n}. Sentence {n} ." for n in range(5)), "SUPPORTS"),
    ]
    assert [claim.label for claim in claims["test"]] == [None, "SUPPORTS"]
    stats = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert stats["train"] == {
        "claims": 3,
        "evidence": 6,
        "evidence_per_claim": 2.0,
        "without_evidence": 1,
        "labels": {"SUPPORTS": 1, "NOT ENOUGH INFO": 1, "REFUTES": 1},
        "published": {"claims": 145406, "evidence": 722473},
    }
    assert stats["test"]["labels"] == {"SUPPORTS": 1, "without_label": 1}
    shown = capsys.readouterr()
    assert "note: train: 1 claims with more than 5 pieces of evidence, which keep" in shown.err
    assert "3 claims, 6 evidence" in shown.out and "145,406 claims" in shown.out


@pytest.mark.parametrize(
    "item, message",
    [
        (row(1, "MAYBE"), "label is 'MAYBE'; expected one of SUPPORTS"),
        (row(1, ...), "'label'"),
        (row(1, evidence=[["Rye", 0]]), "expected id, claim, evidence and label"),
        (row(1, evidence=[["Rye", 0, 3]]), "evidence 1: text is 3; expected a string"),
        (row(1, evidence=[[" ", 0, "x"]]), "evidence 1: title is empty"),
        (row(1, claim=2), "claim is 2"),
        (row(" "), "id is ' '"),
    ],
)
def test_a_line_of_fever_that_is_refused(tmp_path, capsys, item, message):
    folder = write_release(tmp_path / "in", train=[row(0), item])
    assert convert(folder, tmp_path / "out") == 2
    error = capsys.readouterr().err
    path = folder / "bert_train.json"
    assert error.startswith(f"error: {path}, line 2") and error.count("\n") == 1
    assert re.search(message, error)
    assert not list((tmp_path / "out").glob("*.json*"))
