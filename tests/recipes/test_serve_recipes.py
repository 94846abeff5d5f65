"""The recipe that measures a service, for seconds; a slow machine passes too."""

import json
import sys

from conftest import ROOT, run_python

from wqa.data import builtin_path


def test_load(tmp_path):
    out = tmp_path / "figures.json"
    load = [ROOT / "recipes/serve/load.py", "--data", builtin_path("dev"), "--json", out]
    load += ["--questions", 2, "--clients", 1, 2, "--seconds", 0.5]
    done = run_python(*load, "--", sys.executable, "-m", "wqa", "serve", "wo")
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    for clients in (1, 2):
        assert figures[f"requests a second, {clients} clients"] > 0
    assert "requests a second, 2 clients: " in done.stdout
