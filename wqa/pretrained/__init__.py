"""Pretrained encoders: Hugging Face directories to backbone parameters."""
import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.pretrained.huggingface import initialize_from, load_backbone, read_backbone_config
from wqa.pretrained.locate import INSTALLED, locate_encoder

__all__ = ["INSTALLED", "initialize_from", "load_backbone", "locate_encoder", "read_backbone_config"]
