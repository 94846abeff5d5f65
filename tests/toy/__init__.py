"""A system of another package, in one folder: it trains, ranks and is served as wqa's own do."""

from wqa.config.systems import System

SYSTEM = System(
    name="toy",
    help="a dense layer on the mean of word embeddings",
    network="toy.network.ToyNetwork",
    task="toy.task.ToyTask",
)
