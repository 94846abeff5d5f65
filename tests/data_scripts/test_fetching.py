"""Downloads, from a server on this machine with the official paths."""

import functools
import gzip
import hashlib
import http.server
import json
import pathlib
import threading
import types

import asnq
import encoders
import pytest
import releases
import trecqa
from conftest import ROOT, make_tar, script_result, write_family_encoder
from test_paragraph_corpora import tar_of

from wqa.data import read_questions
from wqa.pretrained import load_backbone
from wqa.systems.checkpoints import load_classifier


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files; broken/ has five bytes too few."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = pathlib.Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        self.send_response(200)
        missing = 5 if "/broken/" in self.path else 0
        self.send_header("Content-Length", str(len(content) + missing))
        if path.suffix == ".html":
            self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def site(tmp_path):
    root = tmp_path / "site"
    root.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(root))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def write_copies(root, **copies):
    """Write a file of the same name to several folders of the site."""
    for folder, content in copies.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_bytes(content)


def test_addresses_are_tried_in_turn(site, tmp_path, capsys):
    root, url = site
    write_copies(root, other=b"another file", broken=b"the f", right=b"the file")
    (root / "page.html").write_text("moved")
    digest, target = hashlib.sha256(b"the file").hexdigest(), tmp_path / "out" / "file"
    urls = ["http://127.0.0.1:9/file"]
    urls += [f"{url}/{name}" for name in ("absent/file", "page.html", "other/file", "broken/file")]
    assert releases.download([*urls, f"{url}/right/file"], target, digest) == digest
    assert target.read_bytes() == b"the file"
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    reasons = ("refused", "404", "a page in place of the file", "SHA-256 ", "5 bytes are missing")
    assert len(notes) == len(urls)
    for note, address, reason in zip(notes, urls, reasons):
        assert note.startswith(f"note: {address}: ") and reason in note


def test_asnq_comes_from_the_address_that_has_it(site, tmp_path, monkeypatch, capsys):
    root, url = site
    dev = b"d one\tx\t4\ne one\ty\t1\n"
    tables = {"data/asnq/train.tsv": b"t one\ta\t4\n", "data/asnq/dev.tsv": dev}
    lists = {"dev": b"d one\n", "test": b"e one\n"}
    (root / "asnq.tar").write_bytes(tar_of(tables))
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
    for address in ("moved/asnq.tar", "gone/unique.dev", "early/unique.test"):
        assert f"note: {url}/{address}: " in notes
    (root / "asnq.tar").unlink()  # what was fetched is taken again
    monkeypatch.setattr(asnq, "LISTS_URLS", folders[:2])
    assert asnq.main(["--out", str(out)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: unique.dev: ") and "--splits" in error


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
        "train2393.cleanup.xml.gz": [both],
        "train.xml": [both],
        "dev.xml": [both] * 4,
        "dev-less-than-40.xml": [both] * 3 + [()],
        "test-less-than-40.xml": [*test, *[positive] * 31, ()],
    }
    for name, tags_of in files.items():
        raw = pseudo_xml(name, tags_of).encode()
        (root / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert set(trecqa.DOWNLOADS) == set(files)
    for name in files:
        monkeypatch.setitem(trecqa.DOWNLOADS, name, (f"{url}/{name}", ""))
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
    notes = capsys.readouterr().err
    assert "5 of 100 questions have no candidate and are skipped" in notes
    assert "note: test, clean: 64 questions with 128 candidates; published are 68" in notes


def test_tandas_tars_have_a_second_address(site, tmp_path, monkeypatch, capsys):
    root, url = site
    (root / "second" / "models").mkdir(parents=True)
    folder = write_family_encoder(tmp_path / "roberta", "roberta")
    make_tar(root / "second" / "models" / "tanda_roberta_base_asnq.tar", folder)
    monkeypatch.setattr(encoders, "TANDA", (f"{url}/first", f"{url}/second"))
    assert encoders.main(["tanda-roberta-base", "--out", str(tmp_path / "out")]) == 0
    assert f"note: {url}/first/models/tanda_roberta_base_asnq.tar: " in capsys.readouterr().err
    loaded = load_classifier(tmp_path / "out" / "tanda-roberta-base.tar")
    assert loaded.config.family.name == "roberta"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder of repositories that stands for the hub."""
    root = tmp_path / "hub"

    def model_info(self, repository, files_metadata):
        files = []
        for path in sorted((root / repository).iterdir()):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lfs = {"sha256": digest} if path.suffix == ".safetensors" else None
            files.append(types.SimpleNamespace(rfilename=path.name, lfs=lfs))
        return types.SimpleNamespace(siblings=files)

    monkeypatch.setattr(encoders.HfApi, "model_info", model_info)
    monkeypatch.setattr(
        encoders, "hf_hub_download", lambda repository, name: root / repository / name
    )
    return root


@pytest.mark.parametrize("name, family", [("roberta-base", "roberta"), ("albert-base", "albert")])
def test_a_hub_encoder_comes_whole_and_loads(hub, tmp_path, name, family, capsys):
    folder = write_family_encoder(hub / encoders.ENCODERS[name][0], family)
    arguments = [name, "--out", str(tmp_path / "out")]
    assert encoders.main(arguments) == 0
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert f"model.safetensors SHA-256 {digest}" in capsys.readouterr().out
    assert load_backbone(tmp_path / "out" / name).config.family.name == family
    assert encoders.main(arguments) == 0
    assert "is there already" in capsys.readouterr().out


def test_a_hub_encoder_that_is_not_whole_leaves_nothing(hub, tmp_path, monkeypatch, capsys):
    folder = write_family_encoder(hub / encoders.ENCODERS["roberta-base"][0], "roberta")
    arguments = ["roberta-base", "--out", str(tmp_path / "out")]
    other = tmp_path / "other"
    other.write_text("another file")
    monkeypatch.setattr(encoders, "hf_hub_download", lambda *_: other)
    assert encoders.main(arguments) == 2
    (folder / "model.safetensors").unlink()
    assert encoders.main(arguments) == 2
    (folder / "config.json").unlink()
    folder.rename(tmp_path / "away")
    assert encoders.main(arguments) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    for error, message in zip(errors, ("SHA-256", "no weights", "cannot be fetched")):
        assert error.startswith("error: ") and message in error
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("arguments, message", [(["gpt"], "gpt"), ([], "none given")])
def test_wrong_names(arguments, message):
    status, _, error = script_result(ROOT / "data_scripts" / "encoders.py", *arguments)
    assert status == 2 and message in error and len(error.splitlines()) == 1
    assert "one of roberta-base, " in error
