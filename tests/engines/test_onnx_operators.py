"""Each translated operator beside MXNet's, at several sizes, and what is refused."""

import mxnet as mx
import numpy as np
import onnx
import onnxruntime
import pytest
from test_export_onnx import model_of

from wqa.engines.onnx.graph import Graph
from wqa.engines.onnx.networks import translate
from wqa.errors import OptionError

#: Sizes of the dynamic axes of the cases.
SIZES = ({"rows": 1, "steps": 1}, {"rows": 3, "steps": 7}, {"rows": 5, "steps": 2})
#: Inputs of all cases.
INPUTS = {
    "x": ("float32", ("rows", "steps", 6)),
    "y": ("float32", ("rows", "steps", 6)),
    "lengths": ("float32", ("rows",)),
    "ids": ("int32", ("rows", "steps")),
    "table": ("float32", (9, 4)),
}
F = mx.sym


def joined(x):
    """A value whose first axes were joined, and the whole mask in its full size."""
    return F.reshape(F.expand_dims(x, axis=1), (-3, 0, 0)) + 1


def lookups(ids, table):
    """Rows by ids, and by numbers that are clipped."""
    rows = F.Embedding(ids, table, input_dim=9, output_dim=4)
    return rows + F.take(table, (F.cast(ids, "float32") - 2) * 3)


def row_numbers(x):
    """The numbers of all rows, and of the positions."""
    numbers = F.contrib.arange_like(F.slice_axis(x, axis=2, begin=0, end=1))
    steps = F.contrib.arange_like(x, axis=1)
    return F.broadcast_add(numbers, F.reshape(steps, (1, -1, 1)))


CASES = {
    "joined": lambda x: joined(x),
    "joined and a softmax": lambda x: F.softmax(joined(x), axis=0),
    "lookups": lambda ids, table: lookups(ids, table),
    "row numbers": lambda x: row_numbers(x),
    "copy and infer": lambda x: F.reshape(x, (0, -1)),
    "copy all": lambda x: F.reshape(x, (-3, -2)),
    "a column": lambda lengths: F.reshape(lengths, (-1, 1)),
    "like": lambda x, ids: F.reshape_like(F.reshape(x, (-3, 0)), ids, 0, 1, 0, 2),
    "mask of steps first": lambda x, lengths: F.SequenceMask(
        F.swapaxes(x, 0, 1), lengths, use_sequence_length=True
    ),
    "reverse": lambda x, lengths: F.SequenceReverse(
        F.swapaxes(x, 0, 1), lengths, use_sequence_length=True
    ),
    "parts": lambda x: F.concat(*reversed(F.split(x, num_outputs=3, axis=2)), dim=2),
    "stack": lambda x, y: F.stack(x, y, axis=1),
    "sums": lambda x: F.broadcast_div(x, F.sum(F.exp(x), axis=(1, 2), keepdims=True)),
    "sum of all": lambda x: F.sum(x),
    "reductions": lambda x: F.max(x, axis=1) - F.sum(x, axis=1),
    "comparisons": lambda x, y: (x > 0) + (x >= 0) * 2 + (x != 1) + F.broadcast_lesser(y, x),
    "integers": lambda ids: F.cast(F.cumsum(ids, axis=1), "float32"),
    "numbers": lambda x: F.broadcast_div((1 - x) * 3 / 2, 2 + F.abs(x)) + F.square(x) - 1,
    "gelu": lambda x: F.LeakyReLU(x, act_type="gelu"),
    "choice": lambda x, y: F.where(x > 0, x, y),
    "unit rows": lambda x: F.L2Normalization(F.sum(x, axis=1)),
    "products with computed weights": lambda x: F.FullyConnected(
        x,
        F.exp(F.slice_axis(F.reshape(x, (-3, 0)), axis=0, begin=0, end=1)),
        num_hidden=1,
        no_bias=True,
        flatten=False,
    ),
}


def runtime(graph, symbol_outputs):
    """A session of a graph whose outputs have any sizes, once ONNX's checker has passed it."""
    for index, value in enumerate(symbol_outputs):
        graph.output(f"output_{index}", value)
    model = model_of(graph)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def session_of(symbol, inputs, parameters):
    graph, values = Graph(), {}
    for name, (kind, sizes) in inputs.items():
        values[name] = graph.input(name, "int64" if kind == "int32" else kind, sizes)
    return runtime(graph, translate(graph, symbol, inputs, values, parameters))


