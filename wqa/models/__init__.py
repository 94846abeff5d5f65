"""Backbone, heads, and the network of each paper. Importing this package imports MXNet."""

from wqa.models.runtime import parse_devices  # noqa: I001 - before anything imports MXNet
from wqa.config.environment import library_versions
from wqa.models.backbone import Backbone, EncoderLayer, LayerStack, attention_mask
from wqa.models.embeddings import Embeddings
from wqa.models.heads import Branch, Head
from wqa.models.network import EncoderNetwork, Network, NetworkConfig
from wqa.models.exits import train_only

__all__ = [
    "Backbone",
    "Branch",
    "Embeddings",
    "EncoderLayer",
    "EncoderNetwork",
    "Head",
    "LayerStack",
    "Network",
    "NetworkConfig",
    "attention_mask",
    "library_versions",
    "parse_devices",
    "train_only",
]
