"""Pretrained encoders: read from the files of other libraries, and written to them."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.pretrained.gluonnlp import from_gluonnlp, to_gluonnlp
from wqa.pretrained.load import initialize_from, load_backbone, read_backbone_config

__all__ = [
    "from_gluonnlp",
    "initialize_from",
    "load_backbone",
    "read_backbone_config",
    "to_gluonnlp",
]
