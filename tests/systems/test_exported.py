"""Exported folders rank as their runs do, also in a process that cannot import MXNet."""

import json
import pathlib
import shutil

import mxnet as mx
import numpy as np
import onnxruntime
import pytest
from conftest import ROOT, dev_run, run_python

from wqa import load_ranker, read_questions, save_run
from wqa.data import Candidate, Question, builtin_path
from wqa.data.documents import write_documents
from wqa.errors import DeviceError, OptionError, RunDirectoryError
from wqa.inference.document_cache import DocumentCache
from wqa.pretrained import read_backbone_config
from wqa.systems.encode import encode_documents
from wqa.systems.export_onnx import export_onnx
from wqa.systems.load import reads_cache
from wqa.systems.registry import build_network, read_tuned
from wqa.text import load_tokenizer

#: Runs commands, which it is given as JSON, in a process that cannot import MXNet or GluonNLP.
BLOCKER = """
import json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mxnet", "gluonnlp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
sys.path.append(sys.argv[1])
from command_server import captured
from wqa.cli import main
print(json.dumps([captured(main, words) for words in json.loads(sys.argv[2])]))
"""
DROPS = [
    {},
    {"drop_ratio": 0.3},
    {"drop_ratio": [0.5, 0, 0.5]},
    {"keep": [5, 2, None]},
    {"drop_ratio": 0.4, "pool": "batch", "pool_size": 4},
    {"drop_ratio": 0.5, "batch_tokens": 100},
]


@pytest.fixture(scope="module")
def questions():
    return list(read_questions(builtin_path("dev")))[:20]


