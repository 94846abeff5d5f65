"""`wqa train --config FILE`: options from YAML, or from the config.json of a run."""

import json

import pytest

from wqa.cli import main, parse
from wqa.cli.options import fields_of
from wqa.config import TrainingConfig, read_run_config
from wqa.data import builtin_path
from wqa.errors import OptionError, WqaError
from wqa.systems.registry import find_system

TEXT = """
# a comment
system: cascade
encoder: minilm
train: train.jsonl
out: runs/x
exits: [2, 4, 6]
learning-rate: 3e-5   # which YAML reads as text
warmup_updates: 10
epochs: 7
train_filter: no-all-negative
resume: true
teachers: [a, b]
"""


@pytest.fixture
def file(tmp_path):
    """Write a file of options."""

    def write(text, name="options.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return str(path)

    return write


def training(options):
    return TrainingConfig(**fields_of(options, TrainingConfig))


def test_a_file_has_every_option(file):
    options = parse(["train", "--config", file(TEXT)])
    assert (options.system, options.encoder, options.init) == ("cascade", "minilm", "")
    assert (options.train, options.out, options.resume) == ("train.jsonl", "runs/x", True)
    assert fields_of(options, find_system("cascade").network_type().Config)["exits"] == (2, 4, 6)
    config = training(options)
    assert (config.learning_rate, config.warmup_updates, config.epochs) == (3e-5, 10, 7)
    assert (config.train_filter, config.teachers) == ("no-all-negative", ("a", "b"))
    assert config.seed == 0  # not in the file


@pytest.mark.parametrize(
    "line", ["warmup_share: 0.2", "schedule: slanted", "accumulate: 4"], ids=str
)
def test_a_file_replaces_defaults_of_the_system(file, line):
    """Those of options that its own take the place of."""
    text = f"system: mspp\nencoder: minilm\ntrain: t.jsonl\nout: o\n{line}\n"
    config = training(parse(["train", "--config", file(text)]))
    name, value = line.split(": ")
    assert str(getattr(config, name)) == value
    assert config.learning_rate == 2e-6  # the system's
    flag = "--" + name.replace("_", "-")
    command = ["train", "mspp", "--encoder", "minilm", "--train", "t.jsonl", "--out", "o"]
    assert training(parse([*command, flag, value])) == config


def test_an_abbreviated_flag_is_one_line(capsys):
    command = ["train", "cascade", "--encoder", "minilm", "--train", "t.jsonl", "--out", "o"]
    assert main([*command, "--tokens", "5"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_run_that_was_not_trained_here_gives_no_options(file):
    record = {"system": "pairwise", "network": {"exits": [3]}, "max_length": 128}
    path = file(json.dumps(record), "config.json")
    with pytest.raises(WqaError):
        parse(["train", "--config", path])


def test_flags_win(file):
    path = file(TEXT)
    command = ["train", "mhs", "--epochs", "2", "--config", path, "--init", "runs/y", "--seed", "4"]
    options = parse([*command, "--warmup-share", "0.2", "--exits", "3", "--out", "z"])
    assert (options.system, options.encoder, options.init) == ("mhs", "", "runs/y")
    config = training(options)
    assert (config.epochs, config.seed, config.learning_rate) == (2, 4, 3e-5)
    assert (config.warmup_updates, config.warmup_share) == (None, 0.2)
    assert (options.out, options.exits) == ("z", "3")
    assert training(parse(["train", "--config", path, "--schedule", "slanted"])).epochs == 7


def test_a_file_wins_over_the_defaults_of_a_system(file):
    path = file("learning_rate: 1.0e-3\nwords: w\n")
    command = ["train", "cosinet", "--train", "x", "--out", "y", "--config", path]
    config = training(parse(command))
    assert (config.learning_rate, config.schedule) == (1e-3, "slanted")


def test_the_settings_of_a_run(tiny_run, tmp_path):
    files = ["--train", "x", "--out", str(tmp_path / "run")]
    options = parse(["train", "--config", str(tiny_run / "config.json"), *files])
    run = read_run_config(tiny_run / "config.json")
    assert training(options) == run.training
    assert (options.system, options.max_length) == ("cascade", run.max_length)
    assert fields_of(options, find_system("cascade").network_type().Config)["exits"] == (1, 2, 3)
    assert (options.encoder, options.init) == (run.encoder, "")
    options = parse(["train", "--config", str(tiny_run / "config.json"), *files, "--seed", "9"])
    assert training(options).seed == 9


def test_a_run_that_started_from_a_run(tiny_run, file):
    record = json.loads((tiny_run / "config.json").read_text())
    record.update(encoder=str(tiny_run), sha256={})
    path = file(json.dumps(record), "config.json")
    options = parse(["train", "--config", path, "--train", "x", "--out", "y"])
    assert (options.encoder, options.init) == ("", str(tiny_run))
    options = parse(["train", "--config", path, "--train", "x", "--out", "y", "--encoder", "e"])
    assert (options.encoder, options.init) == ("e", "")


def test_a_training_from_a_file_is_that_of_the_flags(tiny_encoder, file, tmp_path, capsys):
    dev = str(builtin_path("dev"))
    flags = ["--max-updates", "2", "--tokens-per-batch", "300", "--engine", "mxnet"]
    start = ["train", "pairwise", "--encoder", str(tiny_encoder), "--train", dev]
    assert main([*start, *flags, "--out", str(tmp_path / "flags")]) == 0
    lines = ["system: pairwise", f"encoder: {tiny_encoder}", f"train: {dev}", "max_updates: 2"]
    lines += ["tokens-per-batch: 300", "engine: mxnet", f"out: {tmp_path / 'file'}"]
    path = file("\n".join(lines))
    assert main(["train", "--config", path]) == 0
    assert main(["train", "--config", path, "--resume"]) == 0
    assert "is complete already" in capsys.readouterr().out
    of_run = ["--config", str(tmp_path / "flags" / "config.json"), "--train", dev]
    assert main(["train", *of_run, "--out", str(tmp_path / "again")]) == 0
    for name in ("file", "again"):
        parameters = (tmp_path / name / "model.params").read_bytes()
        assert parameters == (tmp_path / "flags" / "model.params").read_bytes()


def nested(first, row):
    """A document of a few hundred bytes, which stands for 10^10 values."""
    lines = [f"b0: &a0 {first}"]
    for level in range(10):
        lines.append(f"b{level + 1}: &a{level + 1} " + row.format(", ".join([f"*a{level}"] * 10)))
    return "\n".join(lines)


ALIASES, MERGES = nested("[x]", "[{}]"), nested("{x: 1}", "{{<<: [{}]}}")


@pytest.mark.parametrize(
    "text, found",
    [
        ("learning_rat: 1", "unknown key 'learning_rat'; expected one of accumulate, alpha, "),
        ("help: true", "unknown key 'help'"),
        ("config: x", "unknown key 'config'"),
        ("epochs: many", "key epochs: 'many'; expected a whole number"),
        ("epochs: 1.5", "key epochs: 1.5; expected a whole number"),
        ("epochs: [1]", "key epochs: [1]; expected a whole number"),
        ("epochs: true", "key epochs: True; expected a whole number"),
        ("learning_rate: fast", "key learning_rate: 'fast'; expected a number"),
        ("learning_rate: -1", "learning-rate: -1.0; expected a number above 0"),
        ("resume: 1", "key resume: 1; expected true or false"),
        ("schedule: cosine", "key schedule: 'cosine'; expected one of triangular, slanted"),
        ("system: cascades", "system: 'cascades'"),
        ("exits: [2, x]", "--exits: '2,x'; expected whole numbers"),
        ("epochs: 1\nepochs: 2", "key 'epochs' occurs twice"),
        ("- epochs", "expected a mapping of options"),
        ("", "None; expected a mapping of options"),
        ("1: 2", "expected a mapping of options"),
        ("epochs: [", "cannot be read"),
        (b"epochs: \xff", "cannot be read"),
        ('out: "a\\0b"', "key out: "),
        ("!!python/object:os.system {}", "cannot be read"),
        ("{[1]: 2}", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("exits: &a [2]\nepochs: *a", "cannot be read (alias '*a'); expected YAML without aliases"),
        (ALIASES, "cannot be read (alias '*a0')"),
        (MERGES, "cannot be read (alias '*a0')"),
        (f"epochs: 0x{'f' * 9000}", "key epochs: a value of type int; expected a whole number"),
    ],
)
def test_files_that_do_not_fit(text, found, file, capsys):
    command = ["train", "--config", file(text), "--encoder", "none"]
    if b"system" not in (text if isinstance(text, bytes) else text.encode()):
        command.insert(1, "cascade")
    for name in ("train", "out"):
        if not isinstance(text, str) or f"{name}:" not in text:
            command += [f"--{name}", "x"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert found in error and error.count("\n") == 1 and error.startswith("error: ")


def test_files_that_are_not_there_or_damaged(tiny_run, file, tmp_path, capsys):
    for path in (tmp_path / "missing.yaml", tmp_path):
        assert main(["train", "cascade", "--config", str(path)]) == 2
        assert f"{path}: cannot be read" in capsys.readouterr().err
    twice = file('{"epochs": 1, "epochs": 2}', "twice.json")
    assert main(["train", "cascade", "--config", twice]) == 2
    assert "cannot be read (key 'epochs' occurs twice)" in capsys.readouterr().err
    damaged = (tiny_run / "config.json").read_text().replace('"seed": 0', '"seed": 1')
    assert main(["train", "--config", file(damaged, "config.json")]) == 2
    assert "has changed: its SHA-256" in capsys.readouterr().err
    with pytest.raises(OptionError, match="no value"):
        parse(["train", "cascade", "--config"])
    with pytest.raises(OptionError, match="required: SYSTEM, --train, --out"):
        parse(["train", "--config", file("epochs: 2")])
    with pytest.raises(OptionError, match="required: --out"):
        parse(["train", "--config", file("system: cascade\ntrain: x")])
