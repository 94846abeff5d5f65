"""Readers of files from elsewhere: what `make fuzz` starts from, and what it once found."""

import pytest
from conftest import DATA, ROOT, load_module

from wqa.errors import WqaError

FOUND = sorted((DATA / "fuzz").glob("*/*"))


@pytest.fixture(scope="module")
def targets():
    return load_module(ROOT / "tests" / "fuzz" / "targets.py")


def test_a_reader_reads_what_it_starts_from(targets, tmp_path):
    """At least one of its files."""
    for name, (file_name, _) in targets.TARGETS.items():
        folder = tmp_path / name / "input"
        folder.mkdir(parents=True)
        refused = []
        for content in targets.seeds(name, tmp_path):
            path = folder / file_name
            path.write_bytes(content)
            refused.append(targets.read(name, path))
        assert not all(refused), name


@pytest.mark.parametrize("found", FOUND, ids=lambda path: f"{path.parent.name}-{path.name[:20]}")
def test_what_was_found_is_read_or_refused(found, targets, tmp_path):
    """By an error of `wqa.errors`; another one passes `targets.read`."""
    file_name, reader = targets.TARGETS[found.parent.name]
    path = tmp_path / file_name
    path.write_bytes(found.read_bytes())
    try:
        reader(path)
    except WqaError as error:
        assert str(error)
