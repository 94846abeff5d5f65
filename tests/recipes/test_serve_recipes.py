"""The recipe that measures a service, for seconds; a slow machine passes too."""

import json
import subprocess
import sys

from conftest import ROOT, child_environment

from wqa.data import builtin_path


def test_load(tmp_path):
    out = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "recipes/serve/load.py"), "--data", builtin_path("dev")]
    command += ["--questions", "2", "--clients", "1", "2", "--seconds", "0.5"]
    served = [sys.executable, "-m", "wqa", "serve", "wo"]
    done = subprocess.run(
        [*map(str, command), "--json", str(out), "--", *served],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    for clients in (1, 2):
        assert figures[f"requests a second, {clients} clients"] > 0
    assert "requests a second, 2 clients: " in done.stdout
