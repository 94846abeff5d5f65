"""The download of encoders, from a server on this machine with the official paths."""

import functools
import hashlib
import http.server
import io
import pathlib
import shutil
import subprocess
import sys
import tarfile
import threading

import encoders
import fetching
import pytest
from conftest import ROOT, make_tar, write_family_encoder

from wqa.errors import DataError
from wqa.pretrained import load_backbone, load_classifier


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, ranges of them, and pointers instead of large files under raw/."""

    requests = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.requests.append((self.path, self.headers.get("Range")))
        path = pathlib.Path(self.translate_path(self.path.replace("/raw/", "/resolve/")))
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        if "/raw/" in self.path and path.suffix in (".safetensors", ".model"):
            digest = hashlib.sha256(content).hexdigest()
            content = (
                "version https://git-lfs.github.com/spec/v1\n"
                f"oid sha256:{digest}\nsize {len(content)}\n"
            ).encode()
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:])


@pytest.fixture
def site(tmp_path):
    root = tmp_path / "site"
    root.mkdir()
    Handler.requests.clear()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(root))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name, family", [("roberta-base", "roberta"), ("albert-base", "albert")])
def test_a_hub_encoder_comes_whole_and_loads(site, tmp_path, name, family, capsys):
    root, url = site
    write_family_encoder(root / encoders.ENCODERS[name][0] / "resolve" / "main", family)
    assert encoders.main([name, "--out", str(tmp_path / "out"), "--mirror", url]) == 0
    assert "model.safetensors SHA-256 " in capsys.readouterr().out
    assert load_backbone(tmp_path / "out" / name).config.family.name == family
    files = {path.name for path in (tmp_path / "out" / name).iterdir()}
    assert "pytorch_model.bin" not in files and "fetched.json" in files
    count = len(Handler.requests)
    assert encoders.main([name, "--out", str(tmp_path / "out"), "--mirror", url]) == 0
    assert "is there already" in capsys.readouterr().out and len(Handler.requests) == count


def test_a_download_that_stopped_goes_on(site, tmp_path):
    root, url = site
    content = bytes(range(256)) * 5000
    (root / "file").write_bytes(content)
    digest, target = hashlib.sha256(content).hexdigest(), tmp_path / "file"
    for kept in (0, 1000, len(content)):
        (tmp_path / ".file.part").write_bytes(content[:kept])
        assert fetching.download(f"{url}/file", target, digest) == digest
        assert target.read_bytes() == content and not (tmp_path / ".file.part").exists()
        target.unlink()
    assert [kept for _, kept in Handler.requests] == [None, "bytes=1000-", f"bytes={len(content)}-"]
    with pytest.raises(DataError, match=f"SHA-256 {digest}; expected 00; fetch it again"):
        fetching.download(f"{url}/file", target, "00")
    assert not target.exists()
    with pytest.raises(DataError, match="cannot be fetched"):
        fetching.download(f"{url}/absent", target)
    with pytest.raises(DataError, match="cannot be fetched.*--archive"):
        fetching.read_small("http://127.0.0.1:9/x")


def test_tandas_tars(site, tmp_path):
    root, url = site
    folder = write_family_encoder(tmp_path / "roberta", "roberta")
    make_tar(root / "tanda_roberta_base_asnq.tar", folder)
    assert (
        encoders.main(["tanda-roberta-base", "--out", str(tmp_path / "out"), "--mirror", url]) == 0
    )
    assert (
        load_classifier(tmp_path / "out" / "tanda-roberta-base.tar").config.family.name == "roberta"
    )
    assert (
        encoders.main(
            [
                "tanda-roberta-base",
                "--out",
                str(tmp_path / "two"),
                "--archive",
                str(root / "tanda_roberta_base_asnq.tar"),
            ]
        )
        == 0
    )
    assert (
        load_classifier(tmp_path / "two" / "tanda-roberta-base.tar").config.family.name == "roberta"
    )


def test_archives_stand_in_for_downloads(tmp_path, capsys):
    folder = write_family_encoder(tmp_path / "electra", "electra")
    for archive in (folder, make_tar(tmp_path / "x.tar.gz", folder)):
        assert (
            encoders.main(
                ["electra-base", "--out", str(tmp_path / "out"), "--archive", str(archive)]
            )
            == 0
        )
        assert load_backbone(tmp_path / "out" / "electra-base").config.family.name == "electra"
        shutil.rmtree(tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        for name in ("a", "b"):
            member = tarfile.TarInfo(f"../{name}/config.json")
            member.size = 2
            tar.addfile(member, io.BytesIO(b"{}"))
    (tmp_path / "text").write_text("no tar")
    for archive, message in (
        ("empty", "holds no config.json"),
        ("twice.tar", "holds config.json twice"),
        ("text", "cannot be read"),
        ("absent", "cannot be read"),
    ):
        assert (
            encoders.main(
                [
                    "electra-base",
                    "--out",
                    str(tmp_path / "out"),
                    "--archive",
                    str(tmp_path / archive),
                ]
            )
            == 2
        )
        err = capsys.readouterr().err
        assert (
            message in err
            and len(err.splitlines()) == 1
            and not (tmp_path / "out" / "electra-base").exists()
        )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["gpt"], "expected one of roberta-base, "),
        ([], "none given"),
        (["bert-base", "bert-wwm", "--archive", "x"], "one name for one archive"),
    ],
)
def test_wrong_names(arguments, message):
    done = subprocess.run(
        [sys.executable, ROOT / "data_scripts" / "encoders.py", *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_names_are_listed(capsys):
    assert encoders.main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in (
        "roberta-base",
        "roberta-large",
        "electra-base",
        "electra-large",
        "albert-base",
        "albert-xxlarge",
        "bert-base",
        "bert-wwm",
        "tanda-roberta-base",
        "tanda-roberta-large-wikiqa",
        "tanda-bert-base-trec",
    ):
        assert name in out
    assert "tanda-roberta-base-wikiqa" not in out  # was not released
