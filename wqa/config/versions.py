"""Versions of installed packages, which need not be imported for that."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Dict, Optional

import wqa

#: Names of what brings MXNet: for CPUs, and for GPUs.
MXNET_PACKAGES = ("mxnet", "mxnet-cu112")
#: Libraries that a model's figures depend on, beside MXNet.
_LIBRARIES = ("gluonnlp", "numpy", "tokenizers")


def installed_version(package: str) -> Optional[str]:
    """Version of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def library_versions() -> Dict[str, str]:
    """Versions of the libraries that a model's figures depend on.

    Returns
    -------
    dict of str to str
        Version by name of the library; what is not installed is left out.
    """
    mxnet, mxnet_cu112 = map(installed_version, MXNET_PACKAGES)
    versions = {"wqa": wqa.__version__, "mxnet": mxnet or mxnet_cu112}
    for name in _LIBRARIES:
        versions[name] = installed_version(name)
    versions["python"] = platform.python_version()
    return {name: version for name, version in versions.items() if version is not None}
