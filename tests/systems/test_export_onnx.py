"""Exported graphs of every system beside MXNet, the cascade with its drops, and the folder."""

import dataclasses
import json
import pathlib
import tempfile

import mxnet as mx
import numpy as np
import onnx
import onnxruntime
import pytest
from test_gradients import SIZE

from wqa.cli import main
from wqa.config import BACKBONES, BackboneConfig
from wqa.engines.onnx import operators
from wqa.engines.onnx.dropping import dropping_graph
from wqa.engines.onnx.graph import WeightFile, write_graph
from wqa.engines.onnx.networks import parameters_of, part_graph
from wqa.engines.onnx.sessions import graph_inputs, mask_of
from wqa.errors import RunDirectoryError
from wqa.inference import CascadeRanker
from wqa.inference.calibrated import Calibration
from wqa.systems.dcbert.ranker import DecoupledRanker
from wqa.systems.export_onnx import export_onnx
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.text import PairInputs, SplitPair, TextInput, load_tokenizer

SIZES = {**SIZE, "units": 16, "hidden_size": 32, "max_positions": 48}
FAMILIES = {
    "bert": BackboneConfig(**SIZES),
    "roberta": dataclasses.replace(BACKBONES["roberta_12_768_12"], **SIZES),
    "mpnet": dataclasses.replace(BACKBONES["mpnet_12_768_12"], **SIZES),
    "distilbert": dataclasses.replace(BACKBONES["distilbert_6_768_12"], **SIZES),
    "electra": BackboneConfig(layout="electra", embedding_size=8, **SIZES),
    "albert": BackboneConfig(
        layout="albert", embedding_size=8, shared_layers=True, activation="gelu_tanh", **SIZES
    ),
}
JOINT = {"k": 2, "segment_length": 16}
#: Systems that read one text or pair, or a question with its candidates at once.
SYSTEMS = {
    "cascade": {"exits": (1, 2, 3)},
    "pairwise": {},
    "mhs": {},
    "mspp": {"head": "AE_k", **JOINT},
    "mspp of slots": {"head": "IE_k", "positions": "slots", **JOINT},
    "mspp_claims": {"head": "AE_1", **JOINT},
    "reader": {},
}
#: Batches and lengths; the last length is the greatest.
SHAPES = ((1, 1), (3, 7), (130, 5), (2, 48))
RATIOS = (0, 0.3, 0.4, 0.5, 0.9)


class Tokenizer:
    """Replaces a tokenizer where all texts are ids."""

    padding_id, start_id, separator_id, vocab_size = 0, 1, 2, 60
    pair_form = "bert"


class UntypedTokenizer(Tokenizer):
    """The same for pairs as RoBERTa has them, whose padding is token 1."""

    padding_id, start_id = 1, 0
    pair_form = "roberta"


def network_of(system, backbone, scale=0.2, **options):
    mx.random.seed(7)
    network = build_network(system.split()[0], backbone, **options)
    network.initialize(mx.init.Normal(scale))
    return network


def sessions_of(network, inputs):
    """A session of each graph of a network, by the names of the graphs."""
    types = inputs.array_types()
    parameters = parameters_of(network)
    sessions = {}
    for part in network.graph_parts({name: types[name] for name in inputs.names}):
        sessions[part.name] = session_of(part_graph(part, parameters))
    return sessions


def model_of(graph):
    """Model of a graph, with all weights inside."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with open(folder / "weights.bin", "wb") as weights:
            write_graph(graph, folder / "model.onnx", WeightFile(weights), {})
        return onnx.load(folder / "model.onnx")


def session_of(graph):
    model = model_of(graph)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def draw(rng, network, names, batch, length):
    """Arrays of a network that reads one sequence a row, in MXNet's types."""
    arrays = {}
    for name in names:
        shape = (batch, length)
        if name == "token_types":
            values = rng.integers(0, network.config.token_types, shape)
        elif name == "marks":
            values = rng.integers(-1, length, (batch, 3)).astype(np.float32)
            values[:, 0] = 0  # the question is always there
        elif name == "valid_length":
            values = rng.integers(1, length + 1, batch).astype(np.float32)
        else:
            most = length if name == "positions" else network.config.vocab_size
            values = rng.integers(0, most, shape)
        arrays[name] = values if values.dtype == np.float32 else values.astype(np.int32)
    return arrays


def computed(network, arrays):
    return network(*[mx.nd.array(array, dtype=array.dtype) for array in arrays]).asnumpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_graphs_score_as_the_network_does(system, family):
    network = network_of(system, FAMILIES[family], **SYSTEMS[system])
    inputs = network.text_inputs(Tokenizer(), 48)
    session = sessions_of(network, inputs)["model"]
    rng = np.random.default_rng(1)
    for batch, length in SHAPES:
        arrays = draw(rng, network, inputs.names, batch, length)
        expected = computed(network, arrays.values())
        outputs = session.run(None, graph_inputs(arrays))
        ours = np.stack(outputs, axis=2) if system == "reader" else outputs[0]
        if expected.ndim == 1:
            assert ours.shape == (batch, 1)
            ours = ours[:, 0]
            assert ours.argsort().tolist() == expected.argsort().tolist()
        np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert {value.name for value in session.get_inputs()} >= {"input_ids", "attention_mask"}


