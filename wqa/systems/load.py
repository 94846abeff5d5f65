"""Loading of rankers from run directories."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, NamedTuple, Optional, Union

from wqa.config import EngineConfig
from wqa.config.systems import KINDS, import_part
from wqa.config.training import LONG_CANDIDATES, LONG_QUESTIONS
from wqa.data import Question, read_questions
from wqa.data.probe import BASELINE_NAMES, BaselineName, Entry, Probe, probe, read_ranker_file
from wqa.errors import OptionError, RunDirectoryError, check_choice
from wqa.inference.calibrated import read_calibration
from wqa.inference.document_cache import DocumentCache, open_cache
from wqa.inference.dropping import DropBelow, DropRatio, Keep
from wqa.inference.ensemble import EnsembleRanker
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.inference.sequential import SequentialRanker
from wqa.inference.windows import WindowRanker
from wqa.io.files import PathLike, scratch_folder
from wqa.systems.exported import load_exported
from wqa.systems.registry import BASELINES, find_system, read_tuned
from wqa.text import PairInputs

if TYPE_CHECKING:
    from wqa.models import Network


def build_ranker(system: str, network: Network, inputs: PairInputs, **options: Any) -> Ranker:
    """Build the ranker of a network that is in memory.

    Parameters
    ----------
    system : str
        Name of the system.
    network : Network
        Network of the system, with its parameters on the engine's device.
    inputs : PairInputs
        Token ids of questions and candidates, as pairs.
    **options
        Keywords of the system's ranker, such as ``drop_ratio`` and ``engine``.

    Returns
    -------
    Ranker
        The ranker of the system's record.

    Raises
    ------
    OptionError
        If the network does not score pairs.
    """
    if network.computes != "scores":
        what = KINDS[network.computes][0]
        raise OptionError("system", f"{system}, which is {what}", "a system that ranks")
    build = find_system(system).ranker_type()
    return build(network, inputs, system=system, **options)


def load_ranker(
    run: PathLike,
    drop_ratio: Union[DropRatio, str] = None,
    keep: Keep = None,
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    batch_tokens: Optional[int] = None,
    long_questions: str = "error",
    long_candidates: str = "truncate",
    cache: Union[PathLike, DocumentCache, None] = None,
    calibrated: bool = True,
    drop_below: DropBelow = None,
    **options: Any,
) -> Ranker:
    """Load the ranker of a run directory or of several rankers, or one that needs no training.

    Parameters
    ----------
    run : str or path-like
        Run directory, with ``config.json``, ``model.params`` and ``tokenizer.json``. Or a folder
        that ``wqa export --format onnx`` wrote, which needs ONNX Runtime in place of MXNet. Or a
        fine-tuned classifier, such as TANDA's, as `load_classifier` takes it. Or the
        ``.json`` file of a sequence, ``{"rankers": [...], "drop_ratio": ..., "keep": ...}``, or of
        an ensemble, ``{"ensemble": [...], "weights": [...], "combine": "probabilities"}``, or
        ``"scores"``, whose rankers are paths relative to the file or ``{"run": PATH,
        "drop_ratio": ..., "keep": ..., "precision": ...}``. A path may be that of another such
        file. Or the name of a ranker that needs no training, where no file
        or folder has it: ``minilm``, which is ``maxsim:minilm``, the similarity of tokens by the
        installed encoder; ``maxsim:ENCODER`` or ``cosine:ENCODER`` of any encoder or run; ``bm25+``
        before one of these, for the mean of BM25's scores and its own; ``rr``, ``wo``, ``wo+rr``,
        ``random:SEED`` or ``bm25``, to which the options of engines do not apply.
    drop_ratio : float, sequence of float or None, or "tuned", optional
        alpha, as `Ranker.set_drops` takes it; ``"tuned"`` for the drop ratios that `wqa tune`
        stored in the run. It replaces both ``drop_ratio`` and ``keep`` of a sequence's file.
    keep : int, or sequence of int or None, optional
        k, as `Ranker.set_drops` takes it. It replaces them as ``drop_ratio`` does.
    drop_below : float or sequence of float or None, optional
        Least relevance of what goes on, as `Ranker.set_drops` takes it.
    ctx : str
        Device to rank on.
    precision : {"float32", "bfloat16", "int8"}
        Precision of products. bfloat16 and int8 need a CPU that supports them, int8 also a run that
        `wqa quantize` has calibrated; a similarity is calibrated as it is loaded.
    threads : int, optional
        Number of threads on a CPU; by default all that the process may use.
    engine : {"auto", "mxnet", "onednn", "onnxruntime"}
        ``auto`` takes oneDNN on a CPU where its library is installed and the network is made of
        transformer layers, MXNet otherwise, and ONNX Runtime for an exported folder.
        ``onnxruntime`` exports a run to a temporary folder.
    batch_tokens : int, optional
        Tokens of a micro-batch; the default depends on the engine.
    long_questions : {"error", "truncate", "skip"}
        What to do with a question that leaves fewer than 16 tokens for its candidates: raise an
        error, keep as many of its first tokens as leave 16, or leave it out, which
        `Ranker.prepare` does.
    long_candidates : {"truncate", "windows"}
        What to do with a candidate that does not fit: read its first tokens, or all of them in
        windows, as a `wqa.inference.windows.WindowRanker` does.
    cache : str, path-like or DocumentCache, optional
        Document cache, as `wqa encode` writes it, for a run that encodes documents by themselves,
        and for such runs in a sequence or an ensemble.
    calibrated : bool
        Whether probabilities are those that `wqa calibrate` fitted, where it did. Scores and order
        are the same without.
    **options
        Further keywords of the system's ranker, such as those of `CascadeRanker`.

    Returns
    -------
    Ranker
        A `CascadeRanker`, the system's own ranker, a `SequentialRanker`, an `EnsembleRanker`, a
        `wqa.systems.dcbert.ranker.SimilarityRanker`, a `Baseline`, or a `WindowRanker` around
        one of them.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens)
    options.update(long_questions=long_questions, calibrated=calibrated)
    drops = {"drop_ratio": drop_ratio, "keep": keep}
    check_choice("long_candidates", long_candidates, LONG_CANDIDATES)
    if long_candidates != "truncate" and cache is not None:
        problem = "windows, with a document cache, which holds the first tokens of documents"
        raise OptionError("long_candidates", problem, "truncate, or no cache")
    ranker = _load(probe(run), drops, _Loading(config, cache, options))
    if drop_below is not None:
        if drop_ratio is not None:
            problem = f"{drop_ratio} and {drop_below}"
            raise OptionError("drop_ratio and drop_below", problem, "one of the two")
        ranker.set_drops(None, keep, drop_below)
    return ranker if long_candidates == "truncate" else WindowRanker(ranker)


