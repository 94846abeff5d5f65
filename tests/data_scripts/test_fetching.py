"""The download of encoders, from a server on this machine with the official paths."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import pathlib
import shutil
import tarfile
import threading

import asnq
import encoders
import fetching
import pytest
import trecqa
from conftest import make_tar, write_family_encoder

from wqa.data import read_questions
from wqa.errors import DataError, StorageError
from wqa.pretrained import load_backbone
from wqa.systems.checkpoints import load_classifier


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files and ranges of them.

    raw/ has pointers instead of large files, no_ranges/ no ranges, broken/ five bytes too few.
    """

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
        if "/no_ranges/" in self.path:
            start = 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        missing = 5 if "/broken/" in self.path else 0
        self.send_header("Content-Length", str(len(content) - start + missing))
        if path.suffix == ".html":
            self.send_header("Content-Type", "text/html; charset=utf-8")
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


def write_copies(root, **copies):
    """Write a file of the same name to several folders of the site."""
    for folder, content in copies.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_bytes(content)


def test_addresses_are_tried_in_turn(site, tmp_path, capsys):
    root, url = site
    write_copies(root, other=b"another file", right=b"the file")
    (root / "page.html").write_text("moved")
    digest, target = hashlib.sha256(b"the file").hexdigest(), tmp_path / "out" / "file"
    closed = "http://127.0.0.1:9/file"
    urls = [closed, f"{url}/absent/file", f"{url}/page.html", f"{url}/other/file"]
    assert fetching.download([*urls, f"{url}/right/file", closed], target, digest) == digest
    assert target.read_bytes() == b"the file"
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    reasons = ("refused", "404", "a page in place of the file", "SHA-256 ")
    assert len(notes) == len(urls)
    for note, address, reason in zip(notes, urls, reasons):
        assert note.startswith(f"note: {address}: ") and reason in note


