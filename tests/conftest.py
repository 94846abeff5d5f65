"""Fixtures: a tiny encoder directory, a tiny trained run, real corpora where they are present.

And marks for tests that depend on the processor: `needs_onednn`, `needs_precision`.
"""

import contextlib
import dataclasses
import functools
import gzip
import importlib.util
import json
import os
import pathlib
import resource
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import pytest
from hypothesis import settings
from safetensors.numpy import save_file

from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import builtin_path

settings.register_profile("wqa", deadline=None, derandomize=True)
settings.load_profile("wqa")

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before the hub's library is imported

ROOT = pathlib.Path(__file__).parent.parent
DATA = pathlib.Path(__file__).parent / "files"
#: Sizes of networks with random parameters.
SMALL = BackboneConfig(
    vocab_size=200, units=16, hidden_size=32, num_layers=4, num_heads=2, max_positions=64
)
sys.path.insert(0, str(ROOT / "data_scripts"))  # the scripts import one another
sys.path.insert(0, str(ROOT / "recipes"))
# Tests in different folders import one another's helpers.
sys.path += sorted({str(path.parent) for path in (ROOT / "tests").rglob("test_*.py")})

from command_server import captured, run_script  # noqa: E402
from tiny_encoder import write_tiny_encoder  # noqa: E402

#: Where it is set, the oneDNN package is hidden from the tests and from the processes they start.
HIDE_ONEDNN = "WQA_TESTS_HIDE_ONEDNN"
#: Holds the module that hides it, which Python imports at its start.
HIDDEN = ROOT / "tests" / "hidden"
if os.environ.get(HIDE_ONEDNN):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(HIDDEN), os.environ.get("PYTHONPATH")))
    )
    runpy.run_path(str(HIDDEN / "sitecustomize.py"))

#: Marks a test that needs oneDNN's library. It is skipped where the library is missing.
needs_onednn = pytest.mark.needs_onednn
#: Marks a test, or a case by `pytest.param(..., marks=...)`, that computes in a precision by
#: oneDNN: ``@needs_precision("int8")``. It is skipped where this machine does not.
needs_precision = pytest.mark.needs_precision
#: Marks a test that writes to a device that is always full.
needs_full_device = pytest.mark.skipif(
    not pathlib.Path("/dev/full").is_char_device(), reason="/dev/full is no device here"
)

SHARED = pathlib.Path(os.environ.get("WQA_SHARED_DATA", ROOT.parent / "shared" / "data"))

#: Families of encoders at a tiny size, and the stored vocabulary that each takes.
FAMILIES = {
    "bert": "uncased",
    "roberta": "byte_level",
    "mpnet": "byte_level",
    "distilbert": "uncased",
    "electra": "cased",
    "electra_small": "uncased",
    "albert": "sentencepiece",
}


@pytest.fixture(autouse=True, scope="session")
def printed_messages():
    """Messages of the library are printed, as by the command line, also where tests call it."""
    from wqa.io.progress import messages_on_stderr

    with messages_on_stderr():
        yield


@functools.lru_cache(maxsize=None)
def lacks(precision="float32"):
    """Say what this machine lacks for a precision.

    Parameters
    ----------
    precision : {"float32", "bfloat16", "int8"}
        The precision, by oneDNN. In float32 only its library is needed.

    Returns
    -------
    str
        The message of the error that the package raises, empty where nothing is missing.
    """
    from wqa.engines.onednn.library import check_precision, instruction_set
    from wqa.errors import MissingDependency, PrecisionError

    try:
        check_precision(precision)
        instruction_set()  # loads the library in float32 too
    except (MissingDependency, PrecisionError) as error:
        return str(error)
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Give the marker onednn, which `make test` selects by, to the tests that need a precision."""
    for item in items:
        if any(item.iter_markers("needs_onednn")) or any(item.iter_markers("needs_precision")):
            item.add_marker("onednn")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip a test that needs what this machine lacks."""
    precisions = [name for mark in item.iter_markers("needs_precision") for name in mark.args]
    if any(item.iter_markers("needs_onednn")):
        precisions.append("float32")
    for precision in precisions:
        if lacks(precision):
            pytest.skip(lacks(precision))


