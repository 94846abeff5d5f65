"""Pretrained encoders: read from the files of other libraries, and written to them."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.pretrained.load import initialize_from, load_backbone, read_backbone_config

__all__ = [
    "initialize_from",
    "load_backbone",
    "read_backbone_config",
]
