"""Losses, functions of scores and labels alone.

Knowledge distillation (Hinton et al. 2015), as Matsubara et al. 2022 use it in section 3.2.

A ranker has two classes and one score, the log-odds s of the positive one. The softmax of its two
outputs at temperature tau, equations 2 and 3, is then sigmoid(s / tau), whatever the outputs are
that the score is the difference of. Teacher and student need neither the same encoder nor the same
tokenizer.
"""

from __future__ import annotations

from typing import List

from mxnet import nd
from mxnet.ndarray import NDArray

from wqa.models.backbone import MASKED


def cross_entropy(scores: NDArray, labels: NDArray) -> NDArray:
    """Binary cross-entropy of log-odds, point-wise (Soldaini and Moschitti 2020, section 3.1).

    Shapes: `scores` (B,), `labels` (B,), the result (B,).
    """
    # log(1 + exp(s)) - y s, written so that a large s does not overflow.
    size = nd.abs(scores)
    softplus = nd.Activation(-size, act_type="softrelu")
    loss = nd.relu(scores) - scores * labels + softplus
    # MXNet's gradient of relu is 0 at 0, where that of the loss is 1/2 - y. This term is 0
    # everywhere; its gradient is 1/2 at 0 and 0 elsewhere.
    return loss + 0.5 * (scores == 0) * scores


def listwise_divergence(scores: NDArray, labels: NDArray, valid: NDArray) -> NDArray:
    """Kullback-Leibler divergence of the softmax over a list from its normalised labels.

    Bonadiman and Moschitti 2020, section 4.2 (Bian et al. 2017).

    Shapes: `scores` (Q, n), `labels` (Q, n), `valid` (Q,), the result (Q,).
    """
    ones = nd.ones_like(scores)
    real = nd.SequenceMask(ones, valid, use_sequence_length=True, axis=1)  # (Q, n)
    masked = scores * real + (1 - real) * MASKED
    log_probabilities = nd.log_softmax(masked, axis=1)
    positives = nd.sum(labels, axis=1, keepdims=True)
    targets = nd.broadcast_div(labels, positives)  # (Q, n), of sum 1
    likelihood = nd.sum(targets * log_probabilities, axis=1)
    # The m positives of a list have probability 1 / m each, so that their negative entropy is
    # -log(m): the loss is 0 where the softmax equals the labels.
    entropy = nd.log(positives)
    return -likelihood - entropy.reshape((-1,))


def span_cross_entropy(logits: NDArray, allowed: NDArray, targets: NDArray) -> NDArray:
    """Mean cross-entropy of the start and the end of a span (Devlin et al. 2019, section 4.2).

    Shapes: `logits` (B, L, 2), `allowed` (B, L), `targets` (B, 2), the result (B,).
    """
    mask = nd.expand_dims((1 - allowed) * MASKED, axis=2)  # (B, L, 1)
    masked = nd.broadcast_add(logits, mask)
    log_probabilities = nd.log_softmax(masked, axis=1)
    positions = targets.expand_dims(axis=1)  # (B, 1, 2)
    picked = nd.pick(log_probabilities, positions, axis=1)  # (B, 2)
    return -nd.mean(picked, axis=1)


def label_cross_entropy(logits: NDArray, labels: NDArray) -> NDArray:
    """Cross-entropy of the label of each row.

    Shapes: `logits` (B, n), `labels` (B,), the result (B,).
    """
    log_probabilities = nd.log_softmax(logits, axis=1)
    return -nd.pick(log_probabilities, labels, axis=1)


def soft_loss(scores: NDArray, teacher: NDArray, tau: float) -> NDArray:
    """Divergence of the student's probabilities from the teacher's, KL(p, q).

    p is the teacher's distribution over the two classes (Matsubara et al. 2022, equation 2), q the
    student's (equation 3).

    Shapes: `scores` (B,), `teacher` (B,), the result (B,).
    """
    teacher = nd.BlockGrad(teacher) / tau
    target = nd.sigmoid(teacher)
    # KL(p, q) = H(p, q) - H(p). Both are computed from log-odds, so that neither overflows.
    crossed = cross_entropy(scores / tau, target)
    return crossed - cross_entropy(teacher, target)


def distillation_loss(
    scores: NDArray,
    labels: NDArray,
    teacher: NDArray,
    alpha: float,
    tau: float,
) -> NDArray:
    """Loss of a student with one teacher (Matsubara et al. 2022, equation 1).

    Shapes: `scores` (B,), `labels` (B,), `teacher` (B,), the result (B,).
    """
    hard = cross_entropy(scores, labels)
    # tau^2 is a factor at every alpha, as in equation 1, and KL is a mean over rows alone. Common
    # libraries leave tau^2 out at alpha = 0, or take the mean over the classes too.
    soft = tau**2 * soft_loss(scores, teacher, tau)
    return alpha * hard + (1 - alpha) * soft


def teachers_of(teaching: str, index: int, teachers: int, update: int) -> List[int]:
    """Teachers that a score of the student learns from in an update."""
    if teaching == "each":
        return [index]
    if teaching == "sum":
        return list(range(teachers))
    return [(update - 1) % teachers]  # the first teacher in the first update (section 5.2)


def taught_loss(
    scores: NDArray,
    labels: NDArray,
    teachers: NDArray,
    chosen: List[int],
    alpha: float,
    tau: float,
) -> NDArray:
    """Sum of the losses of a student with several teachers.

    Shapes: `scores` (B,), `labels` (B,), `teachers` (B, T), the result (B,).
    """
    losses = []
    for index in chosen:
        teacher = nd.slice_axis(teachers, axis=1, begin=index, end=index + 1)  # (B, 1)
        teacher = nd.reshape(teacher, (-1,))  # (B,)
        losses.append(distillation_loss(scores, labels, teacher, alpha, tau))
    return nd.add_n(*losses)
