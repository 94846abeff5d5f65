"""What sequences hand on, chosen on development questions."""

import json

import numpy as np
import pytest
from conftest import dev_run
from rankers import ranking_of

from wqa.cli import main
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.errors import OptionError, OutputLocked, RunDirectoryError
from wqa.evaluation import evaluate_ranker
from wqa.evaluation.report import read_rows
from wqa.inference import Capabilities, Cost, Ranker, SequentialRanker
from wqa.inference.dropping import Drop
from wqa.io.files import lock_output
from wqa.systems.load import load_ranker
from wqa.tuning import KEEPS, tune
from wqa.tuning.replay import depends_on_others

DEV = builtin_path("dev")


class Scored(Ranker):
    """Scores by candidate text, at a price; a joint one adds the number of candidates that it reads
    where that is odd."""

    def __init__(self, scores, price=1, joint=False):
        self._scores, self._price, self._joint = scores, price, joint
        self.sizes = []

    @property
    def capabilities(self):
        return Capabilities("scored", joint=self._joint)

    def rank_all(self, questions):
        for question in questions:
            self.sizes.append(len(question.candidates))
            sign = -1 if self._joint and len(question.texts) % 2 else 1
            scores = []
            for text in question.texts:
                scores.append(sign * self._scores[text] if text else -np.inf)
            work = self._price * sum(map(bool, question.texts))
            yield ranking_of(scores, Cost(1.0, work, work, work, work))


def make(texts, labels, qid="q"):
    pairs = zip(texts, labels)
    return Question(qid, "q", tuple(Candidate(text, label) for text, label in pairs))


@pytest.fixture
def questions():
    """The last ranker finds every answer; the first one has it among its best two."""
    return [
        make("abcd", [0, 0, 0, 1], "one"),
        make(["c", "", "b", "a"], [0, 0, 0, 1], "two"),
        make("bdac", [0, 1, 0, 0], "three"),
    ]


FIRST = {"a": 4.0, "b": 1.0, "c": 2.0, "d": 3.0}
LAST = {"a": 0.5, "b": 0.1, "c": 0.2, "d": 0.9}


@pytest.fixture
def tuned(questions, tmp_path, monkeypatch):
    """Tunes a sequence of rankers in memory; returns its result, its file and its rankers."""

    def run(rankers, content=None, **options):
        data, path = tmp_path / "dev.jsonl", tmp_path / "sequence.json"
        write_questions(data, questions)
        content = content or {"rankers": ["x"] * len(rankers)}
        path.write_text(json.dumps(content))
        sequence = SequentialRanker(rankers)
        monkeypatch.setattr("wqa.tuning.drops.load_ranker", lambda path: sequence)
        result = tune(path, data, **options)
        return result, json.loads(path.read_text())

    return run


def keeps_of(configuration):
    return tuple(drop.keep for drop in configuration.drops)


def by_ranking(rankers, questions, **drops):
    [row] = evaluate_ranker(SequentialRanker(rankers), questions, {"x": drops})
    return row


@pytest.mark.parametrize("joint", [False, True])
def test_every_configuration_is_what_the_sequence_gives(questions, tuned, joint):
    """Also where the last ranker reads the candidates together, and a middle one drops some."""

    def rankers():
        return [Scored(FIRST), Scored({"a": 1, "b": 4, "c": 3, "d": 2}, 2), Scored(LAST, 10, joint)]

    result, _ = tuned(rankers(), grid=[3, 1, 2, 9])
    assert result.questions == 3 and result.columns == ("keep_1", "keep_2")
    kept = [keeps_of(configuration) for configuration in result.configurations]
    assert kept == [(a, b) for a in (1, 2, 3, 0) for b in (1, 2, 3, 0)]
    for configuration in result.configurations:
        keep = [number or None for number in keeps_of(configuration)]
        row = by_ranking(rankers(), questions, keep=keep)
        for name, value in configuration.metrics.items():
            assert value == pytest.approx(row[name]), (name, keep)
        assert configuration.cost == pytest.approx(row["cost"])


def test_a_ranker_scores_once_unless_it_reads_candidates_together(tuned):
    for joint in (False, True):
        first, last = Scored(FIRST), Scored(LAST, 10, joint)
        tuned([first, last], grid=[1, 2])
        assert first.sizes == [4, 4, 4]
        # A blank candidate is never handed on.
        expected = [1, 1, 1, 2, 2, 2, 3, 4, 4] if joint else [4, 4, 4]
        assert sorted(last.sizes) == expected


def scores_of_parts(ranker, questions):
    """Scores of every second candidate, ranked with the others and without them."""
    parts = []
    for question in questions:
        ranked = [
            candidate._replace(rank=rank)
            for candidate, rank in zip(question.candidates, question.ranks)
        ]
        parts.append(question._replace(candidates=tuple(ranked[::2])))
    together = [ranking.scores[::2] for ranking in ranker.rank_all(questions)]
    apart = [ranking.scores for ranking in ranker.rank_all(parts)]
    return np.concatenate(together), np.concatenate(apart)


@pytest.mark.parametrize("name", ["rr", "wo", "wo+rr", "random:3", "bm25"])
def test_baselines_say_whether_they_depend_on_other_candidates(name):
    ranker = load_ranker(name)
    together, apart = scores_of_parts(ranker, list(read_questions(DEV))[:5])
    assert depends_on_others(ranker) == (name == "bm25")
    assert np.array_equal(together, apart) == (name != "bm25")


