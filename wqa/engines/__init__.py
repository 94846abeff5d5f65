"""What computes networks in ranking and in training: MXNet, oneDNN, sparse products."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
