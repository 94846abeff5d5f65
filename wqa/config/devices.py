"""Names of devices."""

from __future__ import annotations

import re
from typing import Tuple

from wqa.errors import DeviceError, shorten


def device_numbers(ctx: str) -> Tuple[str, range]:
    """Parse the name of one or several devices.

    Parameters
    ----------
    ctx : str
        ``cpu``, ``gpu``, ``gpu:2``, or a range such as ``gpu:0-7``.

    Returns
    -------
    kind : {"cpu", "gpu"}
        Kind of the devices.
    numbers : range
        Their numbers, at least one.

    Raises
    ------
    DeviceError
        If the name is malformed.
    """
    match = re.fullmatch(
        r"(cpu|gpu)(?::(\d{1,3})(?:-(\d{1,3}))?)?", ctx if isinstance(ctx, str) else ""
    )
    first = int(match.group(2) or 0) if match else 0
    last = int(match.group(3) or first) if match else -1
    if not match or last < first:
        raise DeviceError("ctx", shorten(ctx), "cpu, gpu:0, or a range such as gpu:0-7")
    return match.group(1), range(first, last + 1)
