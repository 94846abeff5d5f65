"""The real commands, end to end, in a process of their own."""

import gzip
import json
import os
import re
import shlex
import shutil

import pytest
from conftest import logged, needs_precision, run_python

from wqa.cli import COMMANDS, main, parse
from wqa.cli.parser import MOVED
from wqa.cli.train import training_config
from wqa.data import builtin_path, read_questions
from wqa.evaluation import evaluate_ranker, read_run
from wqa.systems.load import load_ranker


@pytest.fixture
def run_line(run_main):
    """Run a command line in this process; further words come after it."""
    return lambda line, *more: run_main(*shlex.split(line), *more)


def test_train_evaluate_rank(tiny_encoder, tmp_path, run_line):
    run, dev = tmp_path / "run", builtin_path("dev")
    code, out, err = run_line(
        f"train cascade --encoder {tiny_encoder} --train {dev} --dev {dev} --out {run} "
        f"--exits 1,3 --epochs 2 --learning-rate 1e-2 --warmup-updates 2 --max-length 64 "
        f"--seed 5"
    )
    assert code == 0 and "best dev MAP" in out, err
    evaluations = logged(run, "dev")
    assert len(evaluations) == 2
    assert {"map", "mrr", "p@1", "ndcg@10", "exit_1_map"} <= set(evaluations[0])
    assert json.loads((run / "config.json").read_text())["training"]["seed"] == 5

    code, out, _ = run_line(
        f"evaluate {run} --data {dev} --drop-ratio 0 --drop-ratio 0.5 --filter clean "
        f"--per-exit --json {tmp_path}/figures.json"
    )
    rows = json.loads((tmp_path / "figures.json").read_text())
    assert code == 0 and out.startswith("25 questions scored, filter clean") and len(rows) == 4
    assert rows[0]["map"] == pytest.approx(max(line["map"] for line in evaluations))
    assert rows[0]["cost"] == 1 and rows[1]["cost"] == pytest.approx(1 / 3 + 2 / 3 * 0.5, abs=0.02)
    assert [row["drop_ratio"] for row in rows] == ["0", "0.5", "exit 1", "exit 3"]
    assert rows[3]["map"] == rows[0]["map"]
    assert rows[1]["seconds"] > 0 and rows[2]["seconds"] is None  # an exit on its own was not timed

    question = ("--question", "what is a glacier ?", "--candidates", "-")
    rank = ("-m", "wqa", "rank", run, *question, "--drop-ratio", "0.5", "--top-k", "3")
    done = run_python(*rank, input="ice\n\nthe moon is bright\na body of slow ice\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5 and "cost" in done.stdout.splitlines()[-1]


def test_trec_files_score_as_the_run_did(tiny_run, tmp_path, run_main, run_line):
    dev = builtin_path("dev")
    code, out, _ = run_line(
        f"evaluate {tiny_run} --data {dev} --drop-ratio 0.4 --trec-run {tmp_path}/run "
        f"--write-qrels {tmp_path}/qrels --json -"
    )
    first = json.loads(out)
    assert code == 0 and len(read_run(tmp_path / "run")) == 25
    code, out, _ = run_main(
        "evaluate", "--run", tmp_path / "run", "--qrels", tmp_path / "qrels", "--json", "-"
    )
    second = json.loads(out)
    for name in ("map", "mrr", "p@1", "ndcg@10"):
        assert first[name] == pytest.approx(second[name])
    lines = (tmp_path / "run").read_text().splitlines(keepends=True)
    first_id = lines[0].split()[0]
    (tmp_path / "run").write_text("".join(line for line in lines if line.split()[0] != first_id))
    code, out, err = run_main("evaluate", "--run", tmp_path / "run", "--qrels", tmp_path / "qrels")
    assert code == 0 and "24 questions scored" in out
    assert "1 judged questions are not in the run" in err


def test_rank_as_json_and_table(tiny_run, tmp_path, run_line):
    question = next(read_questions(builtin_path("test")))
    (tmp_path / "c.txt").write_text(
        "\n".join([*question.texts, "", "word " * 200]), encoding="utf-8"
    )
    line = f"rank {tiny_run} --candidates {tmp_path}/c.txt --drop-ratio 0.5,0.2"
    arguments = (line, "--question", question.question)
    code, out, _ = run_line(*arguments, "--json", "-")
    ranking = json.loads(out)["ranking"]
    k = len(question.texts)
    assert code == 0 and [row["rank"] for row in ranking] == list(range(1, k + 3))
    assert sorted(row["index"] for row in ranking) == list(range(k + 2))
    blank = ranking[-1]
    assert blank["blank"] and blank["score"] is None and blank["exit"] == 0 and blank["index"] == k
    by_index = sorted(ranking, key=lambda row: row["index"])
    assert [row["truncated"] for row in by_index] == [False] * (k + 1) + [True]
    exits = [row["exit"] for row in ranking]
    assert exits == sorted(exits, reverse=True) and set(exits) == {0, 1, 2, 3}
    code, out, _ = run_line(*arguments, "--json", tmp_path / "ranking.json")
    assert json.loads((tmp_path / "ranking.json").read_text())["ranking"] == ranking
    assert out.splitlines()[0].split() == ["rank", "score", "exit", "sentence"]
    assert len(out.splitlines()) == k + 4
    assert all(note in out for note in ("(dropped at exit 1)", "(blank)", "(shortened)"))


@needs_precision("int8")
def test_quantize_then_rank(tiny_run, tmp_path, run_main, refusal):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    code, out, _ = run_main("quantize", run, "--data", builtin_path("dev"), "--questions", "2")
    assert code == 0 and "calibrated on" in out
    code, out, _ = run_main(
        "evaluate", run, "--data", builtin_path("test"), "--precision", "int8", "--json", "-"
    )
    assert code == 0 and json.loads(out)["map"] > 0
    error = refusal("quantize", run, "--data", builtin_path("dev"), "--questions", "0")
    assert "--questions" in error


def test_bench(tiny_run, run_main):
    code, out, _ = run_main(
        "bench", tiny_run, "--data", builtin_path("dev"), "--rounds", "1", "--json", "-"
    )
    rows = json.loads(out)
    assert code == 0 and [row["drop_ratio"] for row in rows] == ["0", "0.3", "0.4", "0.5"]
    assert rows[0]["time_ratio"] == rows[0]["cost"] == 1 and rows[3]["cost"] < rows[1]["cost"] < 1


def test_tune_and_what_it_stores(tiny_run, tmp_path, run_main, refusal):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    dev = builtin_path("dev")
    code, out, err = run_main("tune", run, "--data", dev, "--max-cost", "0.7")
    assert code == 0 and "36 configurations" in out and "Pareto front" in out, err
    header, *rows = (run / "tune" / "configurations.tsv").read_text().splitlines()
    names = ["exit_1", "exit_2", "cost", "paper_cost", "map", "mrr", "p@1", "ndcg@10"]
    assert header.split("\t") == names and len(rows) == 36
    front = (run / "tune" / "pareto.tsv").read_text().splitlines()
    assert 2 <= len(front) <= 37 and set(front[1:]) <= set(rows)
    tuned = json.loads((run / "tuned.json").read_text())
    assert tuned["cost"] <= 0.7
    assert tuned["chosen_by"] == {"metric": "map", "max_cost": 0.7}
    # The stored configuration ranks as was foretold from the scores, and Python finds it as well.
    data = ("--data", dev, "--drop-ratio", "tuned", "--json", "-")
    code, out, _ = run_main("evaluate", run, *data, "--filter", "no-all-negative")
    row = json.loads(out)
    assert row["map"] == pytest.approx(tuned["metrics"]["map"])
    assert row["cost"] == pytest.approx(tuned["cost"])
    assert load_ranker(run, drop_ratio="tuned").drop_ratio == tuned["drop_ratio"]
    code, out, _ = run_main("bench", run, *data, "--rounds", "1")
    rows = json.loads(out)
    assert code == 0 and [row["drop_ratio"] for row in rows] == ["0", "tuned"]
    assert rows[1]["cost"] == pytest.approx(tuned["cost"])
    (tmp_path / "candidates.txt").write_text("one\n")
    question = ("--question", "q ?", "--candidates", tmp_path / "candidates.txt")
    for text in ("{", '{"drop_ratio": [0.1]}', '{"drop_ratio": 7}', "[]"):
        (run / "tuned.json").write_text(text)
        assert "tuned.json" in refusal("rank", run, *question, "--drop-ratio", "tuned")


def test_two_runs_are_compared(tiny_run, run_main):
    dev = builtin_path("dev")
    runs = ("evaluate", tiny_run, tiny_run, "--data", dev)
    code, out, _ = run_main(*runs, "--drop-ratio", "0", "--drop-ratio", "0.6", "--metrics", "map")
    assert code == 0 and "t_test  wilcoxon  spearman  spearman_p" in out and "Spearman's rho" in out
    assert f"{tiny_run} at 0.6 less {tiny_run} at 0;" in out
    code, out, _ = run_main(*runs, "--json", "-", "--metrics", "map,p@1")
    result = json.loads(out)
    [comparison] = result["comparisons"]
    first, second = result["rows"]
    assert comparison["spearman"] == 1 and comparison["metrics"][0]["t_test"] == 1
    assert first["map"] == second["map"] == pytest.approx(comparison["metrics"][0]["first"])
    assert [row["metric"] for row in comparison["metrics"]] == ["map", "p@1"]
    # Settings belong to the RUNs in the order of the command line, whichever option gives them.
    code, out, _ = run_main(*runs, "--keep", "4,2", "--drop-ratio", "0.6,0", "--json", "-")
    result = json.loads(out)
    assert [row["drop_ratio"] for row in result["rows"]] == ["keep=4,2", "0.6,0"]
    assert result["comparisons"][0]["first"] == f"{tiny_run} at keep=4,2"


def test_every_command_gives_the_same_figure(tiny_encoder, jsonl, tmp_path, run_main):
    """Of one run on one file; all leave out the questions without an answer, and say so."""
    questions = list(read_questions(builtin_path("dev")))
    lines = []
    for number, question in enumerate(questions):
        candidates = []
        for text, label in zip(question.texts, question.labels):
            candidates.append({"text": text, "label": label if number % 3 else 0})
        entry = {"id": question.id, "question": question.question, "candidates": candidates}
        lines.append(json.dumps(entry))
    dev, run, unanswered = jsonl(*lines), tmp_path / "run", (len(lines) + 2) // 3
    qrels, trec = tmp_path / "qrels", tmp_path / "run.trec"
    figures, notes = {}, {}

    def keep(name, figure, *arguments):
        code, out, notes[name] = run_main(*arguments)
        assert code == 0, notes[name]
        figures[name] = figure(out)

    def of_row(out):
        return json.loads(out)["map"]

    def of_training(_):
        return logged(run, "dev")[-1]["map"]

    train = ("train", "cascade", "--encoder", tiny_encoder, "--train", builtin_path("dev"))
    train += ("--dev", dev, "--out", run, "--exits", "1,3", "--max-updates", 2, "--eval-every", 2)
    keep("train", of_training, *train, "--warmup-updates", 1, "--learning-rate", 1e-2)
    data = ("--data", dev, "--json", "-")
    files = ("--trec-run", trec, "--write-qrels", qrels)
    keep("evaluate", of_row, "evaluate", run, *data, *files)
    tune = ("tune", run, *data, "--grid", 0)
    keep("tune", lambda out: json.loads(out)["front"][0]["map"], *tune)
    keep("compare", lambda out: json.loads(out)["rows"][0]["map"], "evaluate", run, run, *data)
    keep("seeds", lambda out: json.loads(out)[0]["map"], "evaluate", run, run, "--seeds", *data)
    assert len({f"{figure:.9f}" for figure in figures.values()}) == 1, figures
    note = f"{unanswered} of {len(lines)} questions are left out by the filter no-all-negative; un"
    assert all(err.count(note) == 1 for err in notes.values()), notes

    keep("all", of_row, "evaluate", run, *data, "--filter", "all", *files)
    share = 1 - unanswered / len(lines)
    assert figures["all"] == pytest.approx(share * figures["evaluate"])
    assert f"{unanswered} of {len(lines)} questions have no correct candidate" in notes["all"]
    keep("trec", of_row, "evaluate", "--run", trec, "--qrels", qrels, "--json", "-")
    assert figures["trec"] == pytest.approx(figures["evaluate"])
    assert note in notes["trec"]
    # A total counts all questions, unless a filter is given that leaves some out.
    total = ("--total", len(lines) + 1)
    keep("total", of_row, "evaluate", run, *data, *total)
    assert figures["total"] == pytest.approx(figures["all"] * len(lines) / (len(lines) + 1))
    code, _, err = run_main("evaluate", run, *data, *total, "--filter", "no-all-negative")
    assert code == 2 and "--total: with the filter no-all-negative" in err
    [row] = evaluate_ranker(load_ranker("rr"), questions, total=len(questions))
    assert row["filter"] == "all"


def test_two_trec_runs_are_compared(tiny_run, tmp_path, run_main, run_line):
    names = [tmp_path / "run.0", tmp_path / "run.keep=2"]
    run_line(
        f"evaluate {tiny_run} --data {builtin_path('dev')} --drop-ratio 0 --keep 2 --trec-run "
        f"{tmp_path}/run.{{}} --write-qrels {tmp_path}/qrels"
    )
    arguments = ("evaluate", "--run", names[0], "--run", names[1], "--qrels", tmp_path / "qrels")
    code, out, err = run_main(*arguments, "--json", "-")
    result = json.loads(out)
    assert code == 0 and result["comparisons"][0]["metrics"][0]["questions"] == 25, err
    assert [row["run"] for row in result["rows"]] == [str(name) for name in names]


def test_tokenize_then_train(tiny_encoder, tmp_path, run_main, run_line):
    store, length = tmp_path / "dev.store", ("--max-length", "64")
    tokenize = ("--data", builtin_path("dev"), "--out", store, *length)
    code, out, err = run_main("tokenize", "--encoder", tiny_encoder, *tokenize)
    assert code == 0 and "25 questions, " in out, err
    train = f"train pairwise --encoder {tiny_encoder} --train {store} --max-updates 2 "
    train += f"--out {tmp_path}/run"
    code, _, err = run_line(train)
    assert code == 2 and "made with max_length 64" in err.splitlines()[-1]
    code, out, err = run_line(train, *length, "--shuffle", "question")
    assert code == 0 and "2 updates" in out, err
    # The run's tokenizer is the encoder's: the store stands.
    assert run_main("tokenize", "--init", tmp_path / "run", *tokenize)[0] == 0


def test_sequences_on_the_command_line(tiny_run, tmp_path, run_main, run_line):
    (tmp_path / "sr.json").write_text(
        json.dumps({"rankers": [str(tiny_run), str(tiny_run)], "drop_ratio": 0.5})
    )
    dev = builtin_path("dev")
    code, out, err = run_main("evaluate", tmp_path / "sr.json", "--data", dev, "--json", "-")
    stored = json.loads(out)
    assert code == 0 and stored["drop_ratio"] == "stored" and 1.4 < stored["cost"] < 1.6, err
    code, out, _ = run_line(
        f"evaluate {tmp_path}/sr.json --data {dev} --drop-ratio 0 --keep 2 --json -"
    )
    assert [row["cost"] > 1.9 for row in json.loads(out)] == [True, False]
    (tmp_path / "c.txt").write_text("ice\nthe moon\nslow ice\n")
    rank = f"rank {tmp_path}/sr.json --question 'what is ice ?' --candidates {tmp_path}/c.txt"
    code, out, err = run_line(rank)
    assert code == 0 and out.count("dropped") == 1, err
    code, out, _ = run_main(
        "bench", tmp_path / "sr.json", "--data", dev, "--rounds", "1", "--json", "-"
    )
    assert code == 0 and json.loads(out)[0]["cost"] == 2


def test_ensembles_on_the_command_line(tiny_run, tmp_path, run_main):
    path, drops = tmp_path / "e.json", tmp_path / "drops.json"
    path.write_text(json.dumps({"ensemble": [str(tiny_run)] * 2, "weights": [1, 3]}))
    dropping = {"run": str(tiny_run), "drop_ratio": 0.5}
    drops.write_text(json.dumps({"ensemble": [dropping, str(tiny_run)]}))
    data = ("--data", builtin_path("dev"))
    code, out, err = run_main("evaluate", path, *data, "--json", "-")
    row = json.loads(out)
    assert code == 0 and row["cost"] == pytest.approx(2), err
    assert row["drop_ratio"] == "0"  # nothing drops, in the ensemble or inside it
    code, out, _ = run_main("evaluate", drops, *data, "--json", "-")
    row = json.loads(out)
    assert row["drop_ratio"] == "stored" and 1 < row["cost"] < 2
    (tmp_path / "c.txt").write_text("ice\nthe moon\n")
    question = ("--question", "what is ice ?", "--candidates", tmp_path / "c.txt")
    code, out, err = run_main("rank", path, *question)
    assert code == 0 and "cost 200 %" in out, err
    code, out, _ = run_main("bench", path, *data, "--rounds", "1", "--json", "-")
    assert code == 0 and [row["cost"] for row in json.loads(out)] == [2]
    code, out, _ = run_main("evaluate", tiny_run, path, *data, "--metrics", "map", "--json", "-")
    [comparison] = json.loads(out)["comparisons"]
    assert code == 0 and comparison["spearman"] == 1
    assert comparison["metrics"][0]["wilcoxon"] == 1 and "spearman_p" in comparison["metrics"][0]


@pytest.mark.parametrize("kind", ["rankers", "ensemble"])
def test_what_has_no_exits_and_no_weights_of_its_own(kind, tiny_run, tmp_path, refusal):
    path, data = tmp_path / "several.json", ("--data", builtin_path("dev"))
    path.write_text(json.dumps({kind: [str(tiny_run)] * 2}))
    for command in (
        ["evaluate", path, *data, "--per-exit"],
        ["export", path, tmp_path / "out"],
        ["quantize", path, *data],
    ):
        assert "ranker" in refusal(*command), command


def help_of(capsys, monkeypatch, *arguments):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_help_of_every_command(capsys, monkeypatch):
    text = help_of(capsys, monkeypatch, "--help")
    for name in COMMANDS:
        assert re.search(f"\n    {name}\\s", text)
        assert help_of(capsys, monkeypatch, name, "--help").startswith(f"usage: wqa {name}")


@pytest.mark.parametrize("name", ["rank", "ask", "train", "train cascade", "evaluate", "serve"])
def test_help_for_a_newcomer_fits_a_screen_and_names_all_options(name, capsys, monkeypatch):
    words = name.split()
    short = help_of(capsys, monkeypatch, *words, "--help")
    assert len(short.splitlines()) <= 40
    if name == "train":
        return  # its systems have the options
    whole = help_of(capsys, monkeypatch, *words, "--help-all")
    flags = set(re.findall(r"(?m)^  (?:-h, )?(--[a-z][a-z0-9-]+)", whole))
    assert len(flags) > 15 and flags <= set(re.findall(r"--[a-z][a-z0-9-]+", short))


def test_a_training_on_a_file_whose_name_is_not_utf8(tiny_encoder, tmp_path, run_main):
    data, out = tmp_path / os.fsdecode(b"a\xff.jsonl"), tmp_path / "run"
    shutil.copy(builtin_path("dev"), data)
    command = ("--encoder", tiny_encoder, "--train", data, "--out", out, "--max-updates", 1)
    assert run_main("train", "pairwise", *map(str, command))[0] == 0
    assert "a\udcff.jsonl" in json.loads((out / "config.json").read_text())["command"]


def test_candidates_of_any_case_of_the_ending_have_their_ids(jsonl, run_main):
    candidates = jsonl('{"id": "D1", "text": "a b"}', name="C.JSONL")
    question = ("--question", "b ?", "--candidates", candidates, "--json", "-")
    _, out, _ = run_main("rank", "wo", *map(str, question))
    assert [(row["id"], row["text"]) for row in json.loads(out)["ranking"]] == [("D1", "a b")]


def test_an_unknown_command_has_the_nearest_one_and_all_others_whole(capsys):
    assert main(["trian", "cascade"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: COMMAND: 'trian'; expected one of train, evaluate, ")
    assert line.endswith("; did you mean train?")
    assert all(f" {name}," in line or f" {name};" in line for name in COMMANDS)
    assert main(["zzz" * 200]) == 2
    assert capsys.readouterr().err.endswith(f"{', '.join(COMMANDS)}; wqa --help explains them\n")


def test_a_flag_means_one_thing():
    """The same flag takes the same kind of value wherever it is."""
    kinds = {}
    for name in COMMANDS:
        parser = parse([name, *REQUIRED.get(name, ())]).parser
        for action in parser._actions:
            for flag in action.option_strings:
                has_value = action.nargs != 0
                kind = (action.metavar if has_value and not action.choices else None, has_value)
                kinds.setdefault(flag, {}).setdefault(kind, []).append(name)
    assert {flag: kind for flag, kind in kinds.items() if len(kind) > 1} == {}
    # What reads and what writes have flags of their own.
    assert {"--run", "--qrels", "--trec-run", "--write-qrels", "--json"} <= set(kinds)


#: What the parsers of some subcommands insist on.
REQUIRED = {
    "bench": ("run", "--data", "d"),
    "ask": ("index", "--ranker", "r", "--question", "q"),
    "calibrate": ("run", "--data", "d"),
    "embed-words": ("--data", "d", "--out", "o", "--encoder", "e"),
    "encode": ("run", "--documents", "d", "--out", "o"),
    "train": ("cascade", "--encoder", "e", "--train", "t", "--out", "o"),
    "rank": ("run", "--question", "q", "--candidates", "c"),
    "convert": ("source", "out"),
    "export": ("run", "out"),
    "index": ("documents", "--out", "o"),
    "quantize": ("run", "--data", "d"),
    "retrieve": ("index", "--data", "q", "--out", "o"),
    "score": ("run", "--data", "d", "--out", "o"),
    "serve": ("run",),
    "tokenize": ("--encoder", "e", "--data", "d", "--out", "o"),
    "tune": ("run", "--data", "d"),
    "verify": ("run", "--claim", "c"),
}


BAD = {
    "malformed JSON on line 7": ("evaluate {run} --data {bad_json}", "line 7"),
    "not UTF-8": (
        "rank {run} --question 'q ?' --candidates {bad_bytes}",
        "line 2: byte 0 is not UTF-8",
    ),
    "an archive that is cut": ("rank {cut} --question q --candidates {one}", "cut: is a file"),
    "no candidates": (
        "rank {run} --question 'q ?' --candidates {empty}",
        "candidate list is empty",
    ),
    "empty question": ("rank {run} --question '  ' --candidates {one}", "the question is empty"),
    "long question": ("rank {run} --question {long} --candidates {one}", "leave 0 of 64"),
    "drop ratio x": ("evaluate {run} --data {good} --drop-ratio x", "--drop-ratio"),
    "unknown device": ("{rank} --ctx tpu", "--ctx: 'tpu'"),
    "exits beyond the encoder": ("{train} --exits 1,9", "at most 3, the layers"),
    "exits not increasing": ("{train} --exits 2,1", "increasing layer numbers"),
    "unknown system": (
        "train casc --encoder {encoder} --train {good} --out {out}",
        "cascade, pairwise",
    ),
    "neither run nor qrels": ("evaluate --run {one}", "neither RUN nor both"),
    "a TREC run that is ranked": (
        "evaluate --run {one} --run {one} --qrels {one} --keep 3",
        "--drop-ratio and --keep and --drop-below: with --run",
    ),
    "a row for each exit of two runs": (
        "evaluate {run} {run} --data {good} --per-exit",
        "--per-exit: with --seeds or several RUNs",
    ),
    "one TREC run for two ratios": (
        "evaluate {run} --data {good} --drop-ratio 0 --drop-ratio 0.1 --trec-run {run}/t",
        "--trec-run: 2 drop ratios; expected a file",
    ),
    "no thread": ("evaluate {run} --data {good} --threads 0", "--threads"),
    "int8 without calibration": ("evaluate {run} --data {good} --precision int8", "wqa quantize"),
    "a grid beyond 1": ("tune {run} --data {good} --grid 0.1,1.0", "--grid: 1.0"),
    "nothing tuned": ("evaluate {run} --data {good} --drop-ratio tuned", "wqa tune"),
    "too many ratios for two runs": (
        "evaluate {run} {run} --data {good} --seeds --keep 1 --keep 2 --keep 3",
        "3 for 2 runs",
    ),
    "unknown metric": ("evaluate {run} --data {good} --metrics f1", "ndcg@K"),
}
for command in ("evaluate bm25", "evaluate bm25 {run}", "tune {run}", "calibrate {run}"):
    line = f"{command} --data {{unlabelled}}"
    BAD[f"no label: {command}"] = (line, "unlabelled.jsonl, question 'q': candidate 1 has no label")


@pytest.fixture(scope="module")
def words(tmp_path_factory, tiny_run, tiny_encoder):
    """What the names in the command lines above stand for."""
    folder, good = tmp_path_factory.mktemp("bad"), builtin_path("dev")
    lines = good.read_text(encoding="utf-8").splitlines()
    contents = {
        "one": b"one\n",
        "empty": b"",
        "bad_bytes": b"good\n\xff\n",
        "cut": gzip.compress(bytes(100))[:20],
        "unlabelled.jsonl": b'{"id": "q", "question": "q ?", "candidates": [{"text": "a"}]}\n',
        "bad_json.jsonl": "\n".join([*lines[:6], lines[6][:-5], *lines[7:]]).encode(),
    }
    words = {"run": tiny_run, "good": good, "encoder": tiny_encoder, "out": folder / "run"}
    for name, content in contents.items():
        words[name.partition(".")[0]] = folder / name
        (folder / name).write_bytes(content)
    words["long"] = shlex.quote("moon " * 99)
    words["rank"] = f"rank {tiny_run} --question q --candidates {words['one']}"
    words["train"] = f"train cascade --encoder {tiny_encoder} --train {good} --out {words['out']}"
    return words


@pytest.mark.parametrize("kind", BAD)
def test_an_error_is_one_line_and_exit_code_2(kind, words, run_main):
    line, found = BAD[kind]
    code, out, err = run_main(*shlex.split(line.format_map(words)))
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(lines) == 1 and found in lines[0]
    assert "Traceback" not in err and not out
    assert not words["out"].exists()


@pytest.mark.parametrize(
    "arguments, name, expected",
    [
        ([], "warmup_updates", 1000),
        (["--warmup-share", "0.1"], "warmup_updates", None),
        (["--schedule", "slanted"], "warmup_updates", None),
        ([], "tokens_per_update", 24576),
        (["--accumulate", "2"], "tokens_per_update", 0),
        (["--k", "2"], "tokens_per_update", 64 * 64 * 3),
        (["--epochs", "7"], "epochs", 7),
        (["--patience", "0"], "patience", 0),
    ],
)
def test_a_default_of_a_system_gives_way_to_what_replaces_it(arguments, name, expected):
    options = parse(["train", "mspp_claims", "--train", "x", "--out", "y", *arguments])
    assert getattr(training_config(options), name) == expected


def test_rank_reads_all_files_of_candidates(tmp_path, run_main):
    """An option that is given again adds a file; none is left out in silence."""
    (tmp_path / "a.txt").write_text("Tea is a drink.\n")
    (tmp_path / "b.txt").write_text("Steam makes the kettle whistle.\nA cup is empty.\n")
    words = ["rank", "bm25", "--question", "why does a kettle whistle ?", "--json", "-"]
    files = ("--candidates", tmp_path / "a.txt", "--candidates", tmp_path / "b.txt")
    ranking = json.loads(run_main(*words, *files)[1])["ranking"]
    assert sorted(row["index"] for row in ranking) == [0, 1, 2] and ranking[0]["index"] == 1


def test_a_command_that_is_gone_names_what_took_its_place(capsys):
    for name, place in MOVED.items():
        assert main([name, "--any", "x"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {name}: ") and line.endswith(place)
