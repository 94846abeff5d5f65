"""Backbone, heads, and the network of each paper. Importing this package imports MXNet."""

from wqa.models import runtime  # noqa: I001 - prepares the process before anything imports MXNet
from wqa.models.backbone import Backbone
from wqa.models.cascade import CascadeConfig, CascadeTransformer
from wqa.models.heads import Head
from wqa.models.network import Network, NetworkConfig
from wqa.models.pairwise import PairwiseConfig, PairwiseTransformer
from wqa.models.registry import NETWORKS, build_network, network_type

library_versions, parse_devices = runtime.library_versions, runtime.parse_devices

__all__ = [
    "Backbone",
    "CascadeConfig",
    "CascadeTransformer",
    "Head",
    "NETWORKS",
    "Network",
    "NetworkConfig",
    "PairwiseConfig",
    "PairwiseTransformer",
    "build_network",
    "library_versions",
    "network_type",
    "parse_devices",
]