def random_pairs(rng, count, longest=40):
    pairs = []
    for length in rng.integers(6, longest, count):
        token_ids = rng.integers(3, 60, length).astype(np.int32)
        pairs.append(TextInput(token_ids, int(length) // 3, False, False))
    return pairs


def pair_feeds(inputs, pairs):
    names = inputs.names
    arrays = dict(zip(names, inputs.pad(pairs)))
    return graph_inputs(arrays)


def cascade_session(network, inputs):
    types = inputs.array_types()
    parts = network.graph_parts({name: types[name] for name in inputs.names})[1:]
    return session_of(dropping_graph(parts, network.exits, parameters_of(network)))


def check_drops(session, ranker, pairs, given, ratio=None, **drops):
    """Hold a graph that drops to its ranker, at one ratio after every exit."""
    given["drop_ratios"] = np.full(len(ranker.network.exits), ratio or 0, np.float32)
    scores, exits, order = session.run(["scores", "exits", "order"], given)
    ranker.set_drops(ratio, **drops)
    [ranking] = ranker.rank_pairs([pairs])
    assert order.tolist() == ranking.order.tolist()
    assert exits.tolist() == ranking.exits.tolist()
    np.testing.assert_allclose(scores, ranking.scores, atol=1e-5)


def check_cascade(session, ranker, pairs, ratio):
    check_drops(session, ranker, pairs, pair_feeds(ranker.inputs, pairs), ratio)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cascade_drops_inside_the_graph_as_its_ranker_does(family):
    network = network_of("cascade", FAMILIES[family], exits=(1, 2, 3))
    tokenizer = UntypedTokenizer() if family == "roberta" else Tokenizer()
    inputs = network.text_inputs(tokenizer, 48)
    session, ranker = cascade_session(network, inputs), CascadeRanker(network, inputs)
    rng = np.random.default_rng(4)
    for count in (1, 2, 17, 130):
        pairs = random_pairs(rng, count)
        for ratio in RATIOS:
            check_cascade(session, ranker, pairs, ratio)
    # floor(0.29 * 100) is 29, though the nearest float to 0.29 is smaller.
    check_cascade(session, ranker, random_pairs(rng, 100), 0.29)


@pytest.mark.parametrize("below", [0.0, 0.2, 0.45, 0.5, 0.55, 0.999])
def test_the_graph_drops_below_a_relevance_as_the_ranker_does(below):
    network = network_of("cascade", FAMILIES["bert"], exits=(1, 2, 3))
    inputs = network.text_inputs(Tokenizer(), 48)
    session, ranker = cascade_session(network, inputs), CascadeRanker(network, inputs)
    ranker.calibration = Calibration((0.5, 2.0, 1.0))
    rng = np.random.default_rng(9)
    with np.errstate(divide="ignore"):
        log_odds = np.log(below / (1 - below))
    for count in (1, 2, 40):
        pairs = random_pairs(rng, count)
        given = pair_feeds(inputs, pairs)
        least = np.array(ranker.calibration.temperatures, np.float32) * log_odds
        given["least_scores"] = least.astype(np.float32)
        check_drops(session, ranker, pairs, given, drop_below=below)


def test_the_interaction_of_texts_drops_inside_a_graph_too():
    options = {"layers": 3, "exits": (1, 2, 3), "question_length": 16}
    network = network_of("dcbert", FAMILIES["bert"], 0.1, **options)
    inputs = network.text_inputs(Tokenizer(), 32)
    types, parameters = inputs.array_types(), parameters_of(network)
    parts = network.graph_parts({name: types[name] for name in inputs.names})
    assert [part.name for part in parts][2:] == ["interaction", "exit_1", "exit_2", "exit_3"]
    session = session_of(dropping_graph(parts[3:], network.exits, parameters))
    ranker = DecoupledRanker(network, inputs)
    rng = np.random.default_rng(10)
    question = rng.integers(3, 60, 9).astype(np.int32)
    documents = [rng.integers(3, 60, length).astype(np.int32) for length in rng.integers(3, 32, 50)]
    texts = [TextInput(ids, len(ids), False, False) for ids in (question, *documents)]
    pairs = [SplitPair(texts[0], text) for text in texts[1:]]
    encoders = ranker.question_encoder, ranker.document_encoder
    sides = encoders[0].encode([question] * 50), encoders[1].encode(documents)
    given = {}
    for name, rows in zip(("question", "document"), sides):
        lengths = [len(row) for row in rows]
        given[name] = np.zeros((50, max(lengths), 16), np.float32)
        for padded, row in zip(given[name], rows):
            padded[: len(row)] = row
        given[f"{name}_mask"] = mask_of(lengths, max(lengths))
    for ratio in RATIOS:
        check_drops(session, ranker, pairs, given, ratio)


def test_candidates_that_tie_keep_their_order_in_the_graph():
    network = network_of("cascade", FAMILIES["bert"], exits=(1, 2, 3))
    inputs = network.text_inputs(Tokenizer(), 48)
    session, ranker = cascade_session(network, inputs), CascadeRanker(network, inputs)
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 6, 40)
    different = random_pairs(rng, 6)
    for ratio in RATIOS:
        check_cascade(session, ranker, [different[n] for n in numbers], ratio)
    for head in network.heads:  # all scores are equal
        head.out.weight.set_data(mx.nd.zeros_like(head.out.weight.data()))
    session = cascade_session(network, inputs)
    for ratio in RATIOS:
        check_cascade(session, ranker, random_pairs(rng, 33), ratio)


def test_no_candidates_give_no_rows_and_a_ratio_outside_its_range_is_an_error():
    network = network_of("cascade", FAMILIES["bert"], exits=(1, 2, 3))
    inputs = network.text_inputs(Tokenizer(), 48)
    session = cascade_session(network, inputs)
    given = pair_feeds(inputs, random_pairs(np.random.default_rng(8), 5))
    nothing = {name: array[:0] for name, array in given.items()}
    for values in session.run(None, {**nothing, "drop_ratios": np.zeros(3, np.float32)}):
        assert values.shape == (0,)
    for ratio in (float("nan"), -0.1, 1):
        with pytest.raises(Exception, match="TopK"):
            session.run(None, {**given, "drop_ratios": np.full(3, ratio, np.float32)})


def test_later_stages_run_for_survivors_alone(tmp_path):
    network = network_of("cascade", FAMILIES["bert"], exits=(1, 2, 3))
    inputs = network.text_inputs(Tokenizer(), 48)
    types = inputs.array_types()
    parts = network.graph_parts({name: types[name] for name in inputs.names})[1:]
    graph = dropping_graph(parts, network.exits, parameters_of(network))
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    model = model_of(graph).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = pair_feeds(inputs, random_pairs(np.random.default_rng(6), 40))
    session.run(None, {**given, "drop_ratios": np.full(3, 0.5, np.float32)})
    with open(session.end_profiling(), encoding="utf-8") as file:
        text = file.read()
    rows = set()
    for event in json.loads(text):
        if event.get("args", {}).get("op_name") == "Softmax":
            [shape] = event["args"]["output_type_shape"]
            rows.add(shape["float"][0])
    assert rows == {40, 20, 10}


def test_an_exported_folder_is_described_and_ranks_texts_as_its_run(exported, tiny_run):
    names = ["dropping", "exit_1", "exit_2", "exit_3", "model"]
    others = ["README.md", "config.json", "tokenizer.json", "weights.bin"]
    assert sorted(path.name for path in exported.iterdir()) == sorted(
        [*others, *(f"{name}.onnx" for name in names)]
    )
    config = json.loads((exported / "config.json").read_text())
    assert (config["system"], config["exits"], config["opset"]) == ("cascade", [1, 2, 3], 17)
    assert config["stages"] == ["exit_1", "exit_2", "exit_3"]
    assert config["graphs"]["dropping"]["outputs"] == ["scores", "exits", "order"]
    unchecked = {"README.md"}
    assert set(config["sha256"]) == {path.name for path in exported.iterdir()} - unchecked
    for name in names:
        path = exported / f"{name}.onnx"
        onnx.checker.check_model(str(path), full_check=True)
        properties = {one.key: one.value for one in onnx.load(path).metadata_props}
        assert properties["run_sha256"] == config["digest"]
        assert (properties["system"], properties["max_length"]) == ("cascade", "64")
    question, candidates = "how are caves formed ?", ["Ice melts.", "The moon.", "A cave is dark."]
    texts = PairInputs(load_tokenizer(exported), config["max_length"])
    given = pair_feeds(texts, texts.encode(question, candidates))
    session = onnxruntime.InferenceSession(str(exported / "dropping.onnx"))
    given["drop_ratios"] = np.array([0.5, 0.5, 0], np.float32)
    _, exits, order = session.run(None, given)
    ranking = load_ranker(tiny_run, drop_ratio=0.5).rank(question, candidates)
    assert order.tolist() == ranking.order.tolist() and exits.tolist() == ranking.exits.tolist()


def test_an_export_is_whole_or_absent(tiny_run, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    monkeypatch.delitem(operators.OPERATORS, "LayerNorm")
    assert main(["export", str(tiny_run), str(out), "--format", "onnx"]) == 2
    assert "a network with the operator LayerNorm" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_is_refused(exported, tmp_path):
    with pytest.raises(RunDirectoryError):
        export_onnx(exported, tmp_path / "out")
    with pytest.raises(RunDirectoryError, match="there is no such directory"):
        export_onnx(tmp_path / "missing", tmp_path / "out")