def without_mxnet(*commands):
    """Exit status, output and messages of each command where MXNet cannot be imported."""
    words = json.dumps([list(map(str, command)) for command in commands])
    done = run_python("-c", BLOCKER, ROOT / "tests", words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rank(ranker, question):
    return ranker.rank(question.question, question.texts)


def assert_same(rankings, expected):
    for ranking, other in zip(rankings, expected):
        assert ranking.order.tolist() == other.order.tolist()
        assert ranking.exits.tolist() == other.exits.tolist()
        assert ranking.truncated.tolist() == other.truncated.tolist()
        np.testing.assert_allclose(ranking.scores, other.scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(ranking.probabilities, other.probabilities, atol=1e-5)
        assert ranking.cost.relative == other.cost.relative


@pytest.mark.parametrize("drops", DROPS)
def test_an_exported_cascade_ranks_as_its_run(exported, tiny_run, questions, drops):
    ranker = load_ranker(exported, **drops)
    expected = load_ranker(tiny_run, engine="mxnet", **drops)
    assert ranker.capabilities == expected.capabilities
    assert_same(list(ranker.rank_all(questions)), list(expected.rank_all(questions)))


def test_a_run_is_exported_where_its_engine_is_onnxruntime(tiny_run, questions):
    ranker = load_ranker(tiny_run, drop_ratio=0.5, engine="onnxruntime", threads=1)
    expected = load_ranker(tiny_run, drop_ratio=0.5, engine="mxnet")
    assert_same([rank(ranker, questions[0])], [rank(expected, questions[0])])
    assert not ranker.network.folder.exists()


def test_commands_rank_without_mxnet(exported, tiny_run, tmp_path, run_main):
    candidates, dev = tmp_path / "candidates.txt", builtin_path("dev")
    candidates.write_text("Ice melts.\nThe moon.\nA cave is dark.\nCaves form in ice.\n")
    question = ["--question", "how are caves formed ?", "--candidates", candidates]
    question += ["--drop-ratio", "0.5", "--json", "-"]
    figures = ["--data", dev, "--drop-ratio", "0.3", "--json", "-"]
    done = without_mxnet(
        ["rank", exported, *question],
        ["evaluate", exported, *figures],
        ["score", exported, "--data", dev, "--out", tmp_path / "scores"],
        ["bench", exported, "--data", dev, "--rounds", "1"],
    )
    assert [status for status, _, _ in done] == [0] * 4, done
    ours, expected = json.loads(done[0][1]), json.loads(run_main("rank", tiny_run, *question)[1])
    for candidate, other in zip(ours["ranking"], expected["ranking"]):
        assert (candidate["index"], candidate["exit"]) == (other["index"], other["exit"])
        assert candidate["score"] == pytest.approx(other["score"], abs=1e-5)
    expected = json.loads(run_main("evaluate", tiny_run, *figures)[1])
    ours = {**json.loads(done[1][1]), "seconds": expected["seconds"]}
    assert ours == pytest.approx(expected)
    assert "questions" in done[2][1]


def test_commands_that_need_mxnet_say_so(tiny_run, tmp_path):
    candidates, dev = tmp_path / "candidates.txt", builtin_path("dev")
    candidates.write_text("A cave.\n")
    for done in without_mxnet(
        ["rank", tiny_run, "--question", "q", "--candidates", candidates],
        ["rank", "minilm", "--question", "q", "--candidates", candidates],
        ["export", tiny_run, tmp_path / "out", "--format", "onnx"],
        ["quantize", tiny_run, "--data", dev],
        ["train", "cascade", "--encoder", tiny_run, "--train", dev, "--out", tmp_path / "run"],
        ["convert", tiny_run, tmp_path / "out"],
        ["verify", tiny_run, "--claim", "q", "--evidence", candidates],
    ):
        status, _, error = done
        assert status == 2 and error.startswith("error: mxnet: MXNet cannot be imported"), done
        assert error.count("\n") == 1


def test_tuned_ratios_and_the_calibration_are_those_of_the_run(tiny_run, tmp_path, questions):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "tuned.json").write_text(json.dumps({"drop_ratio": [0.5, 0.25, 0.0]}))
    config = json.loads((run / "config.json").read_text())
    fitted = {"model_sha256": config["sha256"]["model.params"], "threshold": 0.4}
    (run / "calibration.json").write_text(json.dumps({**fitted, "temperatures": [2, 3, 4]}))
    export_onnx(run, tmp_path / "out")
    ranker = load_ranker(tmp_path / "out", drop_ratio="tuned")
    expected = load_ranker(run, drop_ratio="tuned", engine="mxnet")
    assert ranker.calibration == expected.calibration
    assert_same([rank(ranker, questions[0])], [rank(expected, questions[0])])
    (tmp_path / "out" / "tuned.json").write_text(json.dumps({"drop_ratio": [0.1, 0.1, 0.0]}))
    assert read_tuned(tmp_path / "out") == [0.1, 0.1, 0.0]


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"ctx": "gpu:0"}, DeviceError, "gpu:0, but ONNX Runtime has"),
        ({"ctx": "cpu:0-1"}, OptionError, "2 devices"),
        ({"precision": "bfloat16"}, OptionError, "bfloat16 for exported graphs"),
        ({"engine": "onednn"}, OptionError, "onednn for exported graphs"),
        ({"drop_ratio": "tuned"}, RunDirectoryError, "tuned.json: the file is missing"),
        ({"cache": "documents"}, OptionError, "reads no encodings of documents"),
    ],
)
def test_options_that_do_not_fit_are_refused(exported, options, error, message):
    with pytest.raises(error, match=message):
        load_ranker(exported, **options)
    assert not reads_cache(exported)


def changed(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1] + b" ")


@pytest.mark.parametrize("name", ["weights.bin", "exit_2.onnx", "tokenizer.json"])
def test_a_folder_that_has_changed_is_refused(exported, tmp_path, name):
    folder = shutil.copytree(exported, tmp_path / "copy")
    changed(folder, name)
    with pytest.raises(RunDirectoryError, match=f"{name}: has changed"):
        load_ranker(folder)
    (folder / name).unlink()
    with pytest.raises(RunDirectoryError, match=f"{name}: the file is missing"):
        load_ranker(folder)


def test_a_description_that_does_not_fit_is_refused(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "copy")
    path = folder / "config.json"
    values = json.loads(path.read_text())
    for change, message in (
        ({"format": "wqa onnx 2"}, "the format 'wqa onnx 2'"),
        ({"max_length": 3}, "has changed"),
        ({"sha256": {}, "inputs": {"width": 3}}, "inputs that do not fit"),
        ({"sha256": {}, "computes": "spans"}, "a reader of spans"),
        ({"sha256": {}, "computes": "tones"}, "the format"),
        ({"sha256": {}, "color": "red"}, "unknown field 'color'"),
        ({"sha256": {}, "stage_work": [1.0]}, "of different lengths"),
        ({"sha256": {}, "calibration": {"temperatures": "x"}}, "field calibration"),
    ):
        path.write_text(json.dumps({**values, **change}))
        with pytest.raises(RunDirectoryError, match=message):
            load_ranker(folder)