def nightly(names, later):
    """Cases of a parametrized test, of which `make test` leaves some to `make nightly`.

    Parameters
    ----------
    names : iterable of str
        All cases, which are names.
    later : set of str
        Those that only `make nightly` runs.

    Returns
    -------
    list
        The cases for ``pytest.mark.parametrize``.
    """
    marks = {name: [pytest.mark.nightly] if name in later else [] for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


def child_environment(**variables):
    """Environment of a process that a test starts.

    Parameters
    ----------
    **variables : str
        Variables to set besides those of this process.

    Returns
    -------
    dict of str to str
        The environment, with the package importable from any folder. Modules are not compiled into
        files, which a limit on the size of files would cut off.
    """
    folders = filter(None, (str(ROOT), str(ROOT / "recipes"), os.environ.get("PYTHONPATH")))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    if "WQA_TRACEBACK" not in variables:
        environment.pop("WQA_TRACEBACK", None)
    return environment


def run_python(*arguments, variables=(), **options):
    """Run Python in a process of its own, with variables of its environment; returns its end."""
    options = {"capture_output": True, "text": True, "timeout": 300, **options}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=child_environment(**dict(variables)), **options)


def load_module(path):
    """A Python file, which is in no package, as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script_result(script, *arguments):
    """Exit status, output and messages of a Python script, which runs in this process."""
    return captured(run_script, str(script), *map(str, arguments))


def wqa(*arguments):
    """Exit status of a command line, which runs in this process."""
    from wqa.cli import main

    return main(list(map(str, arguments)))


@pytest.fixture
def run_main(capsys):
    """Run a command line in this process; its exit status, output and messages are returned.

    The first argument may be the module of a script.
    """

    def run(first, *arguments):
        capsys.readouterr()
        if hasattr(first, "main"):
            status = first.main(list(map(str, arguments)))
        else:
            status = wqa(first, *arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def refusal(run_main):
    """The one line of a command that is refused, after notes; it writes no counts to ``out``."""

    def run(*arguments, out=None):
        output = () if out is None else ("--out", out)
        status, _, printed = run_main(*arguments, *output)
        assert out is None or not (out / "stats.json").exists()
        lines = [line for line in printed.splitlines() if line.startswith("error: ")]
        assert (status, len(lines)) == (2, 1) and "Traceback" not in printed, printed
        return lines[0]

    return run


def read_metrics(run):
    """Lines of a run's metrics.jsonl, without what the clock decides."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("pairs_per_second", None)
    return lines


def logged(run, name):
    """Values of a name in the lines of metrics.jsonl that have it, such as "loss" or "dev"."""
    return [line[name] for line in read_metrics(run) if name in line]


def values_of(block):
    """Parameters of a block by name, as arrays."""
    parameters = block._collect_params_with_prefix().items()
    return {name: item.data(item.list_ctx()[0]).asnumpy() for name, item in parameters}


def gradients_of(block):
    """Gradients of a block's parameters by name, as arrays."""
    parameters = block._collect_params_with_prefix().items()
    return {name: item.grad().asnumpy() for name, item in parameters}


def assert_same(first, second):
    """Two blocks have the same parameters, to the bit."""
    first, second = values_of(first), values_of(second)
    assert list(first) == list(second)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def contents(folder):
    """Bytes of all files of a folder by their paths."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextlib.contextmanager
def limited_file_size(size):
    """Let this process write no file beyond a size in bytes, as on a full disk."""
    limits, compiled = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a module that is imported meanwhile would be cut off
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = compiled


def write_family_encoder(folder, family):
    """A Hugging Face directory of a family, random weights in the reference's names."""
    import mxnet as mx

    from wqa.pretrained.configs import to_huggingface
    from wqa.systems.export import huggingface_tensors
    from wqa.systems.pairwise.network import PairwiseTransformer

    layout = family.split("_")[0]
    roberta = {"token_types": 1, "layer_norm_eps": 1e-5, "first_position": 2}
    changes = {
        "roberta": roberta,
        "mpnet": roberta,
        "distilbert": {"token_types": 1},
        "electra_small": {"embedding_size": 8},
        "albert": {"embedding_size": 8, "shared_layers": True, "activation": "gelu_tanh"},
    }.get(family, {})
    sizes = {"vocab_size": 1300, "num_layers": 3, "max_positions": 160}
    model = PairwiseTransformer(dataclasses.replace(SMALL, layout=layout, **sizes, **changes))
    mx.random.seed(11)
    model.initialize(mx.init.Normal(0.3))
    shutil.copytree(DATA / "tokenizers" / FAMILIES[family], folder)
    (folder / "config.json").write_text(json.dumps(to_huggingface(model.config)), encoding="utf-8")
    save_file(huggingface_tensors(model), str(folder / "model.safetensors"))
    return folder


