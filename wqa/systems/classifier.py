"""Fine-tuned classifiers of other libraries, as monolithic rankers."""

from __future__ import annotations

import mxnet as mx

from wqa.errors import EncoderError
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike
from wqa.pretrained.load import Devices, initialize, with_gradients
from wqa.pretrained.source import Source
from wqa.systems.pairwise.network import PairwiseConfig, PairwiseTransformer


def load_classifier(directory: PathLike, ctx: Devices = None) -> PairwiseTransformer:
    """Load a fine-tuned classifier, such as TANDA's, as the monolithic ranker.

    The score is the classifier's one output, or the log-odds of the second of two.

    Parameters
    ----------
    directory, ctx
        Directory of the classifier and devices, as `load_backbone` takes them.

    Returns
    -------
    PairwiseTransformer
        Ranker with the classifier's parameters.

    Raises
    ------
    EncoderError
        If there is no classifier of one or two outputs, or a tensor is missing or of another shape.
    """
    with encoder_directory(directory) as folder:
        source = Source(folder)
        if not source.labels():
            raise EncoderError(
                directory,
                "an encoder without a classifier",
                "a fine-tuned classifier, or a run",
                "train a system from this encoder",
            )
        model = PairwiseTransformer(source.config, PairwiseConfig(source.exits))
        source.check(model.backbone)
        initialize(model, mx.init.Zero(), ctx)
        source.fill(model.backbone)
        source.fill_classifier(model.head(0))
    with_gradients(model)
    return model
