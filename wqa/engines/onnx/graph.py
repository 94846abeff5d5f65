"""An ONNX graph while it is made: nodes, constants, and tensors with sizes known now or later.

`Graph` adds nodes. Nodes that no output needs are dropped at the end. Sizes and steps that several
operators need are computed once. `write_graph` writes it, with the weights of all graphs in one
file.
"""

from __future__ import annotations

import collections
import hashlib
import pathlib
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.errors import not_installed

try:
    import onnx
    from onnx import NodeProto, TensorProto, helper, numpy_helper
    from onnx.external_data_helper import set_external_data
except ImportError:
    raise not_installed("onnx", "the extra onnx", "onnx") from None

from wqa.engines.onnx.sessions import WEIGHTS

#: Version of ONNX's operators. The first that has LayerNormalization.
OPSET = 17
#: Version of the file format, which all runtimes with this opset read.
IR_VERSION = 8
#: Least bytes of a constant that is stored outside its graph.
_LARGE = 1024
#: Multiple at which a constant begins, so that runtimes can map it.
_ALIGNMENT = 4096

_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


#: Operators whose result is true or false.
_COMPARISONS = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or")


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


def _broadcast(first: Sequence[Size], second: Sequence[Size]) -> Sequence[Size]:
    """Sizes of the result, where an input of fewer axes has the last ones, each of size 1."""
    if len(first) == len(second):
        return broadcast_sizes(first, second)
    return max(first, second, key=len)


