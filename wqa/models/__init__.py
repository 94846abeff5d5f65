"""Backbone, heads, and the network of each paper. Importing this package imports MXNet."""

from wqa.models.runtime import (  # noqa: I001 - prepares the process before anything imports MXNet
    library_versions,
    parse_devices,
)
from wqa.models.backbone import Backbone, Embeddings, EncoderLayer, LayerStack, attention_mask
from wqa.models.cascade import CascadeConfig, CascadeTransformer
from wqa.models.compare_aggregate import CompareAggregate
from wqa.models.cosinet import Cosinet
from wqa.models.dcbert import DCBERTConfig, DecoupledTransformer
from wqa.models.heads import Branch, Head
from wqa.models.list_config import ListConfig
from wqa.models.lists import ListNetwork
from wqa.models.mhs import MHSConfig, MultipleHeadsStudent
from wqa.models.joint_config import ClaimConfig, MSPPConfig
from wqa.models.mspp import ClaimTransformer, JointTransformer
from wqa.models.network import Network, NetworkConfig
from wqa.models.pairwise import PairwiseConfig, PairwiseTransformer
from wqa.models.partial import train_only
from wqa.models.reader import ReaderConfig, SpanReader
from wqa.models.registry import NETWORKS, build_network, network_type

__all__ = [
    "Backbone",
    "Branch",
    "CascadeConfig",
    "CascadeTransformer",
    "ClaimConfig",
    "ClaimTransformer",
    "CompareAggregate",
    "Cosinet",
    "DCBERTConfig",
    "DecoupledTransformer",
    "Embeddings",
    "EncoderLayer",
    "Head",
    "JointTransformer",
    "LayerStack",
    "ListConfig",
    "ListNetwork",
    "MHSConfig",
    "MSPPConfig",
    "MultipleHeadsStudent",
    "NETWORKS",
    "Network",
    "NetworkConfig",
    "PairwiseConfig",
    "PairwiseTransformer",
    "ReaderConfig",
    "SpanReader",
    "attention_mask",
    "build_network",
    "library_versions",
    "network_type",
    "parse_devices",
    "train_only",
]
