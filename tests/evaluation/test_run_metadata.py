"""Headers of TREC runs: written, read, skipped, and refused by other readers."""

import json

import pytest
import yaml
from run_headers import read_metadata

from wqa.cli import main
from wqa.data import builtin_path
from wqa.errors import DataError
from wqa.evaluation import read_qrels, read_run
from wqa.evaluation.run_metadata import END, START, describe_run, header_of
from wqa.io.files import sha256

RANKINGS = "q Q0 a 1 2.5 x\n#r Q0 b 1 0.5 x\n"
METADATA = {"tag": "x", "method": {"automatic": True, "retrieval": [{"drop ratio": "0.3"}]}}


@pytest.fixture
def run_file(tmp_path):
    def write(text):
        path = tmp_path / "run.trec"
        path.write_text(text)
        return path

    return write


def with_header(metadata=METADATA):
    return "\n".join([*header_of(metadata), RANKINGS])


def test_a_header_is_read_and_skipped(run_file):
    """It is skipped before the first ranking alone, as the id of a question may start with #."""
    expected = {"q": {"a": 2.5}, "#r": {"b": 0.5}}
    assert read_run(run_file(RANKINGS)) == expected
    assert read_metadata(run_file(RANKINGS)) == {}
    path = run_file(with_header())
    assert read_run(path) == expected
    assert read_metadata(path) == METADATA
    path = run_file("#r Q0 b 1 0.5 x\n")
    assert read_run(path) == {"#r": {"b": 0.5}} and read_metadata(path) == {}


@pytest.mark.parametrize(
    "text, message",
    [
        (f"{START}\n# a: 1\n{RANKINGS}", "line 3: a header without an end; expected # ir_metad"),
        (f"{START}\n# a: 1\n", "run.trec: a header without an end"),
        (f"{START}\n{END}\n", "the file holds no ranking"),
        (f"{RANKINGS}{with_header()}", "line 3: 2 columns; expected 6"),
    ],
)
def test_damaged_headers(text, message, run_file):
    with pytest.raises(DataError, match=message):
        read_run(run_file(text))


def test_names_of_any_kind_come_back():
    metadata = {"name": "a: b # c", "path": "täst\n\u2028'\"", "other": ["- x", "", "1", None]}
    lines = header_of(metadata)
    assert all(line.startswith("# ") and line.isascii() for line in lines)
    assert yaml.safe_load("\n".join(line[2:] for line in lines[1:-1])) == metadata


def test_the_command_describes_its_runs(tiny_run, tmp_path, capsys):
    data = str(builtin_path("test"))
    qrels, runs = str(tmp_path / "qrels"), str(tmp_path / "run_{}.trec.gz")
    command = ["evaluate", str(tiny_run), "--data", data, "--drop-ratio", "0"]
    command += ["--drop-ratio", "0.5"]
    assert main([*command, "--trec-run", runs, "--write-qrels", qrels, "--run-metadata"]) == 0
    path = runs.replace("{}", "0.5")
    metadata = read_metadata(path)
    assert {"implementation", "method", "data"} < set(metadata)
    [retrieval] = metadata["method"]["retrieval"]
    assert retrieval["method"] == "cascade" and retrieval["drop ratio"] == "0.5"
    assert retrieval["precision"] == "float32"
    assert retrieval["sha256"]["model.params"] == sha256(tiny_run / "model.params")
    collection = metadata["data"]["test collection"]
    assert collection["sha256"] == sha256(data) and collection["questions"] == 25
    assert metadata["implementation"]["executable"]["cmd"].startswith("wqa evaluate ")
    plain = str(tmp_path / "plain_{}.trec")
    assert main([*command, "--trec-run", plain]) == 0
    assert read_run(path) == read_run(plain.replace("{}", "0.5"))
    capsys.readouterr()
    other = runs.replace("{}", "0")
    arguments = ["evaluate", "--run", other, "--run", path, "--qrels", qrels]
    assert main(arguments) == 0
    assert set(read_run(path)) == set(read_qrels(qrels))


def test_a_header_needs_a_run_to_stand_in(tiny_run, capsys):
    command = ["evaluate", str(tiny_run), "--data", str(builtin_path("test")), "--run-metadata"]
    assert main(command) == 2
    assert "--run-metadata: without trec_run" in capsys.readouterr().err
    assert main([*command, "--seeds"]) == 2
    assert "--run-metadata: with --seeds" in capsys.readouterr().err


def test_an_ensemble_names_its_rankers(tiny_run, tmp_path):
    file = tmp_path / "both.json"
    inner = tmp_path / "inner.json"
    inner.write_text(json.dumps({"rankers": ["bm25", str(tiny_run)], "keep": [5, None]}))
    file.write_text(json.dumps({"ensemble": [str(tiny_run), {"run": "inner.json"}]}))
    figures = {"drop_ratio": "0", "filter": "all", "questions": 3}
    metadata = describe_run("wqa evaluate both.json", file, "ir:vaswani", figures)
    [ensemble] = metadata["method"]["retrieval"]
    assert ensemble["sha256"] == {"both.json": sha256(file)}
    first, second = ensemble["rankers"]
    assert first["sha256"]["model.params"] == sha256(tiny_run / "model.params")
    assert second["rankers"] == [{"name": "bm25", "method": "bm25"}, first]
    assert len(metadata["data"]["training data"]) == 2
    assert header_of(metadata)