class Graph:
    """A graph to which inputs, nodes and outputs are added, in the order in which they run."""

    def __init__(self) -> None:
        self.constants: Dict[str, np.ndarray] = {}
        self._nodes: List[NodeProto] = []
        self._inputs: List[Any] = []
        self._outputs: List[Any] = []
        self._axes: Dict[Any, Any] = {}  # names of the axes of inputs
        self._numbers: Dict[str, int] = collections.defaultdict(int)
        self._known: Dict[Any, Any] = {}  # values by what computes them
        self._sources: Dict[str, Value] = {}  # inputs of casts by their outputs
        self._permuted: Dict[str, Tuple[Value, Sequence[int]]] = {}  # transposed values

    def input(self, name: str, kind: str, sizes: Sequence[Any]) -> Value:
        """Add an input; a size is a number or the name of a dynamic axis."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(sizes)))
        known: List[Size] = []
        for axis, size in enumerate(sizes):
            self._axes[Axis(name, axis)] = size
            known.append(size if isinstance(size, int) else None)
        return self.value(name, kind, known)

    def output(self, name: str, value: Value) -> None:
        """Add an output, whose dynamic axes have the names of those of the inputs."""
        value = self.plain(value)
        sizes: List[Any] = []
        for axis, size in enumerate(value.sizes):
            is_known = isinstance(size, int)
            sizes.append(size if is_known else self._axes.get(size, f"{name}_{axis}"))
        self._nodes.append(helper.make_node("Identity", [value.name], [name], name=name))
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[value.kind], sizes))

    def constant(self, array: Any, name: str = "") -> Value:
        """A constant by its name, or a small one by its content."""
        array = np.asarray(array, order="C")
        if not name:
            key = (array.dtype.str, array.shape, array.tobytes())
            name = self._known.setdefault(key, f"constant_{len(self._known)}")
        self.constants[name] = array
        return Value(name, str(array.dtype), array.shape, array.shape)

    def array(self, value: Value) -> Optional[np.ndarray]:
        """Content of a constant; None for any other value."""
        return self.constants.get(value.name) if value.is_plain else None

    def is_constant(self, value: Value, number: float) -> bool:
        """Whether a value is a constant of one number."""
        array = self.constants.get(value.name)
        return array is not None and array.size == 1 and float(array.reshape(-1)[0]) == number

    def nodes(self, kind: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> List[str]:
        """Add a node with several outputs, and return their names."""
        self._numbers[kind] += 1
        name = f"{kind}_{self._numbers[kind]}"
        names = [name] if outputs == 1 else [f"{name}_{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        return names

    def node(
        self, op: str, *inputs: Value, kind: str = "", sizes: Any = None, **attributes: Any
    ) -> Value:
        """Add a node of inputs as they are stored.

        The result is by default of the first input's kind, and has the sizes to which ONNX
        broadcasts the inputs.
        """
        [name] = self.nodes(op, [value.name for value in inputs], 1, **attributes)
        if not kind:
            kind = "bool" if op in _COMPARISONS else inputs[0].kind
        if sizes is None:
            sizes = ()
            for value in inputs:
                sizes = _broadcast(sizes, value.stored)
        return self.value(name, kind, sizes)

    def value(self, name: str, kind: str, sizes: Sequence[Size]) -> Value:
        """A tensor by its name; sizes that are None are its own."""
        known = []
        for axis, size in enumerate(sizes):
            known.append(Axis(name, axis) if size is None else size)
        return Value(name, kind, tuple(known), tuple(known))

    def _once(self, key: Any, op: str, *inputs: Value, **keywords: Any) -> Value:
        """`node`, once for all calls with this key."""
        if key not in self._known:
            self._known[key] = self.node(op, *inputs, **keywords)
        return self._known[key]

    def integers(self, *numbers: int) -> Value:
        """A constant list of integers."""
        return self.constant(np.array(numbers, np.int64))

    def shape(self, sizes: Sequence[Size]) -> Value:
        """List of sizes, (n,)."""
        if all(isinstance(size, int) for size in sizes):
            return self.integers(*sizes)  # type: ignore[arg-type]
        parts = [self._size(size) for size in sizes]
        if len(parts) == 1:
            return parts[0]
        key = ("shape", *sizes)
        return self._once(key, "Concat", *parts, axis=0, sizes=(len(parts),))

    def _size(self, size: Size) -> Value:
        """A size as a list of one."""
        if isinstance(size, int):
            return self.integers(size)
        assert isinstance(size, Axis), "a size that nothing tells"
        source = Value(size.tensor, "int64", (), ())
        return self._once(size, "Shape", source, sizes=(1,), start=size.axis, end=size.axis + 1)

    def steps(self, size: Size, kind: str = "int64") -> Value:
        """The numbers from 0 up to a size, (size,)."""
        end = self.node("Squeeze", self._size(size), sizes=())
        ends = self.constant(np.int64(0)), end, self.constant(np.int64(1))
        steps = self._once(("steps", size), "Range", *ends, sizes=(size,))
        return self.cast(steps, kind)

    def cast(self, value: Value, kind: str) -> Value:
        """A value in another type."""
        if value.kind == kind:
            return value
        source = self._sources.get(value.name)
        if source is not None and source.kind == kind:
            return value._replace(name=source.name, kind=kind)
        cast = self._once(("cast", value.name, kind), "Cast", value, kind=kind, to=_TYPES[kind])
        if value.kind == "int64":
            self._sources[cast.name] = value
        return value._replace(name=cast.name, kind=kind)

    def expanded(self, value: Value) -> Value:
        """A value stored in its full sizes."""
        if value.sizes == value.stored:
            return value
        expanded = self.node("Expand", value, self.shape(value.sizes), sizes=value.sizes)
        return value._replace(name=expanded.name, stored=value.sizes)

    def plain(self, value: Value) -> Value:
        """A value stored as MXNet has it."""
        value = self.expanded(value)
        if not value.merged:
            return value
        return self.reshape(value._replace(merged=False), [None, *value.sizes[2:]])

    def reshape(self, value: Value, sizes: Sequence[Size]) -> Value:
        """A plain value in another shape; one size may be None, which follows from the others."""
        target = []
        for index, size in enumerate(sizes):
            own = value.stored[index] if index < len(value.stored) else None
            if isinstance(size, int):
                target.append(size)
            else:
                target.append(0 if size is not None and size == own else -1)
        if target.count(-1) <= 1:
            shape = self.integers(*target)
        else:
            shape = self.shape([-1 if size is None else size for size in sizes])
        return self.node("Reshape", value, shape, sizes=sizes)

    def permute(self, value: Value, axes: Sequence[int]) -> Value:
        """A value with its axes, as it is stored, in another order, by one node."""
        source, before = self._permuted.get(value.name, (value, range(len(axes))))
        order = [before[axis] for axis in axes]
        sizes = tuple(value.sizes[axis] for axis in axes)
        stored = tuple(value.stored[axis] for axis in axes)
        name = self.node("Transpose", source, perm=order, sizes=stored).name
        self._permuted[name] = (source, order)
        return value._replace(name=name, sizes=sizes, stored=stored)

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        """A value with further axes of size 1, as it is stored."""
        sizes, stored = list(value.sizes), list(value.stored)
        for axis in sorted(axes):
            sizes.insert(axis, 1)
            stored.insert(axis, 1)
        name = self.node("Unsqueeze", value, self.integers(*axes), sizes=stored).name
        return value._replace(name=name, sizes=tuple(sizes), stored=tuple(stored))

    def parts(self) -> Tuple[List[NodeProto], Dict[str, np.ndarray], List[Any], List[Any]]:
        """Nodes and constants that the outputs need, the inputs, and the outputs."""
        needed = {output.name for output in self._outputs}
        nodes = []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        constants = {name: self.constants[name] for name in self.constants if name in needed}
        return nodes[::-1], constants, self._inputs, self._outputs


class WeightFile:
    """File of weights, which holds an array of several graphs once.

    Parameters
    ----------
    file : binary file
        New file to write.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: Dict[bytes, Tuple[int, int]] = {}  # first byte and number of bytes

    def add(self, array: np.ndarray) -> Tuple[int, int]:
        """Store an array, and return its first byte in the file and its number of bytes."""
        content = array.tobytes()
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._places[digest] = (self._file.tell(), len(content))
            self._file.write(content)
        return self._places[digest]


def write_graph(
    graph: Graph, path: pathlib.Path, weights: WeightFile, metadata: Mapping[str, str]
) -> None:
    """Write a graph, whose large weights are in the file `WEIGHTS` of the same folder.

    Parameters
    ----------
    graph : Graph
        Graph with its outputs.
    path : pathlib.Path
        New file to write.
    weights : WeightFile
        File of the weights.
    metadata : mapping of str to str
        Properties of the model.
    """
    nodes, constants, inputs, outputs = graph.parts()
    tensors = []
    for name, array in constants.items():
        tensor = numpy_helper.from_array(array, name)
        if array.nbytes >= _LARGE:
            set_external_data(tensor, WEIGHTS, *weights.add(array))
            tensor.ClearField("raw_data")
        tensors.append(tensor)
    model = helper.make_model(
        helper.make_graph(nodes, "wqa", inputs, outputs, tensors),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="wqa",
    )
    helper.set_model_props(model, dict(metadata))
    path.write_bytes(model.SerializeToString())


def check_graphs(folder: pathlib.Path) -> None:
    """Let ONNX's checker read the graphs of a folder, whose weights are written."""
    for path in sorted(folder.glob("*.onnx")):
        onnx.checker.check_model(str(path))
