"""The modules and the log of `make mutants`."""

import argparse

import pytest
from conftest import ROOT, load_module


@pytest.fixture
def mutation():
    return load_module(ROOT / "tests" / "mutation" / "run.py")


def test_modules_and_their_tests_are_there(mutation):
    for module, files in mutation.MODULES.items():
        assert (ROOT / module).is_file()
        assert all((ROOT / "tests" / name).is_file() for name in files)


def test_reasons_are_of_lines_that_are_there(mutation, tmp_path, monkeypatch):
    table = tmp_path / "equivalent.tsv"
    table.write_text("module\tbefore\tafter\treason\na.py\tx = 1\tx = +1\tthe same number\n")
    for (module, before, after), reason in mutation.reasons().items():
        lines = [line.strip() for line in (ROOT / module).read_text(encoding="utf-8").splitlines()]
        assert before in lines and after != before and reason, before
    monkeypatch.setattr(mutation, "EQUIVALENT", table)
    assert mutation.reasons() == {("a.py", "x = 1", "x = +1"): "the same number"}


def test_the_log_counts_what_survived(mutation):
    before, after = mutation.changed_lines("--- a\n+++ b\n@@ -1 +1 @@\n-  x = 1\n+  x = 2\n y\n")
    assert (before, after) == ("x = 1", "x = 2")
    outcomes = ["killed", "killed", "killed", "survived", "equivalent"]
    tried = [mutation.Mutant("a.py", kind, 3, before, after, "same") for kind in outcomes]
    options = argparse.Namespace(sample=5, minutes=2.0, seed=0)
    page = mutation.report(tried, {"a.py": 40}, options)
    assert "| a.py | 40 | 5 | 3 | 1 | 1 | 75 % |" in page
    assert "| all | 40 | 5 | 3 | 1 | 1 | 75 % |" in page
    assert page.count("- a.py, line 3: `x = 1` to `x = 2`: same") == 2
