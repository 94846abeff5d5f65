"""Recurrent layers over the candidates of questions, all questions at once, step by step.

Cells are those of Gluon's `rnn.RNN` with tanh and of `rnn.LSTM`, whose gates are the input, the
forget, the new memory and the output gate.

Shapes: n candidates of all questions, C units of an encoded pair, H units of a direction.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from wqa.engines.sparse.rows import Steps


class Direction(NamedTuple):
    """Parameters of one direction of a recurrent layer, G being H, or 4 H of an LSTM.

    Shapes: `input_weight` (G, C), `hidden_weight` (G, H), `input_bias, hidden_bias` (G,).
    """

    input_weight: np.ndarray
    hidden_weight: np.ndarray
    input_bias: np.ndarray
    hidden_bias: np.ndarray


def _run_direction(
    direction: Direction, pairs: np.ndarray, steps: Steps, backwards: bool
) -> np.ndarray:
    """Run one direction over the candidates of all questions.

    Shapes: `pairs` (n, C), the result (n, H).
    """
    rows, units = steps.rows(backwards), direction.hidden_weight.shape[1]
    is_lstm, before = len(direction.hidden_weight) == 4 * units, 0
    gates = np.take(pairs @ direction.input_weight.T, rows, axis=0, mode="clip")
    gates += direction.input_bias + direction.hidden_bias
    hidden = np.empty((len(rows), units), np.float32)
    memory = np.empty((len(rows), units) if is_lstm else (0, 0), np.float32)
    weight = np.ascontiguousarray(direction.hidden_weight.T)
    product = np.empty((steps.starts[1], len(direction.input_bias)), np.float32)
    for start, end in steps:
        state, count = gates[start:end], end - start
        if start:
            state += np.matmul(hidden[before : before + count], weight, out=product[:count])
        if is_lstm:
            previous = memory[before : before + count] if start else None
            _lstm_cell(state, previous, memory[start:end], hidden[start:end])
        else:
            np.tanh(state, out=hidden[start:end])
        before = start
    outputs = np.empty_like(hidden)
    outputs[rows] = hidden
    return outputs


def _lstm_cell(gates: np.ndarray, previous: Any, memory: np.ndarray, hidden: np.ndarray) -> None:
    """One step of an LSTM; ``gates`` become their activations."""
    units = hidden.shape[1]
    for gate in (gates[:, : 2 * units], gates[:, 3 * units :]):
        # The logistic function, without an overflow.
        np.multiply(gate, 0.5, out=gate)
        np.tanh(gate, out=gate)
        gate += 1
        gate *= 0.5
    new = gates[:, 2 * units : 3 * units]
    np.tanh(new, out=new)
    np.multiply(gates[:, :units], new, out=memory)
    if previous is not None:
        memory += gates[:, units : 2 * units] * previous
    np.multiply(np.tanh(memory), gates[:, 3 * units :], out=hidden)


def run_layer(directions: Sequence[Direction], pairs: np.ndarray, steps: Steps) -> np.ndarray:
    """Run a recurrent layer of one direction or of two.

    Shapes: `pairs` (n, C), the result (n, units).
    """
    outputs = []
    for index, direction in enumerate(directions):
        outputs.append(_run_direction(direction, pairs, steps, backwards=index == 1))
    return np.concatenate(outputs, axis=1)
