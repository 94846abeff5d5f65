"""The Dockerfile, read as Docker reads it. No test builds the image."""

import fnmatch
import json
import pathlib
import re

from conftest import ROOT

from wqa.cli import parse


def instructions(text):
    """Instructions of a Dockerfile and what follows them, comments left out, lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    pairs = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, rest in pairs]


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))
LAST_STAGE = DOCKERFILE[max(i for i, (name, _) in enumerate(DOCKERFILE) if name == "FROM") :]


def all_of(name, lines=DOCKERFILE):
    return [rest for instruction, rest in lines if instruction == name]


def is_sent(path):
    """Whether .dockerignore leaves a path in the context; the last pattern that matches decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keeps = pattern.startswith("!")
        pattern = pattern.lstrip("!")
        parents = [path, *map(str, pathlib.PurePath(path).parents)]
        if pattern.startswith("**/"):
            matches = any(fnmatch.fnmatch(parent.split("/")[-1], pattern[3:]) for parent in parents)
        else:
            matches = any(fnmatch.fnmatch(parent, pattern) for parent in parents)
        if matches:
            sent = keeps
    return sent


def test_stages_are_slim_images_of_the_last_python_that_mxnet_takes():
    stages = [rest.split() for rest in all_of("FROM")]
    assert [stage[0] for stage in stages] == ["python:3.11-slim"] * 2
    names = {stage[2] for stage in stages if len(stage) == 3}
    for rest in all_of("COPY", LAST_STAGE):
        assert re.match(r"--from=(\S+)", rest)[1] in names


def test_what_is_copied_exists_and_is_sent_to_the_build():
    sources = []
    for rest in all_of("COPY"):
        if not rest.startswith("--from"):
            sources += rest.split()[:-1]
    assert "setup.py" in sources and "./wqa" in [f"./{source}" for source in sources]
    for source in sources:
        assert (ROOT / source).exists() and is_sent(source), source
    assert is_sent("wqa/serve/page/page.js")
    assert not is_sent("wqa/serve/__pycache__/app.pyc")
    for source in (".git", ".venv", "runs", "runs/cascade/model.params", "data", "tests"):
        assert not is_sent(source), source


def test_the_default_command_serves_the_mounted_run_and_not_as_root():
    [user] = all_of("USER", LAST_STAGE)
    assert user.isdigit() and int(user) > 0
    command = json.loads(all_of("ENTRYPOINT")[0]) + json.loads(all_of("CMD", LAST_STAGE)[-1])
    assert command[0] == "wqa"
    options = parse(command[1:])
    assert options.run == "/run" and options.host == "0.0.0.0"
    assert str(options.port) in all_of("EXPOSE")


def test_the_health_check_asks_the_port_that_is_served():
    [check] = all_of("HEALTHCHECK")
    python, option, code = json.loads(check.split(" CMD ")[1])
    assert (python, option) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    assert f"127.0.0.1:{all_of('EXPOSE')[0]}/ready" in code
