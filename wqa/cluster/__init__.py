"""Work in parts on a Ray cluster. Shards, which need no cluster, are in `wqa.data.parts`."""

from wqa.cluster.ray import run_on_ray

__all__ = ["run_on_ray"]
