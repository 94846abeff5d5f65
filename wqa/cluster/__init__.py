"""Work in parts on several devices or a Ray cluster; shards are in `wqa.data.parts`."""

from wqa.cluster.devices import run_on_devices
from wqa.cluster.ray import run_on_ray

__all__ = ["run_on_devices", "run_on_ray"]
