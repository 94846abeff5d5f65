"""Loading of rankers from run directories."""

from __future__ import annotations

import os
import pathlib
import tarfile
from typing import Any, Callable, Dict, List, Optional, Union

from wqa.config import EngineConfig, RunConfig, from_dict, read_json, read_run_config
from wqa.data.files import sha256
from wqa.errors import EncoderError, OptionError, RunDirectoryError, shorten
from wqa.inference.cascade import CascadeRanker
from wqa.inference.dropping import DropRatio, Keep
from wqa.inference.engine import packing_obstacle
from wqa.inference.ranker import Ranker
from wqa.inference.sequential import SequentialRanker
from wqa.inference.tuned import read_tuned
from wqa.models import Network, network_type, parse_devices
from wqa.onednn import check_precision, read_quantized
from wqa.onednn.quantize import QuantizedLayers
from wqa.pretrained import encoder_directory, load_classifier
from wqa.pretrained.parameters import load_parameters
from wqa.text import PairEncoder, load_tokenizer

#: Greatest length of a pair, for a classifier whose files do not record it.
MAX_LENGTH = 128

#: Rankers of systems with their own ranker; all other systems rank by `CascadeRanker`. A ranker
#: takes the network, a `wqa.text.PairEncoder`, and the keywords ``drop_ratio``, ``keep``,
#: ``engine``, ``quantized``, ``system``, ``pool``, ``pool_size`` and ``progress``.
RANKERS: Dict[str, Callable[..., Ranker]] = {}

#: Content of a sequence's file.
_SEQUENCE = (
    '{"rankers": [RUN, {"run": RUN, "drop_ratio": A, "keep": K}, ...], "drop_ratio": [A, ...], '
    '"keep": [K, ...]}'
)


def build_ranker(system: str, network: Network, encoder: PairEncoder, **options: Any) -> Ranker:
    """Build the ranker of a network that is in memory.

    Parameters
    ----------
    system : str
        Name of the system.
    network : Network
        Network of the system, with its parameters on the engine's device.
    encoder : PairEncoder
        Encodes questions and candidates as pairs.
    **options
        Keywords of the system's ranker, such as ``drop_ratio`` and ``engine``.

    Returns
    -------
    Ranker
        The ranker of `RANKERS`, or a `CascadeRanker`.
    """
    build = RANKERS.get(system, CascadeRanker)
    return build(network, encoder, system=system, **options)


