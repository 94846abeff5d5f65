"""Knowledge distillation (Hinton et al. 2015), as Matsubara et al. 2022 use it in section 3.2.

A ranker has two classes and one score, the log-odds s of the positive one. The softmax of its two
outputs at temperature tau, equations 2 and 3, is then sigmoid(s / tau), whatever the outputs are
that the score is the difference of. Teacher and student need neither the same encoder nor the same
tokenizer.
"""

from __future__ import annotations

from typing import List

import mxnet as mx

from wqa.training.losses import cross_entropy


def soft_loss(scores: mx.nd.NDArray, teacher: mx.nd.NDArray, tau: float) -> mx.nd.NDArray:
    """Divergence of the student's probabilities from the teacher's, KL(p, q).

    p is the teacher's distribution over the two classes (Matsubara et al. 2022, equation 2), q the
    student's (equation 3).

    Shapes: `scores` (B,), `teacher` (B,), the result (B,).
    """
    teacher = mx.nd.BlockGrad(teacher) / tau
    target = mx.nd.sigmoid(teacher)
    # KL(p, q) = H(p, q) - H(p). Both are computed from log-odds, so that neither overflows.
    return cross_entropy(scores / tau, target) - cross_entropy(teacher, target)


def distillation_loss(
    scores: mx.nd.NDArray,
    labels: mx.nd.NDArray,
    teacher: mx.nd.NDArray,
    alpha: float,
    tau: float,
) -> mx.nd.NDArray:
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
    scores: mx.nd.NDArray,
    labels: mx.nd.NDArray,
    teachers: mx.nd.NDArray,
    chosen: List[int],
    alpha: float,
    tau: float,
) -> mx.nd.NDArray:
    """Sum of the losses of a student with several teachers.

    Shapes: `scores` (B,), `labels` (B,), `teachers` (B, T), the result (B,).
    """
    losses = []
    for index in chosen:
        teacher = mx.nd.slice_axis(teachers, axis=1, begin=index, end=index + 1)  # (B, 1)
        teacher = mx.nd.reshape(teacher, (-1,))  # (B,)
        losses.append(distillation_loss(scores, labels, teacher, alpha, tau))
    return mx.nd.add_n(*losses)