def make_tar(path, folder, **extra):
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, f"models/tanda/{file.name}")
        for name, kind in extra.items():
            member = tarfile.TarInfo(
                {"up": "models/../../evil", "root": "/evil", "link": "models/link"}[name]
            )
            member.type, member.linkname = kind, "../../evil"
            tar.addfile(member)
    return path


@pytest.fixture(scope="session", params=list(FAMILIES))
def family_encoder(request, tmp_path_factory):
    return write_family_encoder(tmp_path_factory.mktemp("family") / request.param, request.param)


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory):
    return write_tiny_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture
def new_trainer(tmp_path):
    """A function that builds trainers, each with a folder of its own.

    It takes a system, an encoder directory, settings of a `TrainingConfig` and options of the
    system. ``pairs`` are those of the built-in dev questions if none are given, ``dropout``
    replaces all rates of the encoder, and with ``sigma`` parameters are drawn from N(0, sigma).
    ``name`` is that of the folder.
    """
    import mxnet as mx

    from wqa.config import TrainingConfig
    from wqa.data import read_questions
    from wqa.models import parse_devices
    from wqa.pretrained import initialize_from, read_backbone_config
    from wqa.systems import SYSTEMS
    from wqa.systems.registry import build_network
    from wqa.text import PairInputs, load_tokenizer
    from wqa.training import Trainer, TrainingPairs

    def make(system, encoder, settings, name="", pairs=None, dropout=None, sigma=None, **options):
        defaults = {"learning_rate": 1e-3, "warmup_updates": 2, "tokens_per_batch": 400}
        config = TrainingConfig(**{**defaults, **settings})
        backbone = read_backbone_config(encoder)
        if dropout is not None:
            rates = dict.fromkeys(("dropout", "attention_dropout", "head_dropout"), dropout)
            backbone = dataclasses.replace(backbone, **rates)
        network = build_network(system, backbone, **options)
        mx.random.seed(config.seed)
        if sigma is None:
            initialize_from(network, encoder, parse_devices(config.ctx))
        else:
            network.initialize(mx.init.Normal(sigma), ctx=parse_devices(config.ctx))
        texts = PairInputs(load_tokenizer(encoder), 64)
        if pairs is None:
            pairs = TrainingPairs(read_questions(builtin_path("dev")), texts)
        task = SYSTEMS[system].task_type()(network, texts, pairs, config)
        folder = tmp_path / name if name else pathlib.Path(tempfile.mkdtemp(dir=tmp_path))
        folder.mkdir(exist_ok=not name)
        return Trainer(task, config, folder)

    return make


def with_letters(name, parent):
    """A copy of a stored model, with a vocabulary of letters and digits."""
    folder = shutil.copytree(DATA / name, parent / name)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder


def few_questions(path, end=9, start=0):
    """A file of some of the built-in dev questions."""
    from wqa.data import read_questions, write_questions

    write_questions(path, list(read_questions(builtin_path("dev")))[start:end])
    return path


def dev_run(system, out, encoder="", **options):
    """Train on the built-in dev questions; options may be those of a `TrainingConfig`."""
    from wqa.systems.train import train

    names = {field.name for field in dataclasses.fields(TrainingConfig)} & set(options)
    config = TrainingConfig(**{name: options.pop(name) for name in names})
    train(system, str(builtin_path("dev")), str(out), str(encoder), config=config, **options)
    return out


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny_encoder):
    """A cascade with exits 1, 2, 3, trained for a few updates on the built-in dev questions."""
    settings = {"max_updates": 8, "learning_rate": 1e-2, "warmup_updates": 2, "log_every": 2}
    settings.update(tokens_per_batch=500, exits=(1, 2, 3), max_length=64)
    return dev_run("cascade", tmp_path_factory.mktemp("runs") / "tiny", tiny_encoder, **settings)


