"""Model cards of runs and of exports: what they say, and that nothing depends on them."""

import re
import shlex
import shutil

import pytest
import yaml

from wqa.cli import main, parse
from wqa.config import RunConfig
from wqa.data import builtin_path
from wqa.io.files import sha256
from wqa.systems.load import load_ranker
from wqa.systems.saving import CARD, MARK, TEMPLATES, save_run, write_model_card

TEXTS = ["Tea is a drink.", "Steam makes it whistle."]


def block(card, language):
    return re.search(rf"^```{language}\n(.*?)^```$", card, re.MULTILINE | re.DOTALL)[1]


def front_matter(card):
    return yaml.safe_load(card.split("---\n")[1])


def training(encoder, out, *more):
    data = str(builtin_path("dev"))
    files = ["--encoder", str(encoder), "--train", data, "--dev", data, "--out", str(out)]
    return ["train", "cascade", *files, "--exits=1,3", "--max-updates=2", "--eval-every=1", *more]


@pytest.fixture(scope="module")
def run(tiny_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("card") / "cascade"
    assert main(training(tiny_encoder, out)) == 0
    return out


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "cascade")


def test_the_card_of_a_training(run, tiny_encoder):
    card, data = (run / CARD).read_text(), builtin_path("dev")
    head = front_matter(card)
    assert head["library_name"] == "wqa" and "cascade" in head["tags"]
    assert head["license"] == "unknown"
    for part in ("train", "dev"):
        assert f"| {part} file | `{data}` |" in card and f"| {part}" in card
    assert "| train questions | `25` |" in card and f"| dev sha256 | `{sha256(data)}` |" in card
    assert "| exits | `[1, 3]` |" in card and "| max_updates | `2` |" in card
    assert f"Encoder `{tiny_encoder}`: unknown" in card
    assert "wqa train cascade" in card


def test_its_example_runs(run, monkeypatch, capsys):
    monkeypatch.chdir(run.parent)
    exec(block((run / CARD).read_text(), "python"), {})
    order = load_ranker(run).rank("why does a kettle whistle ?", TEXTS).order
    assert capsys.readouterr().out == f"{order}\n"


def test_a_resumed_run_gets_its_card_again_but_keeps_ones_own(copied, tiny_encoder):
    path = copied / CARD
    written = path.read_text()
    for damaged in (None, f"{MARK}\nold\n"):
        path.unlink()
        if damaged:
            path.write_text(damaged)
        assert main(training(tiny_encoder, copied, "--resume")) == 0
        assert path.read_text() == written
    path.write_text("my own words")
    assert main(training(tiny_encoder, copied, "--resume")) == 0
    assert path.read_text() == "my own words"


def test_a_run_of_ones_own_model(run, tmp_path):
    ranker = load_ranker(run, engine="mxnet")
    save_run(ranker.network, ranker.inputs, tmp_path / "own")
    card = (tmp_path / "own" / CARD).read_text()
    assert "# own\n" in card and "train file" not in card


def test_cards_of_exports(run, tmp_path, monkeypatch):
    assert main(["export", str(run), str(tmp_path / "exported")]) == 0
    card = (tmp_path / "exported" / CARD).read_text()
    settings = (run / CARD).read_text().partition("## Settings")[2]
    assert card.partition("## Settings")[2] == settings  # all but how it is loaded
    monkeypatch.chdir(tmp_path)
    exec(block(card, "python"), {})
    assert "# exported\n" in card


@pytest.mark.parametrize("use", sorted({path.stem for path in TEMPLATES.iterdir()} - {"card"}))
def test_the_commands_of_cards_parse(use, tmp_path):
    write_model_card(tmp_path, RunConfig(system="cascade"), use, "run")
    text = (tmp_path / CARD).read_text()
    compile(block(text, "python"), "card", "exec")
    if use not in ("mxnet", "onnx"):  # wqa reads the run that they come from
        parse(shlex.split(block(text, "sh"))[1:])
