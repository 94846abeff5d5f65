"""One folder a paper, the registry of systems, and what needs it: loading, training, export."""

from wqa.config.systems import System
from wqa.systems.registry import SYSTEMS, build_network, find_system

__all__ = ["SYSTEMS", "System", "build_network", "find_system"]
