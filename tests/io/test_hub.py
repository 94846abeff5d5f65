"""Names of the Hugging Face hub, from a cache in its own layout; nothing is fetched."""

import hashlib
import json
import shutil

import pytest
from conftest import run_python

from wqa.errors import EncoderError
from wqa.io.encoder_directories import hub_directory, is_hub_name, locate_encoder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cache(home, name, files):
    """A repository in the hub's cache: files by their digests, and links of one commit to them."""
    repository = home / "hub" / ("models--" + name.replace("/", "--"))
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, repository / "blobs" / digest)
        (snapshot / file.name).symlink_to(f"../../blobs/{digest}")
    return snapshot


@pytest.fixture
def convert(tmp_path, monkeypatch, run_main):
    """Convert an encoder in an empty folder, with a cache of its own and no network."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    return lambda: run_main("convert", "acme/tiny-bert", "out")


def test_an_encoder_of_the_cache(convert, tmp_path, tiny_encoder):
    cache(tmp_path / "home", "acme/tiny-bert", sorted(tiny_encoder.iterdir()))
    assert convert()[0] == 0
    config = json.loads((tmp_path / "here" / "out" / "config.json").read_text())
    assert config["encoder"] == "acme/tiny-bert" and config["backbone"]["num_layers"] == 3


def test_a_directory_of_that_name_goes_first(convert, tmp_path, tiny_encoder):
    cache(tmp_path / "home", "acme/tiny-bert", [tiny_encoder / "config.json"])
    shutil.copytree(tiny_encoder, tmp_path / "here" / "acme" / "tiny-bert")
    assert convert()[0] == 0


@pytest.mark.parametrize("held", [None, ["config.json"], ["config.json", "model.safetensors"]])
def test_without_a_network(convert, tmp_path, tiny_encoder, held):
    if held is not None:
        cache(tmp_path / "home", "acme/tiny-bert", [tiny_encoder / name for name in held])
    status, out, error = convert()
    assert status == 2 and not out
    [line] = error.splitlines()
    assert line.startswith("error: ")
    if held is None:
        assert "hf download acme/tiny-bert --local-dir DIR" in line


def test_a_network_that_does_not_answer(tmp_path):
    closed = {"HF_ENDPOINT": "http://127.0.0.1:9"}  # nothing listens there
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0", **closed}
    done = run_python("-m", "wqa", "convert", "acme/tiny-bert", "out", variables=home, cwd=tmp_path)
    assert done.returncode == 2
    assert "error: acme/tiny-bert: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", [Exception, KeyError])
def test_an_error_of_the_librarys_client_is_typed(monkeypatch, kind):
    """Those of its HTTP client, such as of a proxy that refuses, have no base in common."""

    def fail(name, **options):
        raise kind("403 Forbidden")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(EncoderError, match="cannot be fetched .*403 Forbidden"):
        hub_directory("owner/name")


def test_names(tmp_path, monkeypatch):
    assert is_hub_name("FacebookAI/roberta-base") and is_hub_name("a/b_c.d-1")
    for name in ("roberta-base", "/a/b", "a/b/c", "a/", "../b", "./b", "a b/c", "a/\u00e9", ""):
        assert not is_hub_name(name), name
    (tmp_path / "encoders").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_hub_name("encoders/mistyped")
    with pytest.raises(EncoderError, match="encoders/mistyped: there is no such directory or"):
        locate_encoder("encoders/mistyped")
