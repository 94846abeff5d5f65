"""Messages of the library: logged under the name `wqa`, and printed by the command line."""

import io
import logging
import sys

from tqdm import tqdm

from wqa.cli import main
from wqa.config import TrainingConfig
from wqa.data import builtin_path
from wqa.io.progress import LossyStream, MessageHandler, messages_on_stderr
from wqa.systems.train import train
from wqa.text import note_long_questions

SHORT = "the training ends after 2 updates, within its warm-up"


def test_a_program_configures_the_messages(tiny_encoder, tmp_path, caplog):
    config = TrainingConfig(max_updates=2, tokens_per_batch=300, warmup_updates=2, engine="mxnet")
    for level in ("INFO", "ERROR"):
        caplog.clear()
        with caplog.at_level(level, "wqa"):
            run = tmp_path / level
            train("pairwise", str(builtin_path("dev")), str(run), str(tiny_encoder), config=config)
        messages = [(record.levelname, record.getMessage()) for record in caplog.records]
        is_shown = level == "INFO"
        assert any(SHORT in text for kind, text in messages if kind == "WARNING") == is_shown
        assert any("learning_rate=5e-05 " in text for _, text in messages) == is_shown


def test_the_command_line_prints_notes(tiny_encoder, tmp_path, capsys):
    dev = str(builtin_path("dev"))
    command = ["train", "pairwise", "--encoder", str(tiny_encoder), "--train", dev, "--dev", dev]
    command += ["--max-updates", "2", "--tokens-per-batch", "300", "--warmup-updates", "2"]
    logger = logging.getLogger("wqa")
    before = list(logger.handlers), logger.level
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    assert sum(line.startswith(f"note: {SHORT}") for line in lines) == 1
    assert sum(line.startswith("update 2: dev map ") for line in lines) == 1
    assert (list(logger.handlers), logger.level) == before


def test_a_handler_prints_once_and_goes(capsys):
    with messages_on_stderr(), messages_on_stderr():
        note_long_questions(1, 0)
    assert capsys.readouterr().err == "note: 1 over-long question truncated\n"
    logger = logging.getLogger("wqa")
    assert sum(isinstance(handler, MessageHandler) for handler in logger.handlers) == 1


def test_a_message_stands_above_the_bar(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with tqdm(total=2, file=sys.stderr, desc="working") as bar, messages_on_stderr():
        bar.update()
        bar.refresh()
        note_long_questions(0, 2)
    lines = [line.rpartition("\r")[2] for line in screen.getvalue().split("\n")]
    assert "note: 2 over-long questions skipped with all candidates" in lines
    assert lines[-2].startswith("working:")


def test_messages_that_cannot_be_written_are_dropped(monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    for stream in (None, Full(), LossyStream(None), LossyStream(Full())):
        monkeypatch.setattr(sys, "stderr", stream)
        with messages_on_stderr():
            note_long_questions(1, 0)
