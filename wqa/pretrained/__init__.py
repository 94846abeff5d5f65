"""Pretrained encoders: read from the files of other libraries, and written to them."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.data.encoder_directories import INSTALLED, encoder_directory, locate_encoder
from wqa.pretrained.convert import convert
from wqa.pretrained.load import (
    initialize_from,
    load_backbone,
    load_classifier,
    read_backbone_config,
)

__all__ = [
    "INSTALLED",
    "convert",
    "encoder_directory",
    "initialize_from",
    "load_backbone",
    "load_classifier",
    "locate_encoder",
    "read_backbone_config",
]
