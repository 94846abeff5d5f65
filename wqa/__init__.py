"""wqa: answer sentence selection with MXNet and GluonNLP."""

__version__ = "0.1.0"
