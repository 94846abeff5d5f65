"""Losses, functions of scores and labels alone."""

from __future__ import annotations

import mxnet as mx

from wqa.models.backbone import MASKED


def cross_entropy(scores: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
    """Binary cross-entropy of log-odds, point-wise (Soldaini and Moschitti 2020, section 3.1).

    Parameters
    ----------
    scores : mxnet.nd.NDArray
        (B,) log-odds of the positive class.
    labels : mxnet.nd.NDArray
        (B,) labels, 0 or 1.

    Returns
    -------
    mxnet.nd.NDArray
        (B,) losses in nats.
    """
    # log(1 + exp(s)) - y s, written so that a large s does not overflow.
    softplus = mx.nd.Activation(-mx.nd.abs(scores), act_type="softrelu")
    # MXNet's gradient of relu is 0 at 0, where that of the loss is 1/2 - y. The last term is 0
    # everywhere; its gradient is 1/2 at 0 and 0 elsewhere.
    return mx.nd.relu(scores) - scores * labels + softplus + 0.5 * (scores == 0) * scores


def listwise_divergence(
    scores: mx.nd.NDArray, labels: mx.nd.NDArray, valid: mx.nd.NDArray
) -> mx.nd.NDArray:
    """Kullback-Leibler divergence of the softmax over a list from its normalised labels.

    Bonadiman and Moschitti 2020, section 4.2 (Bian et al. 2017).

    Parameters
    ----------
    scores : mxnet.nd.NDArray
        (Q, n) scores of the candidates of each question; those of padding are ignored.
    labels : mxnet.nd.NDArray
        (Q, n) labels, 0 or 1, at least one of them 1 in a row; 0 at padding.
    valid : mxnet.nd.NDArray
        (Q,) number of candidates, from the first on.

    Returns
    -------
    mxnet.nd.NDArray
        (Q,) losses in nats.
    """
    real = mx.nd.SequenceMask(
        mx.nd.ones_like(scores), valid, use_sequence_length=True, axis=1
    )  # (Q, n)
    log_probabilities = mx.nd.log_softmax(scores * real + (1 - real) * MASKED, axis=1)
    positives = mx.nd.sum(labels, axis=1, keepdims=True)
    targets = mx.nd.broadcast_div(labels, positives)  # (Q, n), of sum 1
    # The m positives of a list have probability 1 / m each, so that their negative entropy is
    # -log(m): the loss is 0 where the softmax equals the labels.
    entropy = mx.nd.log(positives).reshape((-1,))
    return -mx.nd.sum(targets * log_probabilities, axis=1) - entropy


def span_cross_entropy(
    logits: mx.nd.NDArray, allowed: mx.nd.NDArray, targets: mx.nd.NDArray
) -> mx.nd.NDArray:
    """Mean cross-entropy of the start and the end of a span (Devlin et al. 2019, section 4.2).

    Parameters
    ----------
    logits : mxnet.nd.NDArray
        (B, L, 2) logits of each position as the start and as the end.
    allowed : mxnet.nd.NDArray
        (B, L) float32: 1 at positions among which the softmax chooses, else 0.
    targets : mxnet.nd.NDArray
        (B, 2) positions of the start and of the end.

    Returns
    -------
    mxnet.nd.NDArray
        (B,) losses in nats.
    """
    mask = mx.nd.expand_dims((1 - allowed) * MASKED, axis=2)  # (B, L, 1)
    log_probabilities = mx.nd.log_softmax(mx.nd.broadcast_add(logits, mask), axis=1)
    picked = mx.nd.pick(log_probabilities, mx.nd.expand_dims(targets, axis=1), axis=1)  # (B, 2)
    return -mx.nd.mean(picked, axis=1)


def label_cross_entropy(logits: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
    """Cross-entropy of the label of each row.

    Parameters
    ----------
    logits : mxnet.nd.NDArray
        (B, n) logits of the labels.
    labels : mxnet.nd.NDArray
        (B,) index of each row's label, from 0.

    Returns
    -------
    mxnet.nd.NDArray
        (B,) losses in nats.
    """
    return -mx.nd.pick(mx.nd.log_softmax(logits, axis=1), labels, axis=1)
