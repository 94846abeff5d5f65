import json
import math

import pytest

from wqa.cli import main
from wqa.errors import OptionError
from wqa.evaluation.reproducibility import compare_reproduction, kendall_tau_union

QRELS = {"a": {"x": 1, "y": 0, "z": 0}, "b": {"x": 0, "y": 1, "z": 0}}


def run(*orders):
    """A run of the questions a and b, from their orders of documents."""
    scores = {}
    for qid, order in zip(QRELS, orders):
        scores[qid] = {doc: -float(rank) for rank, doc in enumerate(order)}
    return scores


#: Reciprocal ranks 1 and 1; 1 and 1/2; 1/3 and 1/2; 1/2 and 1/2.
BEST, GOOD, POOR, FAIR = run("xyz", "yxz"), run("xyz", "zyx"), run("zyx", "zyx"), run("yxz", "xyz")


@pytest.mark.parametrize(
    "original, reproduced, tau",
    [
        ("xyz", "xyz", 1),
        ("xyz", "zyx", -1),
        ("xyz", "yxz", 1 / 3),  # one of three pairs is discordant
        ("xyz", "xyw", 1),  # w follows x, y and z in the union
        ("xyz", "wxy", -1 / 3),  # indices 3, 0, 1: one pair of three is concordant
        ("xyz", "yx", -1),
    ],
)
def test_kendalls_tau_of_the_union(original, reproduced, tau):
    assert kendall_tau_union(original, reproduced) == pytest.approx(tau)


def test_two_runs_by_hand():
    [row] = compare_reproduction([("o", BEST), ("r", GOOD)], QRELS, "all", ["mrr"])
    assert (row["original"], row["reproduced"]) == (1, 0.75)
    assert row["rmse"] == pytest.approx(math.sqrt(0.25 / 2))  # differences 0 and -1/2
    assert row["t_test"] == pytest.approx(0.5)  # t = -1 with one degree of freedom
    assert row["tau"] == pytest.approx((1 - 1 / 3) / 2)  # y x z, then z y x: indices 2, 0, 1
    assert "effect_ratio" not in row
    [same] = compare_reproduction([("o", BEST), ("r", BEST)], QRELS, "all", ["mrr"])
    assert (same["rmse"], same["t_test"], same["tau"]) == (0, 1, 1)


def test_effects_over_baselines_by_hand():
    runs = [("ob", POOR), ("o", BEST), ("rb", FAIR), ("r", GOOD)]
    [row] = compare_reproduction(runs, QRELS, "all", ["mrr"])
    assert (row["original"], row["reproduced"]) == (1, 0.75)
    # The original gains 1 - 5/12, the reproduction 3/4 - 1/2.
    assert row["effect_ratio"] == pytest.approx((1 / 4) / (7 / 12))
    assert row["delta_ri"] == pytest.approx((7 / 12) / (5 / 12) - (1 / 4) / (1 / 2))
    [none] = compare_reproduction([runs[0], runs[0], *runs[2:]], QRELS, "all", ["mrr"])
    assert math.isnan(none["effect_ratio"]) and none["delta_ri"] == pytest.approx(-0.5)


def test_a_baseline_of_0_has_no_relative_improvement():
    nothing = run("w", "w")
    for runs in ([nothing, BEST, FAIR, GOOD], [POOR, BEST, nothing, GOOD]):
        named = [(str(number), entry) for number, entry in enumerate(runs)]
        [row] = compare_reproduction(named, QRELS, "all", ["mrr"])
        assert math.isnan(row["delta_ri"]) and not math.isnan(row["effect_ratio"])


def test_questions_that_both_leave_out():
    """They count as 0 on demand."""
    runs = [("o", {"a": BEST["a"]}), ("r", {"a": BEST["a"]})]
    [row] = compare_reproduction(runs, QRELS, "all", ["mrr"])
    assert (row["original"], row["reproduced"], row["tau"]) == (1, 1, 1)
    [row] = compare_reproduction(runs, QRELS, "all", ["mrr"], complete=True)
    assert (row["original"], row["reproduced"]) == (0.5, 0.5)


def test_the_command(tmp_path, capsys):
    (tmp_path / "qrels").write_text("a 0 x 1\na 0 y 0\na 0 z 0\nb 0 x 0\nb 0 y 1\nb 0 z 0\n")
    arguments = ["compare", "--qrels", str(tmp_path / "qrels"), "--metrics", "mrr"]
    arguments += ["--reproduction", "--filter", "all"]
    for name, scores in (("o", BEST), ("r", GOOD)):
        path = tmp_path / name
        lines = []
        for qid, docs in scores.items():
            for doc, score in docs.items():
                lines.append(f"{qid} Q0 {doc} 1 {score} t\n")
        path.write_text("".join(lines))
        arguments += ["--run", str(path)]
    assert main([*arguments, "--json", str(tmp_path / "out.json")]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["metric", "original", "reproduced", "rmse", "t_test", "tau"]
    assert line.split() == ["mrr", "100.00", "75.00", "35.36", "0.500", "0.333"]
    assert json.loads((tmp_path / "out.json").read_text())[0]["reproduced"] == 0.75
    assert main([*arguments, "--run", str(tmp_path / "o")]) == 2
    assert "or a baseline before each" in capsys.readouterr().err
    assert main(["compare", "rr", "wo", "--data", "d", "--reproduction"]) == 2
    with pytest.raises(OptionError, match="1 of them"):
        compare_reproduction([("o", BEST)], QRELS)