def test_an_error_says_how_each_address_failed(site, tmp_path, capsys):
    root, url = site
    write_copies(root, other=b"another file")
    urls = [f"{url}/absent/file", f"{url}/other/file"]
    with pytest.raises(DataError) as raised:
        fetching.download(urls, tmp_path / "file", "0" * 64, "--splits")
    digest = hashlib.sha256(b"another file").hexdigest()
    for part in (f"{urls[0]}: cannot be fetched (HTTP Error 404", f"{urls[1]}: SHA-256 {digest}"):
        assert part in str(raised.value)
    assert "--splits" in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_download_goes_on_from_its_own_address(site, tmp_path):
    root, url = site
    write_copies(root, second=b"0123456789")
    urls = [f"{url}/first/file", f"{url}/second/file"]
    first, second = (fetching._part(tmp_path / "file", address) for address in urls)
    first.write_bytes(b"abcde")
    second.write_bytes(b"0123")
    fetching.download(urls, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert [kept for _, kept in Handler.requests] == ["bytes=5-", "bytes=4-"]
    assert not first.exists() and not second.exists()


def test_a_server_that_breaks_off_gives_no_file(site, tmp_path, capsys):
    root, url = site
    write_copies(root, broken=b"01234", whole=b"0123456789")
    with pytest.raises(DataError, match="5 bytes are missing; run the command again"):
        fetching.download(f"{url}/broken/file", tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert (tmp_path / ".file.part").read_bytes() == b"01234"
    fetching.download([f"{url}/broken/file", f"{url}/whole/file"], tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert "5 bytes are missing" in capsys.readouterr().err


def test_a_server_without_ranges_sends_the_whole_file(site, tmp_path):
    root, url = site
    write_copies(root, no_ranges=b"0123456789")
    (tmp_path / ".file.part").write_bytes(b"0123")
    fetching.download(f"{url}/no_ranges/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert [kept for _, kept in Handler.requests] == ["bytes=4-"]


def test_a_full_disk_is_not_another_address_s_turn(site, tmp_path, monkeypatch):
    root, url = site
    write_copies(root, first=b"x", second=b"x")

    def full(*_):
        raise StorageError(tmp_path, "no space", "more")

    monkeypatch.setattr(fetching, "require_space", full)
    with pytest.raises(StorageError, match="no space"):
        fetching.download([f"{url}/first/file", f"{url}/second/file"], tmp_path / "file")
    assert len(Handler.requests) == 1


def test_asnq_comes_from_the_address_that_has_it(site, tmp_path, monkeypatch, capsys):
    root, url = site
    tables = {"train": "t one\ta\t4\n", "dev": "d one\tx\t4\ne one\ty\t1\n"}
    lists = {"dev": b"d one\n", "test": b"e one\n", "train": b"t one\n"}
    with tarfile.open(root / "asnq.tar", "w") as tar:
        for name, text in tables.items():
            member = tarfile.TarInfo(f"data/asnq/{name}.tsv")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    for folder, content in (("early", b"both lists\n"), ("now", None)):
        (root / folder).mkdir()
        for split, text in lists.items():
            (root / folder / f"unique.{split}").write_bytes(content or text)
    digests = {split: hashlib.sha256(text).hexdigest() for split, text in lists.items()}
    monkeypatch.setattr(asnq, "LISTS", digests)
    monkeypatch.setattr(asnq, "URLS", [f"{url}/moved/asnq.tar", f"{url}/asnq.tar"])
    folders = [f"{url}/gone", f"{url}/early", f"{url}/now"]
    monkeypatch.setattr(asnq, "LISTS_URLS", folders)
    out = tmp_path / "out"
    assert asnq.main(["--out", str(out)]) == 0
    assert [question.question for question in read_questions(out / "test.jsonl")] == ["e one"]
    notes = capsys.readouterr().err
    for address in ("moved/asnq.tar", "gone/unique.dev", "early/unique.train"):
        assert f"note: {url}/{address}: " in notes
    monkeypatch.setattr(asnq, "LISTS_URLS", folders[:2])
    assert asnq.main(["--out", str(out)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: unique.dev: no address gives it: ") and "--splits" in error
    assert f"{folders[0]}/unique.dev: cannot" in error and f"{folders[1]}/unique.dev: SHA" in error


def pseudo_xml(name, tags_of):
    """Pseudo-XML of a question for each sequence of tags; its sentences name their file."""
    text = ""
    for number, tags in enumerate(tags_of, 1):
        text += f"<QApairs id='{number}.1'>\n<question>\nwho\tis\t{number}\t?\n</question>\n"
        for tag in tags:
            text += f"<{tag}>\nHe\tis\tof\t{name}\t.\nPRP\tVBZ\tIN\tNN\t.\n</{tag}>\n"
        text += "</QApairs>\n"
    return text


def test_the_download_of_trecqa_has_both_dev_sets_and_the_test_set(
    site, tmp_path, monkeypatch, capsys
):
    root, url = site
    both, positive = ("positive", "negative"), ("positive",)
    test = [() if number % 20 == 6 else both for number in range(68)]
    files = {
        "answer/train2393.cleanup.xml.gz": [both],
        "data/train.xml": [both],
        "data/dev.xml": [both] * 4,
        "data/dev-less-than-40.xml": [both] * 3 + [()],
        "data/test.xml": [positive],
        "data/test-less-than-40.xml": [*test, *[positive] * 31, ()],
    }
    for name, tags_of in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        raw = pseudo_xml(pathlib.PurePath(name).name, tags_of).encode()
        (root / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    monkeypatch.setattr(trecqa, "URL", f"{url}/")
    out = tmp_path / "out"
    assert trecqa.main(["--out", str(out)]) == 0
    counts = json.loads((out / "stats.json").read_text())
    for split, questions, skipped, clean in (
        ("dev", 4, 0, 4),
        ("dev-40", 3, 1, 3),
        ("test", 95, 5, 64),
    ):
        assert counts[split]["all"]["questions"] == questions
        assert counts[split]["all"]["without_candidates"] == skipped
        written = list(read_questions(out / f"{split}-clean.jsonl"))
        assert len(written) == counts[split]["clean"]["questions"] == clean
        source = pathlib.PurePath(trecqa.PSEUDO_XML[split]).name
        assert source in written[0].texts[0]
    ids = [question.id for question in read_questions(out / "test.jsonl")]
    assert ids[5:7] == ["test-6", "test-8"] and ids[-1] == "test-99"
    shown, notes = capsys.readouterr()
    assert "5 without a candidate skipped" in shown and "1 without a candidate skipped" in shown
    assert (
        "5 of 100 questions have no candidate and are skipped, the first of them test-7: " in notes
    )
    assert "note: test, clean: 64 questions with 128 candidates; published are 68" in notes


def test_tandas_tars(site, tmp_path, monkeypatch, capsys):
    """From the second address, from a mirror and from an archive."""
    root, url = site
    name = "tanda_roberta_base_asnq.tar"
    (root / "second" / "models").mkdir(parents=True)
    folder = write_family_encoder(tmp_path / "roberta", "roberta")
    for path in (root / "second" / "models" / name, root / name):
        make_tar(path, folder)
    monkeypatch.setattr(encoders, "TANDA", (f"{url}/first", f"{url}/second"))
    for number, options in enumerate(([], ["--mirror", url], ["--archive", str(root / name)])):
        out = tmp_path / str(number)
        assert encoders.main(["tanda-roberta-base", "--out", str(out), *options]) == 0
        [tar] = out.glob("*.tar")
        assert load_classifier(tar).config.family.name == "roberta"
    assert f"note: {url}/first/models/{name}: " in capsys.readouterr().err


def test_archives_stand_in_for_downloads(tmp_path, capsys):
    folder = write_family_encoder(tmp_path / "electra", "electra")
    command = ["electra-base", "--out", str(tmp_path / "out"), "--archive"]
    for archive in (folder, make_tar(tmp_path / "x.tar.gz", folder)):
        assert encoders.main([*command, str(archive)]) == 0
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
        assert encoders.main([*command, str(tmp_path / archive)]) == 2
        err = capsys.readouterr().err
        assert message in err and len(err.splitlines()) == 1
        assert not (tmp_path / "out" / "electra-base").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["gpt"], "expected one of roberta-base, "),
        ([], "none given"),
        (["bert-base", "bert-wwm", "--archive", "x"], "one name for one archive"),
    ],
)
def test_wrong_names(arguments, message, capsys):
    try:
        status = encoders.main(arguments)
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2 and message in error and len(error.splitlines()) == 1


def test_names_are_listed(capsys):
    assert encoders.main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in ("roberta-base", "bert-wwm", "tanda-roberta-large-wikiqa", "tanda-bert-base-trec"):
        assert name in out
    assert "tanda-roberta-base-wikiqa" not in out  # was not released