def load_ranker(
    run: Union[str, os.PathLike[str]],
    drop_ratio: Union[DropRatio, str] = None,
    keep: Keep = None,
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    batch_tokens: Optional[int] = None,
    hidden_bytes: int = 1 << 29,
    **options: Any,
) -> Ranker:
    """Load the ranker of a run directory, or a sequence of rankers.

    Parameters
    ----------
    run : str or path-like
        Run directory, with ``config.json``, ``model.params`` and ``tokenizer.json``. Or a
        fine-tuned classifier, such as TANDA's, as `wqa.pretrained.load_classifier` takes it. Or the
        ``.json`` file of a sequence, ``{"rankers": [...], "drop_ratio": ..., "keep": ...}``, whose
        rankers are paths relative to the file or ``{"run": PATH, "drop_ratio": ..., "keep": ...}``.
    drop_ratio : float, sequence of float or None, or "tuned", optional
        alpha, as `Ranker.set_drops` takes it; ``"tuned"`` for the drop ratios that `wqa tune`
        stored in the run. It replaces that of a sequence's file.
    keep : int, or sequence of int or None, optional
        k, as `Ranker.set_drops` takes it. It replaces that of a sequence's file.
    ctx : str
        Device to rank on.
    precision : {"float32", "bfloat16", "int8"}
        Precision of products. bfloat16 and int8 need a CPU that supports them, int8 also a run that
        `wqa quantize` has calibrated.
    threads : int, optional
        Number of threads on a CPU; by default all that the process may use.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed and the network is made of
        transformer layers, and MXNet otherwise.
    batch_tokens : int, optional
        Tokens of a micro-batch; the default depends on the engine.
    hidden_bytes : int
        Bytes of encodings that are held in memory between two exits.
    **options
        Further keywords of the system's ranker, such as those of `CascadeRanker`.

    Returns
    -------
    Ranker
        A `CascadeRanker`, the system's own ranker, or a `SequentialRanker`.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    path = pathlib.Path(run)
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens, hidden_bytes)
    parse_devices(ctx)
    check_precision(precision)
    if path.suffix == ".json" and path.is_file():
        return _load_sequence(path, drop_ratio, keep, config, options)
    if isinstance(drop_ratio, str):
        if drop_ratio != "tuned":
            raise OptionError("drop_ratio", shorten(drop_ratio), "numbers, or tuned")
        drop_ratio = list(read_tuned(path))
    drops = {"drop_ratio": drop_ratio, "keep": keep}
    if _is_huggingface(path):
        return _load_classifier(path, config, {**drops, **options})
    return _load_run(path, config, {**drops, **options})


def _load_run(folder: pathlib.Path, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    if not folder.is_dir():
        raise RunDirectoryError(
            folder,
            "there is no such directory",
            "a run directory as `wqa train` writes it, or a classifier's directory or tar",
        )
    config = read_run_config(folder / "config.json")
    if config.system == "encoder":
        raise RunDirectoryError(
            folder,
            "an encoder without a ranker",
            "a run, or a converted classifier",
            "train a system with this directory as encoder",
        )
    tokenizer = _run_tokenizer(folder, config)
    network = load_network(folder, config, engine.ctx)
    if engine.precision == "int8":
        options["quantized"] = _run_quantized(folder, network)
    encoder = PairEncoder(tokenizer, config.max_length)
    return build_ranker(config.system, network, encoder, engine=engine, **options)


def _run_tokenizer(folder: pathlib.Path, config: RunConfig) -> Any:
    try:
        tokenizer = load_tokenizer(folder)
        if config.backbone is not None:
            tokenizer.check_fits(config.backbone, folder / "tokenizer.json")
    except EncoderError as error:
        raise RunDirectoryError(
            folder / "tokenizer.json",
            error.found,
            "the tokenizer of the run",
            "restore the file from its run",
        ) from None
    return tokenizer


def load_network(folder: pathlib.Path, config: RunConfig, ctx: str = "cpu") -> Network:
    """Load the network of a run directory.

    Parameters
    ----------
    folder : pathlib.Path
        Run directory that holds ``model.params``.
    config : RunConfig
        Content of the run's ``config.json``.
    ctx : str
        Device of the parameters.

    Returns
    -------
    Network
        Network with the parameters of the run.

    Raises
    ------
    RunDirectoryError
        If ``model.params`` is missing, truncated, or contradicts ``config.json``.
    OptionError
        If the system is unknown.
    """
    kind = network_type(config.system)
    own = from_dict(kind.Config, config.network, f"{folder / 'config.json'}, field network")
    network = kind(config.backbone, own)
    path = folder / "model.params"
    if not path.exists():
        mend = "restore the file from its run"
        if (folder / "checkpoints").is_dir():
            mend = "the training has not finished: resume it"
        raise RunDirectoryError(path, "the file is missing", "the parameters of the run", mend)
    load_parameters(network, path, parse_devices(ctx))
    return network


def quantized_path(folder: pathlib.Path) -> pathlib.Path:
    """File of a run's 8-bit weights.

    Parameters
    ----------
    folder : pathlib.Path
        Run directory.

    Returns
    -------
    pathlib.Path
        The file, which may not exist.
    """
    return folder / "int8.safetensors"


def quantizing_mend(folder: pathlib.Path) -> str:
    """Remedy for missing 8-bit weights, for errors.

    Parameters
    ----------
    folder : pathlib.Path
        Directory of the run to calibrate.

    Returns
    -------
    str
        Text for ``mend`` of an error.
    """
    return f"calibrate the run with `wqa quantize {folder}`"


def _run_quantized(folder: pathlib.Path, network: Network) -> Optional[QuantizedLayers]:
    path, mend = quantized_path(folder), quantizing_mend(folder)
    if packing_obstacle(network):
        return None  # the engine says why it cannot compute the network
    depth = sum(len(stage.layers) for stage in network.encoder_stages())
    layers, record = read_quantized(path, network.config, depth, mend)
    if record.get("model_sha256") != sha256(folder / "model.params"):
        raise RunDirectoryError(
            path,
            "was computed from other weights than model.params",
            "the calibration of this run",
            mend,
        )
    return layers


def load_network_ranker(run: Union[str, os.PathLike[str]], **options: Any) -> CascadeRanker:
    """Load a ranker that has a ``network`` and an ``encoder``.

    Parameters
    ----------
    run : str or path-like
        Run directory, or a fine-tuned classifier.
    **options
        Keywords of `load_ranker`.

    Returns
    -------
    CascadeRanker
        Ranker with the network of the run.

    Raises
    ------
    RunDirectoryError
        If ``run`` is a sequence of rankers or has no network, and in the cases of `load_ranker`.
    """
    ranker = load_ranker(run, **options)
    if ranker.capabilities.rankers:
        raise RunDirectoryError(
            run, "a sequence of rankers", "a single run", "name one of its runs"
        )
    if ranker.network is None:
        system = ranker.capabilities.system
        raise RunDirectoryError(run, f"{system}, a ranker without a network", "a run with one")
    return ranker  # type: ignore[return-value]


def _load_sequence(
    path: pathlib.Path,
    drop_ratio: Any,
    keep: Any,
    engine: EngineConfig,
    options: Dict[str, Any],
) -> SequentialRanker:
    try:
        values = read_json(path)
        _check_fields(values, {"rankers", "drop_ratio", "keep"})
        entries = [_entry(entry) for entry in values["rankers"]]
        folders = [path.parent / entry["run"] for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(
            path, f"is no sequence of rankers ({type(error).__name__}: {error})", _SEQUENCE
        ) from None
    if drop_ratio is None and keep is None:
        drop_ratio, keep = values.get("drop_ratio"), values.get("keep")
    shared: Dict[str, Any] = {
        "ctx": engine.ctx,
        "precision": engine.precision,
        "threads": engine.threads,
        "engine": engine.engine,
        "batch_tokens": engine.batch_tokens,
        "hidden_bytes": engine.hidden_bytes,
    }
    rankers: List[Ranker] = []
    for folder, entry in zip(folders, entries):
        ratio, number = entry.get("drop_ratio"), entry.get("keep")
        rankers.append(load_ranker(folder, ratio, number, **shared, **options))
    try:
        return SequentialRanker(rankers, drop_ratio, keep)
    except OptionError as error:
        raise RunDirectoryError(
            path, f"{error.where}: {error.found}", error.expected, error.mend
        ) from None


def _entry(entry: Any) -> Dict[str, Any]:
    """One ranker of a sequence as a dict, given as a path or as a path with its drops."""
    values = entry if isinstance(entry, dict) else {"run": entry}
    _check_fields(values, {"run", "drop_ratio", "keep"})
    return values


def _check_fields(values: Dict[str, Any], known: set) -> None:
    if set(values) - known:
        raise ValueError(f"a field besides {', '.join(sorted(known))}")


def _is_huggingface(folder: pathlib.Path) -> bool:
    try:
        if folder.is_file():
            return tarfile.is_tarfile(folder)
        values = read_json(folder / "config.json")
        return "hidden_size" in values and "system" not in values
    except (OSError, ValueError, TypeError):  # loading it as a run raises the error
        return False


def _load_classifier(path: pathlib.Path, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    if engine.precision == "int8":
        raise OptionError(
            "precision",
            f"int8 of {path}, another library's directory",
            "a calibrated run",
            "convert it with `wqa convert`, then calibrate it with `wqa quantize`",
        )
    with encoder_directory(path) as folder:
        network = load_classifier(folder, parse_devices(engine.ctx))
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(network.config, path)
    encoder = PairEncoder(tokenizer, min(MAX_LENGTH, network.config.max_positions))
    return build_ranker("pairwise", network, encoder, engine=engine, **options)
