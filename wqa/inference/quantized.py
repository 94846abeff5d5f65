"""The 8-bit weights of a run, as `wqa.inference.quantize` writes them."""

from __future__ import annotations

import pathlib
from typing import Dict, List

from safetensors import SafetensorError, safe_open

from wqa.data.files import PathLike, sha256
from wqa.errors import RunDirectoryError
from wqa.inference.packed import Quantized
from wqa.inference.parameters import PRODUCTS
from wqa.models.heads import ExitNetwork

#: Name inside a run directory.
FILE = "int8.safetensors"


def read_quantized(run: PathLike, model: ExitNetwork) -> List[Dict[str, Quantized]]:
    """Read the 8-bit products of a run.

    Parameters
    ----------
    run : str or path-like
    model : ExitNetwork
        The run's.

    Returns
    -------
    list of dict of str to Quantized
        Products of each layer.

    Raises
    ------
    RunDirectoryError
        If the file is missing, cut off, or was made of other weights.
    """
    path, config = pathlib.Path(run) / FILE, model.config
    mend = f"calibrate the run: wqa quantize {run} --data DEV.jsonl"
    if not path.exists():
        raise RunDirectoryError(path, "the file is missing", "the 8-bit weights of the run", mend)
    sizes = dict.fromkeys(PRODUCTS, (config.units, config.units))
    sizes.update(inner=(config.units, config.hidden_size), outer=(config.hidden_size, config.units))
    try:
        with safe_open(str(path), "numpy") as file:
            known = (file.metadata() or {}).get("model_sha256")
            layers = [
                {
                    name: Quantized(
                        *(
                            file.get_tensor(f"layers.{place}.{name}.{part}")
                            for part in Quantized._fields
                        )
                    )
                    for name in PRODUCTS
                }
                for place in range(model.exits[-1])
            ]
    except (SafetensorError, OSError, ValueError) as error:
        raise RunDirectoryError(
            path, f"does not load ({error})", "the 8-bit weights of the run", mend
        ) from None
    if known != sha256(pathlib.Path(run) / "model.params") or any(
        layer[name].weight.shape != size for layer in layers for name, size in sizes.items()
    ):
        raise RunDirectoryError(
            path, "was made of other weights than model.params", "the calibration of this run", mend
        )
    return layers
