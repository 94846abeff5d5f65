"""Tensors of a graph that is written, with sizes that are known now or when the graph runs."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple, Union


class Axis(NamedTuple):
    """A size that is known when the graph runs: that of a tensor along an axis."""

    tensor: str
    axis: int


#: Size along an axis; None for one that nothing tells.
Size = Union[int, Axis, None]


class Value(NamedTuple):
    """A tensor of MXNet's graph, and how the ONNX graph stores it.

    MXNet repeats masks for each attention head and joins pairs and heads to one axis. ONNX needs
    neither: its operators broadcast, and multiply matrices over several axes. So a value may be
    stored with size 1 along axes on which it is repeated, and with its first axis in two.

    Attributes
    ----------
    name : str
        Name of the tensor.
    kind : str
        ``"float32"``, ``"int64"`` or ``"bool"``.
    sizes : tuple of Size
        Sizes, of both axes where the first is in two.
    stored : tuple of Size
        Sizes of the tensor: 1 where the value is repeated, and otherwise those of ``sizes``.
    merged : bool
        Whether the first axis of MXNet's tensor is the first two of ``sizes``.
    """

    name: str
    kind: str
    sizes: Tuple[Size, ...]
    stored: Tuple[Size, ...]
    merged: bool = False

    @property
    def rank(self) -> int:
        """Number of axes of MXNet's tensor."""
        return len(self.sizes) - self.merged

    @property
    def is_plain(self) -> bool:
        """Whether the tensor is stored as MXNet has it."""
        return not self.merged and self.sizes == self.stored


def named_sizes(name: str, sizes: Sequence[Size]) -> Tuple[Size, ...]:
    """Sizes of a tensor, those that nothing else tells by itself."""
    result = []
    for index, size in enumerate(sizes):
        result.append(Axis(name, index) if size is None else size)
    return tuple(result)


def product(first: Size, second: Size) -> Size:
    """Size of an axis that two are joined to; None unless both are known."""
    if isinstance(first, int) and isinstance(second, int):
        return first * second
    return None


def broadcast_size(first: Size, second: Size) -> Size:
    """Size of the result of an operator along an axis of its two inputs."""
    if first == 1:
        return second
    if second == 1 or isinstance(first, int):
        return first
    return second if isinstance(second, int) else first


def broadcast_sizes(first: Sequence[Size], second: Sequence[Size]) -> Tuple[Size, ...]:
    """Sizes of the result of an operator on two inputs of the same number of axes."""
    return tuple(broadcast_size(one, other) for one, other in zip(first, second))


def filled(sizes: Sequence[Size], known: Sequence[Optional[int]]) -> Tuple[Size, ...]:
    """Sizes with those that MXNet's inference knows; lists of different lengths are not merged."""
    if len(sizes) != len(known):
        return tuple(sizes)
    result = []
    for size, number in zip(sizes, known):
        result.append(size if number is None else number)
    return tuple(result)
