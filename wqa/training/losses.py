"""Losses, functions of scores and labels alone."""

from __future__ import annotations

import mxnet as mx

from wqa.models.backbone import MASKED


def cross_entropy(scores: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
    """Binary cross-entropy of log-odds, point-wise (Soldaini and Moschitti 2020, section 3.1).

    Shapes: `scores` (B,), `labels` (B,), the result (B,).
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

    Shapes: `scores` (Q, n), `labels` (Q, n), `valid` (Q,), the result (Q,).
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

    Shapes: `logits` (B, L, 2), `allowed` (B, L), `targets` (B, 2), the result (B,).
    """
    mask = mx.nd.expand_dims((1 - allowed) * MASKED, axis=2)  # (B, L, 1)
    log_probabilities = mx.nd.log_softmax(mx.nd.broadcast_add(logits, mask), axis=1)
    picked = mx.nd.pick(log_probabilities, mx.nd.expand_dims(targets, axis=1), axis=1)  # (B, 2)
    return -mx.nd.mean(picked, axis=1)


def label_cross_entropy(logits: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
    """Cross-entropy of the label of each row.

    Shapes: `logits` (B, n), `labels` (B,), the result (B,).
    """
    return -mx.nd.pick(mx.nd.log_softmax(logits, axis=1), labels, axis=1)