@pytest.fixture
def saved(tiny_encoder, tmp_path):
    """Function that saves a random network of a system as a run, and exports it too."""

    def save(system, **options):
        mx.random.seed(3)
        network = build_network(system, read_backbone_config(tiny_encoder), **options)
        network.initialize(mx.init.Normal(0.2))
        run, out = tmp_path / "run", tmp_path / "out"
        save_run(network, network.text_inputs(load_tokenizer(tiny_encoder), 40), run)
        export_onnx(run, out)
        return run, out

    return save


@pytest.mark.parametrize(
    "system, options",
    [
        ("pairwise", {}),
        ("mhs", {}),
        ("mspp", {"k": 3, "segment_length": 24, "head": "AE_k"}),
        ("mspp", {"k": 1, "segment_length": 24, "head": "IE_k", "positions": "slots"}),
        ("dcbert", {"question_length": 24, "layers": 2, "exits": (1, 2)}),
        ("dcbert", {"question_length": 24, "layers": 2, "classifier": "comparison"}),
        ("dcbert", {"question_length": 24, "interaction": "linear"}),
        ("dcbert", {"question_length": 24, "interaction": "lstm"}),
        ("similarity", {"question_length": 24}),
        ("similarity", {"question_length": 24, "interaction": "cosine"}),
    ],
)
def test_every_system_ranks_from_its_export(saved, questions, system, options):
    run, out = saved(system, **options)
    for drops in ({}, {"drop_ratio": 0.5}):
        ranker, expected = load_ranker(out, **drops), load_ranker(run, engine="mxnet", **drops)
        assert ranker.capabilities == expected.capabilities
        rankings = list(expected.rank_all(questions))
        assert_same(list(ranker.rank_all(questions)), rankings)
        assert len({round(score, 3) for score in rankings[0].scores}) > 2


@pytest.mark.parametrize("recurrent", ["none", "birnn"])
def test_lists_rank_from_their_export(tiny_words, tmp_path, questions, recurrent):
    settings = {"max_updates": 1, "warmup_updates": 0, "tokens_per_batch": 400}
    options = {"words": str(tiny_words), "recurrent": recurrent, **settings}
    dev_run("cosinet", tmp_path / "run", **options)
    export_onnx(tmp_path / "run", tmp_path / "out")
    ranker = load_ranker(tmp_path / "out", batch_tokens=500)
    expected = load_ranker(tmp_path / "run", engine="mxnet")
    assert ranker.capabilities == expected.capabilities
    lists = [*questions, Question("Q", "why ?", (Candidate(" "), Candidate("a cave")))]
    assert_same(list(ranker.rank_all(lists)), list(expected.rank_all(lists)))


def test_an_export_reads_a_cache_of_its_run(dcbert_run, encoded_documents, tmp_path):
    export_onnx(dcbert_run, tmp_path / "out")
    documents = tmp_path / "documents.jsonl"
    write_documents(documents, encoded_documents)
    encode_documents(dcbert_run, documents, tmp_path / "cache", store="float16")
    assert reads_cache(tmp_path / "out")
    candidates = [Candidate(document.text, id=document.id) for document in encoded_documents]
    question = Question("Q", "why is the sky blue ?", tuple(candidates))
    rankings = []
    for run in (tmp_path / "out", dcbert_run):
        cache = DocumentCache(tmp_path / "cache")
        rankings += load_ranker(run, cache=cache).rank_all([question])
        # The first document is in the cache with its title, which the candidate lacks.
        assert (cache.documents, cache.missing) == (len(candidates), 1)
    assert_same(rankings[:1], rankings[1:])


def test_readers_and_verifiers_are_not_ranked_by(tiny_encoder, saved):
    _, out = saved("reader")
    with pytest.raises(RunDirectoryError, match="an export of the system reader, which is a rea"):
        load_ranker(out)


class Session:
    """A session of ONNX Runtime on a GPU."""

    opened = []

    def __init__(self, path, options, providers, provider_options):
        self.opened.append((pathlib.Path(path).stem, providers, provider_options))
        self._providers = providers

    def get_providers(self):
        return self._providers


def test_a_gpu_is_asked_of_cuda_by_its_number(exported, monkeypatch):
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    load_ranker(exported, ctx="gpu:1")
    expected = [["CUDAExecutionProvider"], [{"device_id": 1}]]
    assert Session.opened == [(f"exit_{layer}", *expected) for layer in (1, 2, 3)]
