"""`wqa completion`: scripts that a shell reads."""

import shutil
import subprocess
import sys

import pytest
from conftest import child_environment

from wqa.cli import COMMANDS, main
from wqa.systems import SYSTEMS

pytest.importorskip("shtab")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script of each shell, by the real command."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh"):
        command = [sys.executable, "-m", "wqa", "completion", shell]
        with open(folder / shell, "w", encoding="utf-8") as file:
            subprocess.run(command, stdout=file, check=True, timeout=60, env=child_environment())
    return folder


def completed(script, *words):
    """What bash proposes for the last word."""
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
    code += '_shtab_wqa wqa "${COMP_WORDS[$COMP_CWORD]}" ""; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", code, "bash", str(script), "wqa", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash(scripts, tmp_path):
    script = scripts / "bash"
    assert set(completed(script, "")) == set(COMMANDS)
    assert completed(script, "com") == ["compare", "completion"]
    assert set(completed(script, "train", "")) >= set(SYSTEMS)
    assert completed(script, "train", "cascade", "--learning") == ["--learning-rate"]
    assert completed(script, "train", "cascade", "--schedule", "s") == ["slanted"]
    (tmp_path / "questions.jsonl").write_text("")
    for words in (
        ["evaluate", "run", "--data"],
        ["evaluate"],
        ["train", "cascade", "--out"],
        ["index"],
    ):
        assert completed(script, *words, f"{tmp_path}/q") == [f"{tmp_path}/questions.jsonl"], words


def test_zsh(scripts):
    text = (scripts / "zsh").read_text(encoding="utf-8")
    assert text.startswith("#compdef wqa\n")
    for command in COMMANDS:
        assert command in text
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n", str(scripts / "zsh")], check=True, timeout=60)


def test_without_the_library_and_other_shells(monkeypatch, capsys):
    assert main(["completion", "fish"]) == 2
    assert "invalid choice: 'fish'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install -e '.[completion]'" in capsys.readouterr().err
