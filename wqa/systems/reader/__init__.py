"""The span reader."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="reader",
        help="the span reader",
        network="wqa.systems.reader.network.SpanReader",
        task="wqa.systems.reader.task.ReaderTask",
        development="wqa.systems.reader.task.evaluate_answers",
        ranker="wqa.systems.reader.reader.Reader",
        directory="wqa.systems.reader.network.SpanLayout",
    ),
)
