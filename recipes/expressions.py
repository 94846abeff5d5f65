"""Arithmetic on the figures of files.

A figure is an expression of Python's syntax over cells, such as::

    wikiqa["CT 6 layers", "0.3", "wikiqa_map"] - wikiqa["MT 6 layers", "0", "wikiqa_map"]

A name is a file. The last word in brackets is a column, those before it are a section, if the file
has any, and then the first cells of a row, as many as tell it from all others
(`figure_files`).
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from typing import Any, Callable, Dict, List, Mapping, Sequence, Union

from figure_files import Cell

from wqa.errors import DataError, shorten

Value = Union[float, bool, str, Cell, List[Any]]


def number_of(value: Any) -> float:
    """The number of a value; a cell without one is an error."""
    if isinstance(value, Cell):
        if math.isnan(value.value):
            raise DataError(value.where, shorten(value.text), "a number")
        return value.value
    if isinstance(value, (int, float)):
        return float(value)
    raise ValueError(f"{shorten(value)} is no number")


def _p_value(cell: Any) -> str:
    value = number_of(cell)
    if value < 0.001:
        return "p < 0.001"
    digits = 3 if value < 0.0095 else 2
    return f"p = {value:.{digits}f}"


def _numbers(function: Callable[[List[float]], float]) -> Callable[..., float]:
    return lambda *values: function([number_of(value) for value in values])


#: Functions of expressions.
_FUNCTIONS: Dict[str, Callable] = {
    "abs": lambda value: abs(number_of(value)),
    "deviation": lambda cell: cell.deviation,
    "max": _numbers(max),
    "mean": _numbers(statistics.fmean),
    "min": _numbers(min),
    "p": _p_value,
}
_ARITHMETIC: Dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Dict[type, Callable] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}

#: What a name in an expression stands for: the words in brackets give a value.
Lookup = Callable[[Sequence[str]], Value]


def compute(expression: str, names: Mapping[str, Lookup]) -> Value:
    """Compute an expression over cells.

    Parameters
    ----------
    expression : str
        The expression: names with words in brackets, numbers, ``+ - * /``, comparisons, and the
        functions abs, deviation, max, mean, min and p. With a list of columns, such as
        ``t["row", ["a", "b"]]``, the value is the list of their cells.
    names : mapping of str to callable
        What each name gives for its words, such as `TableFile.cell`.

    Returns
    -------
    Cell, float, bool, str or list
        Its value.

    Raises
    ------
    DataError
        If the expression is malformed, or a cell of it does not exist or has no number.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, names)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError) as error:
        problem = f"{shorten(expression)} cannot be computed ({error})"
        raise DataError("expression", problem, "arithmetic on cells of files") from None


def _value(node: Any, names: Mapping[str, Lookup]) -> Value:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -number_of(_value(node.operand, names))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = (number_of(_value(side, names)) for side in (node.left, node.right))
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and {*map(type, node.ops)} <= set(_COMPARISONS):
        values = [number_of(_value(side, names)) for side in (node.left, *node.comparators)]
        steps = zip(node.ops, values, values[1:])
        return all(_COMPARISONS[type(compare)](left, right) for compare, left, right in steps)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in _FUNCTIONS:
            raise ValueError(f"{node.func.id} is none of {', '.join(_FUNCTIONS)}")
        return _FUNCTIONS[node.func.id](*(_value(argument, names) for argument in node.args))
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id not in names:
            raise ValueError(f"{node.value.id} is none of {', '.join(names)}")
        return _cells(ast.literal_eval(_index(node)), names[node.value.id])
    raise ValueError(f"{type(node).__name__} is no part of one")


def _index(node: ast.Subscript) -> Any:
    """The node in brackets, which Python 3.8 wraps."""
    index: Any = node.slice
    return index.value if type(index).__name__ == "Index" else index


def _cells(words: Any, lookup: Lookup) -> Value:
    if isinstance(words, str):
        words = (words,)
    *keys, column = words
    keys = list(map(str, keys))
    if isinstance(column, list):
        return [lookup([*keys, str(name)]) for name in column]
    return lookup([*keys, str(column)])
