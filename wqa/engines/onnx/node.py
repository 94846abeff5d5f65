"""A node of MXNet's graph, as the functions that translate operators read it."""

from __future__ import annotations

import ast
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from wqa.engines.onnx.graph import Graph
from wqa.engines.onnx.values import Value
from wqa.errors import OptionError


class Node(NamedTuple):
    """An operator with its inputs.

    Attributes
    ----------
    op : str
        MXNet's name of the operator.
    attributes : dict of str to str
        Its attributes, as the symbol's JSON has them.
    inputs : list of Value
        Values of the inputs.
    sources : list of Node or None
        Operators that computed the inputs; None for inputs and parameters of the network.
    kinds : list of str
        Type of each output.
    known : list of tuple of int or None
        Sizes of each output, None along dynamic axes.
    """

    op: str
    attributes: Dict[str, str]
    inputs: List[Value]
    sources: List[Any]
    kinds: List[str]
    known: List[Tuple[Optional[int], ...]]

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute as a value of Python: a number, tuple, None, or a text."""
        text = self.attributes.get(name)
        if text is None:
            return default
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    def axis(self, name: str = "axis", default: int = -1, index: int = 0) -> int:
        """An axis of an input, from 0."""
        axis = self.attribute(name, default)
        return axis % self.inputs[index].rank

    def check(self, name: str, default: Any, *supported: Any) -> None:
        """Refuse an attribute whose value is not supported."""
        value = self.attribute(name, default)
        if value not in supported:
            raise refusal(f"{self.op} with {name}={value}")

    @property
    def result(self) -> Tuple[str, Tuple[Optional[int], ...]]:
        """Type and sizes of the only output."""
        return self.kinds[0], self.known[0]


#: What translates an operator: from its node to its output, or to its outputs.
Translate = Callable[[Graph, Node], Union[Value, List[Value]]]


def refusal(what: str) -> OptionError:
    """Create the error of an operator that has no translation."""
    return OptionError(
        "format",
        f"onnx for a network with the operator {what}",
        "operators of wqa.engines.onnx.operators",
        "add a function for it there, or take the format mxnet",
    )