class _Loading(NamedTuple):
    """How a ranker and those inside it are loaded."""

    engine: EngineConfig
    cache: Any
    options: Dict[str, Any]


def _load(source: Probe, drops: Dict[str, Any], loading: _Loading) -> Ranker:
    """Load a ranker."""
    engine, cache, options = loading
    check_choice("long_questions", options["long_questions"], LONG_QUESTIONS)
    if cache is not None and source.kind and not reads_cache(source):
        problem = f"with {source.path}, which reads no encodings of documents by themselves"
        raise OptionError("cache", problem, "a run that encodes documents by themselves")
    if isinstance(drops["drop_ratio"], str):
        if drops["drop_ratio"] != "tuned":
            raise OptionError("drop_ratio", repr(drops["drop_ratio"]), "numbers, or tuned")
        drops = {**drops, "drop_ratio": read_tuned(source)}
    if source.baseline is not None:
        ranker = _load_baseline(source.baseline, loading)
        ranker.set_drops(**drops)
        return ranker
    if cache is not None:
        cache = open_cache(cache)
    if source.kind == "file":
        return _load_file(source.path, drops, loading._replace(cache=cache))
    own = {**options, **drops} if cache is None else {**options, **drops, "cache": cache}
    if source.kind == "export":
        return load_exported(source.path, engine, own)
    if engine.engine == "onnxruntime":
        return _load_graphs(source, engine, own)
    return _load_network(source, engine, own)