def agree(symbol, inputs, parameters=(), tolerance=1e-6):
    """Compare a symbol with its translation, at all sizes."""
    arrays = {name: array for name, (_, array) in dict(parameters).items()}
    session = session_of(symbol, inputs, dict(parameters))
    rng = np.random.default_rng(3)
    for sizes in SIZES:
        given = {}
        for name, (_, axes) in inputs.items():
            shape = [sizes.get(size, size) for size in axes]
            values = rng.standard_normal(shape).astype(np.float32)
            if name == "lengths":
                values = rng.integers(1, sizes["steps"] + 1, shape).astype(np.float32)
            given[name] = rng.integers(0, 9, shape) if name == "ids" else values
        bound = {name: mx.nd.array(array) for name, array in arrays.items()}
        for name, values in given.items():
            bound[name] = mx.nd.array(values, dtype=inputs[name][0])
        expected = symbol.bind(mx.cpu(), bound).forward()
        for ours, theirs in zip(session.run(None, given), expected):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs.asnumpy(), atol=tolerance, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_mxnet_computes(name):
    function = CASES[name]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    symbol = function(*[F.var(argument) for argument in names])
    agree(symbol, {argument: INPUTS[argument] for argument in names})


@pytest.mark.parametrize("mode", ["rnn_tanh", "lstm"])
def test_recurrent_layers_have_their_gates_in_onnx_order(mode):
    layer = {
        "rnn_tanh": lambda: mx.gluon.rnn.RNN(5, activation="tanh", input_size=6),
        "lstm": lambda: mx.gluon.rnn.LSTM(5, input_size=6),
    }[mode]()
    mx.random.seed(1)
    layer.initialize(mx.init.Normal(0.5))
    symbol = layer(F.swapaxes(F.var("x"), 0, 1))
    agree(symbol, {"x": INPUTS["x"]}, parameters_of(layer))


def parameters_of(block):
    parameters = {}
    for name, parameter in block.collect_params().items():
        parameters[name] = (name, parameter.data().asnumpy())
    return parameters


def test_a_joint_product_becomes_three_and_a_mask_is_not_repeated():
    qkv = mx.gluon.nn.Dense(18, flatten=False, in_units=6)
    mx.random.seed(4)
    qkv.initialize(mx.init.Normal(0.5))
    joint = F.transpose(F.reshape(qkv(F.var("x")), (0, 0, 3, 2, -1)), (2, 0, 3, 1, 4))
    parts = F.split(joint, num_outputs=3, axis=0, squeeze_axis=True)
    query, key, value = (F.reshape(part, (-3, 0, 0)) for part in parts)
    symbol = F.batch_dot(F.softmax(F.batch_dot(query, key, transpose_b=True)), value)
    inputs = {"x": INPUTS["x"]}
    agree(symbol, inputs, parameters_of(qkv))
    graph = Graph()
    values = {"x": graph.input("x", "float32", INPUTS["x"][1])}
    [output] = translate(graph, symbol, inputs, values, parameters_of(qkv))
    graph.output("output", output)
    kinds = [node.op_type for node in graph.parts()[0]]
    assert kinds.count("MatMul") == 5 and kinds.count("Transpose") == 3
    assert not {"Split", "Expand"} & set(kinds)


@pytest.mark.parametrize(
    "symbol, message",
    [
        (lambda x: F.SVMOutput(x, x), "operator SVMOutput"),
        (lambda x: 2 / x, "operator _rdiv_scalar"),
        (lambda x: F.LeakyReLU(x, act_type="elu"), "LeakyReLU with act_type=elu"),
        (lambda x: F.softmax(x, temperature=2.0), "softmax with temperature=2.0"),
        (lambda x: F.L2Normalization(x), "L2Normalization of 3 axes"),
        (lambda x: F.LayerNorm(x, F.var("lengths"), F.var("lengths"), axis=0), "LayerNorm"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(symbol, message):
    symbol = symbol(F.var("x"))
    inputs = {name: INPUTS[name] for name in symbol.list_inputs()}
    with pytest.raises(OptionError, match="format: onnx for a network with the operator") as caught:
        session_of(symbol, inputs, {})
    assert message in str(caught.value)
