"""Runs whose training has not ended say so, and the bar of a training estimates its end."""

import shlex

import pytest
from conftest import few_questions
from test_schedules import stop_after

from wqa.cli import main
from wqa.data import builtin_path
from wqa.systems.load import load_ranker


@pytest.fixture
def stopped(tiny_encoder, tmp_path, monkeypatch):
    """The run of a training that was killed at an update, and its command line."""

    def stop(update):
        few = few_questions(tmp_path / "few.jsonl", 3)
        run = tmp_path / "a run"  # the command that resumes it needs quotes
        command = ["train", "pairwise", "--encoder", tiny_encoder, "--train", few, "--out", run]
        command += ["--max-updates", 5, "--warmup-updates", 1, "--tokens-per-batch", 300]
        command = list(map(str, [*command, "--engine", "mxnet", "--checkpoint-every", 2]))
        with monkeypatch.context() as patch:
            stop_after(patch, update)
            assert main(command) == 130
        return run, command

    return stop


@pytest.mark.parametrize("update", [0, 2])
def test_an_unfinished_run_names_the_command_that_resumes_it(update, stopped, capsys, tmp_path):
    run, command = stopped(update)
    assert (run / "checkpoints").is_dir() == (update > 0)
    resume = shlex.join(["wqa", *command]) + " --resume"
    data = str(builtin_path("dev"))
    (tmp_path / "candidates.txt").write_text("ice\n")
    candidates = str(tmp_path / "candidates.txt")
    uses = [
        ["rank", str(run), "--question", "q", "--candidates", candidates],
        ["evaluate", str(run), "--data", data],
        ["train", "cascade", "--init", str(run), "--train", data, "--out", str(tmp_path / "next")],
    ]
    for use in uses:
        capsys.readouterr()
        assert main(use) == 2
        error = capsys.readouterr().err
        assert "the training has not finished" in error and error.strip().endswith(resume), use
        assert "restore" not in error
    assert main(shlex.split(resume)[1:]) == 0
    assert load_ranker(run).rank("q", ["ice", "water"]).order.size == 2
