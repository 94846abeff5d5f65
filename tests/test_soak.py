"""A few tries of every attack of `make soak`, so that its harness stays whole."""

import os
import subprocess
import sys

from conftest import ROOT
from soak.supervisor import Tally
from soak.worker import ATTACKS


def test_every_attack_makes_a_few_tries(tmp_path):
    page = tmp_path / "soak.md"
    options = ["--tries", "1", "--faults", str(tmp_path / "faults"), "--page", str(page)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "soak" / "run.py"), *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "faults").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["soak.md"]
    written = page.read_text(encoding="utf-8")
    for name in ATTACKS:
        assert f"| {name} | " in written
        assert f"- **{name}**: " in written


def test_attacks_are_described():
    for name in ATTACKS:
        tally = Tally(name)
        assert tally.doc.strip() and tally.unit