@pytest.fixture(scope="session")
def exported(tmp_path_factory, tiny_run):
    """The graphs of `tiny_run` for ONNX Runtime."""
    out = tmp_path_factory.mktemp("exported") / "cascade"
    assert wqa("export", tiny_run, out, "--format", "onnx") == 0
    return out


@pytest.fixture(scope="session")
def dcbert_run(tmp_path_factory, tiny_encoder):
    """A DC-BERT after one update. It reads 40 tokens of a document and 32 of a question."""
    settings = {"max_updates": 1, "warmup_updates": 0, "tokens_per_batch": 400}
    settings.update(max_length=40, question_length=32)
    return dev_run("dcbert", tmp_path_factory.mktemp("runs") / "dcbert", tiny_encoder, **settings)


@pytest.fixture(scope="session")
def encoded_documents():
    """Documents for `dcbert_run`; the first one is longer than it reads."""
    from wqa.data import Document, read_questions

    texts = [question.question for question in read_questions(builtin_path("dev"))]
    documents = [Document("D0", "the moon " * 60, "Moon")]
    for number, text in enumerate(texts[:20], 1):
        documents.append(Document(f"D{number}", text))
    return documents


@pytest.fixture(scope="session")
def tiny_words(tmp_path_factory):
    """Random word vectors of width 8 for most of the words of the built-in questions."""
    from wqa.data import read_questions
    from wqa.data.word_vectors import WordVectors, write_word_vectors
    from wqa.text import split_words

    words = set()
    for name in ("train", "dev", "test"):
        for question in read_questions(builtin_path(name)):
            for text in (question.question, *question.texts):
                words.update(split_words(text))
    known = sorted(words)[::2]
    vectors = np.random.default_rng(5).normal(size=(len(known), 8)).astype(np.float32)
    folder = tmp_path_factory.mktemp("words") / "table"
    write_word_vectors(folder, WordVectors(known, vectors, {"kind": "random"}))
    return folder


def shared_corpus(name):
    """Folder of a real corpus; a test that needs it is skipped where it is absent."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def wikiqa_files(tmp_path_factory):
    """Folder of WikiQA as its script writes it."""
    import wikiqa

    out = tmp_path_factory.mktemp("corpora") / "wikiqa"
    assert wikiqa.main(["--archive", str(shared_corpus("wikiqa")), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def minilm():
    from wqa.errors import EncoderError
    from wqa.io.encoder_directories import locate_encoder

    try:
        return locate_encoder("minilm")
    except EncoderError as error:
        pytest.skip(str(error))


@pytest.fixture
def popen():
    """Start processes, which are killed at the end of the test if they still run."""
    processes = []

    def start(command, **options):
        processes.append(subprocess.Popen(command, text=True, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait(timeout=10)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def write_command(path, line):
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{line}")
    os.chmod(path, 0o755)


@pytest.fixture(scope="session")
def wqa_command():
    """The command line as a script, all calls of which one process answers."""
    server = ROOT / "tests" / "command_server.py"
    with tempfile.TemporaryDirectory() as folder:  # a short path, as that of a socket must be
        address = os.path.join(folder, "socket")
        serve = [sys.executable, str(server), "serve", address]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(serve, env=child_environment(), **streams) as process:
            assert process.stdout.readline() == b"ready\n"
            command = os.path.join(folder, "wqa")
            python = f'"{sys.executable}"'
            ask = f'exec {python} -I -S "{server}" run "{address}"'
            write_command(command, f'{ask} "$@"\n')
            # What is no script of the recipes, such as ``python -c``, runs by itself.
            write_command(
                command + "_python",
                f'case "$1" in recipes/*) {ask} python "$@" ;; *) exec {python} "$@" ;; esac\n',
            )
            yield command


@pytest.fixture
def jsonl(tmp_path):
    """Write lines to a file, gzipped if its name says so."""

    def write(*lines, name="questions.jsonl"):
        path = tmp_path / name
        raw = b"".join(
            (line if isinstance(line, bytes) else line.encode("utf-8")) + b"\n" for line in lines
        )
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write