@pytest.mark.parametrize("recurrent", ["none", "birnn"])
def test_networks_on_lists_say_whether_they_read_them_together(recurrent, tiny_words, tmp_path):
    settings = {"max_updates": 2, "learning_rate": 1e-2, "schedule": "slanted"}
    options = {"words": str(tiny_words), "recurrent": recurrent, **settings}
    ranker = load_ranker(dev_run("cosinet", tmp_path / "run", **options))
    together, apart = scores_of_parts(ranker, list(read_questions(DEV))[:5])
    assert depends_on_others(ranker) == (recurrent == "birnn")
    assert np.allclose(together, apart, atol=1e-5) == (recurrent == "none")


def test_what_is_picked_and_stored(tuned):
    """Two candidates are enough for the last ranker; with one, two answers come second."""
    stored = {"rankers": ["wo", "rr"], "drop_ratio": [0.4], "keep": [None]}
    rankers = [Scored(FIRST), Scored(LAST, 10)]
    result, content = tuned(rankers, stored, grid=[1, 2, 3], max_loss=0)
    picked = result.picked
    full = result.configurations[-1]
    assert not full.discards and full.cost == pytest.approx(1.1)
    assert keeps_of(picked) == (2,) and picked.cost < full.cost
    assert picked.metrics["map"] >= full.metrics["map"]
    assert content["keep"] == [2] and "drop_ratio" not in content
    assert content["rankers"] == ["wo", "rr"]
    record = content["tuned"]
    assert record["chosen_by"] == {"metric": "map", "max_loss": 0}
    assert record["metrics"] == picked.metrics and record["questions"] == 3
    rows = read_rows(result.out / "configurations.tsv", ("keep_1", "map"))
    assert [row["keep_1"] for row in rows] == ["1", "2", "3", "all"]
    assert "drop_ratio_1" not in rows[0]
    assert result.to_dict()["front"][-1]["keep_1"] == 2
    assert result.out.name == "sequence.tune"
    # Other limits; without one, the file stays.
    result, content = tuned(rankers, stored, grid=[1, 2, 3], max_cost=0.4)
    assert content["keep"] == [1] and result.picked.cost <= 0.4
    result, content = tuned(rankers, stored, grid=[1], max_loss=0)
    assert content["keep"] == [None] and "drop_ratio" not in content
    assert load_ranker(result.path).drops == (Drop(), Drop())
    result, content = tuned(rankers, stored)
    assert content == stored and result.picked is None


def test_the_numbers_that_are_tried_by_default(tuned):
    """Numbers that no question exceeds, and nothing dropped."""
    result, _ = tuned([Scored(FIRST), Scored(LAST)])
    assert [keeps_of(row) for row in result.configurations] == [
        *((number,) for number in KEEPS if number < 4),
        (0,),
    ]


def test_what_cannot_be_tuned(tuned, tmp_path):
    pair = [Scored(FIRST), Scored(LAST)]
    for options, message in (
        ({"grid": [0]}, "grid: 0; expected whole numbers"),
        ({"grid": [1.5]}, "grid: 1.5; expected whole numbers"),
        ({"grid": []}, "grid: nothing"),
        ({"max_loss": 0, "max_cost": 1}, "max_cost and max_loss: together"),
        ({"max_loss": -1}, "max_loss: -1"),
    ):
        with pytest.raises(OptionError, match=message):
            tuned(pair, **options)
    with pytest.raises(OptionError, match="a sequence of one ranker; expected at least two"):
        tuned(pair[:1])
    with lock_output(tmp_path / "sequence.json"), pytest.raises(OutputLocked):
        tuned(pair)
    (tmp_path / "broken.json").write_text('{"rankers": 7}')
    with pytest.raises(RunDirectoryError, match="broken.json"):
        tune(tmp_path / "broken.json", DEV)


def test_on_the_command_line(tiny_run, tmp_path, capsys):
    """What is stored ranks as was foretold from the scores, by every command."""
    path = tmp_path / "sequence.json"
    entry = {"run": str(tiny_run), "drop_ratio": 0.3}
    path.write_text(json.dumps({"rankers": [str(tiny_run), entry]}))
    arguments = ["tune", str(path), "--data", str(DEV)]
    assert main([*arguments, "--max-loss", "0.02"]) == 0
    out = capsys.readouterr().out
    tuned = json.loads(path.read_text())
    assert f"picked keep_1 {tuned['keep'][0] or 'all'}; map " in out
    flags = ["--data", str(DEV), "--filter", "no-all-negative", "--json", "-"]
    assert main(["evaluate", str(path), *flags]) == 0
    row = json.loads(capsys.readouterr().out)
    record = tuned["tuned"]
    assert row["map"] == pytest.approx(record["metrics"]["map"])
    assert row["cost"] == pytest.approx(record["cost"])
    for option in (["--trials", "3"], ["--seed", "1"]):
        assert main([*arguments, *option]) == 2
        assert f"{option[0]}: with a " in capsys.readouterr().err
    assert main([*arguments, "--grid", "2,x"]) == 2
    assert "--grid: " in capsys.readouterr().err
