"""Recurrent layers over the candidates of questions, all questions at once, step by step.

Cells are those of Gluon's `rnn.RNN` with tanh and of `rnn.LSTM`, whose gates are the input, the
forget, the new memory and the output gate.

Shapes: n candidates of all questions, C units of an encoded pair, H units of a direction.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence, Tuple

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

    @property
    def units(self) -> int:
        """H."""
        return self.hidden_weight.shape[1]

    @property
    def is_lstm(self) -> bool:
        """Whether the cell is an LSTM."""
        return len(self.hidden_weight) == 4 * self.units


class Pass(NamedTuple):
    """What the forward pass of a direction leaves for the backward pass, rows by step."""

    rows: np.ndarray  # (n,) index of the candidate of each row
    hidden: np.ndarray  # (n, H) outputs
    gates: np.ndarray  # (n, G) activations of the gates
    memory: np.ndarray  # (n, H) of an LSTM


def run_forward(direction: Direction, pairs: np.ndarray, steps: Steps, backwards: bool) -> Pass:
    """Run one direction over the candidates of all questions.

    Shapes: `pairs` (n, C).
    """
    rows = steps.rows(backwards)
    gates = np.take(pairs @ direction.input_weight.T, rows, axis=0, mode="clip")
    gates += direction.input_bias + direction.hidden_bias
    hidden = np.empty((len(rows), direction.units), np.float32)
    memory = np.empty((len(rows), direction.units) if direction.is_lstm else (0, 0), np.float32)
    weight = np.ascontiguousarray(direction.hidden_weight.T)
    product = np.empty((steps.starts[1], len(direction.input_bias)), np.float32)
    is_lstm, before = direction.is_lstm, 0  # read once, as a step takes microseconds
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
    return Pass(rows, hidden, gates, memory)


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


def run_backward(
    direction: Direction, pairs: np.ndarray, done: Pass, gradient: np.ndarray, steps: Steps
) -> Tuple[Direction, np.ndarray]:
    """Gradients of one direction.

    Shapes: `pairs` (n, C), `gradient` (n, H), `pairs` (n, C).
    """
    hidden_gradient = gradient[done.rows]
    gates_gradient = np.empty_like(done.gates)
    starts = steps.starts.tolist()
    following = np.zeros((steps.starts[1], direction.units), np.float32)
    memory_gradient = np.zeros_like(following)
    is_lstm = direction.is_lstm
    for step in range(len(starts) - 2, -1, -1):
        start, end = starts[step], starts[step + 1]
        count = end - start
        wanted, result = hidden_gradient[start:end], gates_gradient[start:end]
        wanted += following[:count]
        if is_lstm:
            previous = None
            if start:
                previous = done.memory[starts[step - 1] : starts[step - 1] + count]
            gates, memory = done.gates[start:end], done.memory[start:end]
            _lstm_gradient(gates, previous, memory, wanted, memory_gradient[:count], result)
        else:
            hidden = done.hidden[start:end]
            np.multiply(wanted, 1 - hidden * hidden, out=result)
        np.matmul(result, direction.hidden_weight, out=following[:count])
    bias = gates_gradient.sum(axis=0)
    later = slice(starts[1], None)
    # The row of the same question one step before.
    before = steps.starts[steps.steps[later] - 1] + steps.ranks[later]
    of_hidden = gates_gradient[later].T @ done.hidden[before]
    in_order = np.empty_like(gates_gradient)
    in_order[done.rows] = gates_gradient
    weights = Direction(in_order.T @ pairs, of_hidden, bias, bias)
    return weights, in_order @ direction.input_weight


def _lstm_gradient(
    gates: np.ndarray,
    previous: Any,
    memory: np.ndarray,
    wanted: np.ndarray,
    memory_gradient: np.ndarray,
    result: np.ndarray,
) -> None:
    """One step back; ``memory_gradient`` becomes that of the step before."""
    units = memory.shape[1]
    enters, keeps, new, leaves = (gates[:, i * units : (i + 1) * units] for i in range(4))
    parts = [result[:, i * units : (i + 1) * units] for i in range(4)]
    squashed = np.tanh(memory)
    memory_gradient += wanted * leaves * (1 - squashed * squashed)
    np.multiply(memory_gradient * new, enters * (1 - enters), out=parts[0])
    parts[1][:] = 0
    if previous is not None:
        np.multiply(memory_gradient * previous, keeps * (1 - keeps), out=parts[1])
    np.multiply(memory_gradient * enters, 1 - new * new, out=parts[2])
    np.multiply(wanted * squashed, leaves * (1 - leaves), out=parts[3])
    memory_gradient *= keeps


def run_layer(
    directions: Sequence[Direction], pairs: np.ndarray, steps: Steps
) -> Tuple[np.ndarray, List[Pass]]:
    """Run a recurrent layer of one direction or of two.

    Shapes: `pairs` (n, C), `outputs` (n, units).
    """
    outputs = np.empty((len(pairs), sum(one.units for one in directions)), np.float32)
    passes = []
    column = 0
    for index, direction in enumerate(directions):
        done = run_forward(direction, pairs, steps, backwards=index == 1)
        outputs[done.rows, column : column + direction.units] = done.hidden
        column += direction.units
        passes.append(done)
    return outputs, passes


def run_layer_backward(
    directions: Sequence[Direction],
    pairs: np.ndarray,
    passes: Sequence[Pass],
    gradient: np.ndarray,
    steps: Steps,
) -> Tuple[List[Direction], np.ndarray]:
    """Gradients of a recurrent layer.

    Shapes: `pairs` (n, C), `gradient` (n, units), `pairs` (n, C).
    """
    pairs_gradient = np.zeros_like(pairs)
    parameters = []
    column = 0
    for direction, done in zip(directions, passes):
        own = gradient[:, column : column + direction.units]
        weights, share = run_backward(direction, pairs, done, own, steps)
        parameters.append(weights)
        pairs_gradient += share
        column += direction.units
    return parameters, pairs_gradient
