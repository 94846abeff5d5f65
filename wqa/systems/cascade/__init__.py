"""The Cascade Transformer (Soldaini and Moschitti 2020)."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="cascade",
        help="the Cascade Transformer",
        network="wqa.systems.cascade.network.CascadeTransformer",
        task="wqa.systems.cascade.task.CascadeTask",
    ),
)
