"""What runs without an error and says nothing: figures of nothing, and input that is misread."""

import json
import os
import shutil

import pytest

from wqa.cli import main


@pytest.fixture
def noted(run_main):
    """Standard error of a command that succeeds."""

    def run(*arguments):
        status, _, printed = run_main(*arguments)
        assert status == 0, printed
        return printed

    return run


def write_questions(path, labels):
    with open(path, "w") as file:
        for number in range(6):
            candidates = []
            for place, label in enumerate(labels):
                candidates.append({"text": f"Text {place} of {number}.", "label": label})
            row = {"id": str(number), "question": f"why {number} ?", "candidates": candidates}
            file.write(json.dumps(row) + "\n")
    return path


# Figures of nothing


@pytest.mark.parametrize("label", [0, 1])
def test_training_pairs_of_one_label(noted, tmp_path, tiny_encoder, label):
    data = write_questions(tmp_path / "q.jsonl", (label, label))
    train = ("train", "pairwise", "--encoder", tiny_encoder, "--train", data)
    error = noted(*train, "--max-updates", 1, "--out", tmp_path / "run")
    assert f"all 12 training pairs have label {label}" in error


def test_questions_whose_candidates_all_answer(noted, tmp_path):
    assert "no candidate is wrong" in noted(
        "evaluate", "bm25", "--data", write_questions(tmp_path / "q.jsonl", (1, 1))
    )
    assert "no candidate is wrong" not in noted(
        "evaluate", "bm25", "--data", write_questions(tmp_path / "q.jsonl", (1, 0))
    )


def test_a_run_none_of_whose_documents_is_judged(noted, tmp_path):
    (tmp_path / "qrels").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    (tmp_path / "run").write_text("q1 Q0 x1 1 2 t\nq2 Q0 d1 1 2 t\n")
    command = ("evaluate", "--qrels", tmp_path / "qrels", "--run", tmp_path / "run")
    assert "no document of the run is judged" in noted(*command)
    (tmp_path / "run").write_text("q1 Q0 x1 1 2 t\nq2 Q0 d2 1 2 t\n")
    assert "is judged" not in noted(*command)


def test_numbers_that_json_has_not_are_null(capsys, tmp_path):
    (tmp_path / "qrels").write_text("q1 0 d2 1\n")
    (tmp_path / "a").write_text("q1 Q0 d1 1 2 t\nq1 Q0 d2 2 1 t\n")
    (tmp_path / "b").write_text("q1 Q0 d1 1 0.5 t\nq1 Q0 d2 2 1 t\n")
    command = ["evaluate", "--qrels", tmp_path / "qrels", "--json", tmp_path / "out.json"]
    assert (
        main([*map(str, command), "--run", str(tmp_path / "a"), "--run", str(tmp_path / "b")]) == 0
    )
    assert "nan" not in capsys.readouterr().out
    text = (tmp_path / "out.json").read_text()
    [comparison] = json.loads(text, parse_constant=pytest.fail)["comparisons"]
    assert [row["t_test"] for row in comparison["metrics"]] == [None] * 4


# Errors that mislead


def test_a_question_of_stop_words_alone(capsys, tmp_path):
    (tmp_path / "a.txt").write_text("The Who played IT in 1970.\n")
    for question, reason in (("who is The Who ?", "stop words"), ("what melts ?", "none shares")):
        assert main(["ask", str(tmp_path), "--ranker", "bm25", "--question", question]) == 0
        assert reason in capsys.readouterr().out


def test_questions_from_a_pipe(capsys, tmp_path):
    path = write_questions(tmp_path / "q.jsonl", (1, 0))
    descriptor, end = os.pipe()  # what <(cat q.jsonl) is to a command
    os.write(end, path.read_bytes())
    os.close(end)
    assert main(["evaluate", "wo", "--data", f"/dev/fd/{descriptor}"]) == 0
    os.close(descriptor)
    piped = capsys.readouterr().out
    assert main(["evaluate", "wo", "--data", str(path)]) == 0
    assert piped.splitlines()[0] == capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("flag", "nearest"), [("--lr", "--learning-rate"), ("--epoch-s", "--epochs"), ("--zzz", "")]
)
def test_an_unknown_option_names_the_nearest(refusal, flag, nearest):
    error = refusal("train", "pairwise", "--train", "x", "--out", "y", flag, "3")
    assert f"unrecognized arguments: {flag}" in error
    assert ("did you mean" in error) == bool(nearest) and nearest in error


@pytest.mark.parametrize(
    ("drops", "hint"),
    [(("--drop-ratio", "5"), "--keep 5"), (("--keep", "2", "--drop-ratio", "0.5"), "--keep 2")],
)
def test_advice_has_the_names_of_the_command_line(refusal, tiny_run, tmp_path, drops, hint):
    (tmp_path / "c.txt").write_text("ice\nthe moon\n")
    rank = ("rank", tiny_run, "--question", "why ?", "--candidates", tmp_path / "c.txt")
    error = refusal(*rank, *drops)
    assert hint in error and "keep=" not in error


def test_exits_and_cost_are_those_of_rankers_that_have_exits(capsys, tiny_run, tmp_path):
    (tmp_path / "c.txt").write_text("ice\nthe moon\n")
    for run, shown in ((tiny_run, True), ("bm25", False), ("wo", False)):
        rank = ["rank", str(run), "--question", "moon ?", "--candidates", str(tmp_path / "c.txt")]
        assert main(rank) == 0
        out = capsys.readouterr().out
        assert ("exit" in out) == ("of the full encoder" in out) == shown


def test_a_run_of_a_newer_version(refusal, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "colour": 1}))
    (tmp_path / "c.txt").write_text("ice\n")
    rank = ("rank", run, "--question", "why ?", "--candidates", tmp_path / "c.txt")
    assert "unknown field 'colour'" in (error := refusal(*rank)) and "newer version" in error


def test_a_folder_with_files_that_cannot_be_read(noted, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("Lava flows.")
    (docs / "b.txt").write_bytes("Käse".encode("cp1252"))
    (docs / "c.pdf").write_bytes(b"%PDF")
    (docs / "d.html").write_text("<script>x</script>")
    error = noted("index", docs, "--out", tmp_path / "index")
    for text in ("b.txt: byte 1 is not", "c.pdf: is a .pdf file", "d.html: has no"):
        assert text in error
