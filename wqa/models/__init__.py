"""Backbone, heads, and one file a paper. Importing this package imports MXNet."""

from wqa.models import runtime  # noqa: I001 - prepares the process before anything imports MXNet
from wqa.models.backbone import Backbone
from wqa.models.cascade import CascadeTransformer
from wqa.models.pairwise import PairwiseTransformer
from wqa.models.registry import SYSTEMS, build_model

library_versions, parse_devices = runtime.library_versions, runtime.parse_devices

__all__ = [
    "Backbone",
    "CascadeTransformer",
    "PairwiseTransformer",
    "SYSTEMS",
    "build_model",
    "library_versions",
    "parse_devices",
]
