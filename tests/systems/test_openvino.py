"""The graphs of `test_export_onnx` in OpenVINO, where it is installed."""

from typing import NamedTuple

import pytest

pytest.importorskip("openvino")

import openvino
import test_export_onnx as exports


class Input(NamedTuple):
    """An input of a graph."""

    name: str


class Compiled:
    """A graph that OpenVINO has compiled, with the methods of ONNX Runtime's session."""

    def __init__(self, graph):
        settings = {"INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Core().read_model(exports.model_of(graph).SerializeToString())
        self._model = openvino.compile_model(model, "CPU", settings)

    def get_inputs(self):
        return [Input(value.any_name) for value in self._model.inputs]

    def run(self, names, given):
        read = [value.name for value in self.get_inputs()]  # OpenVINO removes those without effect
        results = self._model({name: given[name] for name in read})
        outputs = self._model.outputs
        if names is not None:
            outputs = [self._model.output(name) for name in names]
        return [results[output] for output in outputs]


@pytest.fixture(autouse=True)
def in_openvino(monkeypatch):
    monkeypatch.setattr(exports, "session_of", Compiled)


@pytest.mark.parametrize("family", exports.FAMILIES)
@pytest.mark.parametrize("system", exports.SYSTEMS)
def test_graphs_score_as_the_network_does(system, family):
    exports.test_graphs_score_as_the_network_does(system, family)


@pytest.mark.parametrize("family", exports.FAMILIES)
def test_a_cascade_drops_inside_the_graph_as_its_ranker_does(family):
    exports.test_a_cascade_drops_inside_the_graph_as_its_ranker_does(family)


def test_candidates_that_tie_keep_their_order_in_the_graph():
    exports.test_candidates_that_tie_keep_their_order_in_the_graph()


def test_the_interaction_of_texts_drops_inside_a_graph_too():
    exports.test_the_interaction_of_texts_drops_inside_a_graph_too()
