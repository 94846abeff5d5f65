"""One folder a paper, the registry of systems, and what needs it: loading, training, export."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.config.systems import System
from wqa.systems.registry import SYSTEMS, build_network, find_system

__all__ = ["SYSTEMS", "System", "build_network", "find_system"]