def _load_graphs(source: Probe, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    """Load the ranker of a run's graphs, which are exported to a temporary folder."""
    from wqa.systems.export_onnx import export_onnx  # needs MXNet

    with scratch_folder("onnx") as scratch:  # sessions have mapped the weights before it goes
        export_onnx(source.path, scratch / "exported")
        return load_exported(scratch / "exported", engine, options)


def _load_network(source: Probe, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    """Load the ranker of a run or of a fine-tuned classifier.

    ``options`` are keywords of the ranker, and ``calibrated`` and ``long_questions``.
    """
    from wqa.systems.run_directory import load_run  # needs MXNet

    calibrated, long_questions = options.pop("calibrated"), options.pop("long_questions")
    expected = (
        "a run directory as `wqa train` writes it, a classifier's directory or tar, or "
        f"a ranker by name: {', '.join(BASELINE_NAMES)}"
    )
    run = load_run(source.path, engine, long_questions, "scores", expected)
    ranker = build_ranker(run.config.system, run.network, run.inputs, **run.options, **options)
    if calibrated and source.kind == "run":
        stages = ranker.capabilities.stages
        ranker.calibration = read_calibration(source.path, run.config, stages)
    return ranker


def _load_baseline(name: BaselineName, loading: _Loading) -> Ranker:
    engine, cache, options = loading
    if name.is_similarity:
        from wqa.systems.text_encoder import load_similarity  # needs MXNet

        own = {key: value for key, value in options.items() if key != "calibrated"}
        similarity = load_similarity(name, engine, cache=cache, **own)
        if not name.with_bm25:
            return similarity
        names = ["bm25", str(name._replace(with_bm25=False))]
        rankers = [import_part(BASELINES["bm25"])(), similarity]
        return EnsembleRanker(rankers, names=names, combine="scores")
    return import_part(BASELINES[name.rule])(name.seed)


def rank_all(
    run: Union[PathLike, Ranker], questions: Union[PathLike, Iterable[Question]], **options: Any
) -> Iterator[Ranking]:
    """Rank many questions by a run.

    Parameters
    ----------
    run : str, path-like or Ranker
        What `load_ranker` takes, or a ranker.
    questions : iterable of Question, str or path-like
        Questions with their candidates, or the file of a corpus, canonical JSONL.
    **options
        Keywords of `load_ranker`, for a run that is not loaded yet.

    Returns
    -------
    iterator of Ranking
        Ranking of each question, in order.

    Raises
    ------
    WqaError
        As `load_ranker`, `wqa.data.read_questions` and `Ranker.rank_all` raise them.
    """
    ranker: Any = load_ranker(run, **options) if isinstance(run, (str, os.PathLike)) else run
    if isinstance(questions, (str, os.PathLike)):
        questions = read_questions(questions)
    return ranker.rank_all(questions)


def reads_cache(ranker: Union[PathLike, Probe]) -> bool:
    """Whether a ranker, or one inside it, reads the encodings of documents from a cache."""
    source = ranker if isinstance(ranker, Probe) else probe(ranker)
    if source.kind == "file":
        return any(reads_cache(entry.source) for entry in read_ranker_file(source.path).entries)
    if source.baseline is not None:
        return source.baseline.is_similarity
    try:
        system = find_system(str(source.config.get("system", "")))
    except OptionError:
        return False
    return getattr(system.ranker_type(), "takes_cache", False)


def _load_file(path: pathlib.Path, drops: Dict[str, Any], loading: _Loading) -> Ranker:
    """Load a sequence or an ensemble."""
    content = read_ranker_file(path)
    rankers = [_load_entry(path, entry, loading) for entry in content.entries]
    if content.kind == "ensemble":
        names = [entry.name for entry in content.entries]
        with _naming(path):
            ensemble = EnsembleRanker(rankers, content.weights, names, content.combine)
        ensemble.set_drops(**drops)
        return ensemble
    if any(value is not None for value in drops.values()):
        return SequentialRanker(rankers, **drops)
    with _naming(path):
        return SequentialRanker(rankers, content.drop_ratio, content.keep)


def _load_entry(path: pathlib.Path, entry: Entry, loading: _Loading) -> Ranker:
    """Load one ranker of a file."""
    engine = loading.engine
    engine = dataclasses.replace(engine, precision=entry.precision or engine.precision)
    loading = loading._replace(engine=engine)
    if not reads_cache(entry.source):
        loading = loading._replace(cache=None)
    ratio = entry.drop_ratio
    ranker = _load(entry.source, {"drop_ratio": None, "keep": None}, loading)
    with _naming(path):
        if isinstance(ratio, str):
            ratio = read_tuned(entry.source)
        if ratio is not None or entry.keep is not None:
            ranker.set_drops(ratio, entry.keep)
    return ranker


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Name a file of rankers where its drops or weights do not fit its rankers."""
    try:
        yield
    except OptionError as error:
        problem = f"{error.where}: {error.found}"
        raise RunDirectoryError(path, problem, error.expected, error.hint) from None
