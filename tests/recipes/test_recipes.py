"""Every recipe in its smoke mode, and the measurements."""

import contextlib
import gzip
import json
import re
import runpy
import shutil
import subprocess
import sys
import types

import pytest
from conftest import (
    ROOT,
    child_environment,
    lacks,
    nightly,
    run_python,
    script_result,
    write_command,
)

import wqa
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.documents import read_documents
from wqa.evaluation.report import read_rows
from wqa.systems.load import load_ranker

#: What a recipe leaves, and a word that stands in it; a recipe comes after those that it goes on
#: with, as their runs stay.
RECIPES = {
    "tanda/transfer": {"tanda/transfer_3/metrics.jsonl": "loss"},
    "tanda/adapt": {"tanda/wikiqa_3_seed0/metrics.jsonl": "loss"},
    "cascade/transfer": {"cascade/transfer/metrics.jsonl": "loss"},
    "cascade/adapt": {"cascade/wikiqa_seed0/metrics.jsonl": "loss"},
    "cascade/table2": {"results/cascade/table2.tsv": "CT 3 layers"},
    "cascade/table3": {"results/cascade/table3.tsv": "SR"},
    "cascade/figure2": {
        "results/cascade/figure2.txt": "tuned",
        "results/cascade/figure2.pareto.txt": "cost",
    },
    "cascade/minilm_train": {"cascade/trecqa_drawn_seed1/metrics.jsonl": "loss"},
    "cascade/minilm_tables": {
        "results/cascade/minilm_claims_trecqa.txt": "sequence at 0.3; cascade at 0.3 (2 and",
        "results/cascade/logs/minilm_cascade_wikiqa_seed0.metrics.jsonl": "loss",
    },
    "cascade/base_train": {},  # the trainings of minilm_train, which may be there already
    "cascade/base_tables": {
        "results/cascade/base_trecqa.tsv": "one exit an update",
        "results/cascade/runs/base_cascade_trecqa_drawn_seed1.0.3.trec.gz": "cascade",
    },
    "cascade/quality_time": {"results/cascade/quality_time.tsv": "cascade\t0.3"},
    "cascade/drop_below": {"results/cascade/drop_below.tsv": "below=0.03"},
    "cascade/untrained": {"results/cascade/untrained.tsv": "wo+rr"},
    "mhs/grid": {
        "mhs/mhs_wikiqa/grid.tsv": "0.5\t1\t",
        "mhs/mhs_wikiqa/chosen.txt": "0.5 1",
        "results/mhs/figure4_wikiqa/agreement.tsv": "head 3",
    },
    "mhs/table2": {"results/mhs/table2.tsv": "14 MHS"},
    "mhs/table3": {
        "mhs/mhs_wikiqa/chosen.txt": "0.5 1",
        "results/mhs/table3.tsv": "MHS from three",
        "results/mhs/table4.tsv": "MHS B1_3H2",
    },
    "mhs/table5": {"results/mhs/table5_float32.txt": "bert_6_384_12 mhs"},
    "mhs/minilm_train": {"mhs/minilm_mhs_wikiqa/alpha_0.5_tau_1/metrics.jsonl": "head_3"},
    "mhs/minilm_tables": {
        "results/mhs/minilm_claims.txt": "KD_Sum; MHS (2 and 2 seeds)",
        "results/mhs/minilm_cost.txt": "minilm_mhs_wikiqa",
        "results/mhs/minilm_agreement/agreement.tsv": "head 3",
    },
    "dcbert/table1": {
        "results/dcbert/table1.tsv": "DistilBERT",
        "results/dcbert/table2.tsv": "DC-BERT",
    },
    "dcbert/table3": {"results/dcbert/table3.tsv": "DC-BERT-Linear"},
    "dcbert/figure2": {
        "results/dcbert/figure2a.tsv": "DC-BERT-LSTM",
        "results/dcbert/figure2b.tsv": "K = 2",
    },
    "dcbert/base_speed": {"results/dcbert/base_speed_float32.txt": "encoding costs"},
    "dcbert/minilm_tables": {
        "results/dcbert/untrained.tsv": "cosine:",
        "results/dcbert/minilm_squad.tsv": "BM25",
        "results/dcbert/minilm_claims.txt": "(b) LSTM",
    },
    "dcbert/sentences": {"results/dcbert/sentences.tsv": "comparing classifier"},
    "cosinet/table2": {"results/cosinet/table2.tsv": "WO+RR MAP"},
    "cosinet/table4": {"results/cosinet/table4.tsv": "BERT", "results/cosinet/table3.tsv": "WO+RR"},
    "cosinet/table5": {"results/cosinet/claims_squad.txt": "WO+RR; Cosinet list BiRNN"},
    "cosinet/table6": {"results/cosinet/table6.tsv": "\nCA\t"},
    "cosinet/wikiqa_minilm": {
        "results/cosinet/minilm_wikiqa.tsv": "MiniLM",
        "results/cosinet/runs/distilled_cosinet_list_birnn_wikiqa_1.trec.gz": "cosinet",
    },
    "mspp/table1": {
        "mspp/pretrained_IE_k/metrics.jsonl": "mlm",
        "mspp/pretrained_AE_k/metrics.jsonl": "mspp",
        "results/mspp/table1.tsv": "Joint MSPP AE_k, FT AE_k",
    },
    "mspp/table2": {
        "results/mspp/table2.tsv": "Joint RoBERTa-Base, FT IE_k",
        "results/mspp/table7_full.tsv": "Joint MSPP IE_k, FT IE_k",
    },
    "mspp/table3": {
        "results/mspp/table3.tsv": "Joint MSPP IE_k, FT AE_1",
        "results/mspp/table8.tsv": "Joint RoBERTa-Base, FT IE_1",
        "results/mspp/table3_claims.txt": "accuracy",
        "mspp/claims_joint_IE_1_seed0/test.labels.jsonl": "predicted_label",
    },
    "mspp/minilm_tables": {
        "results/mspp/minilm_rerank_full.tsv": "joint IE_k, MSPP",
        "results/mspp/minilm_rerank_claims.txt": "t_test_seeds",
    },
    "mspp/separator": {
        "results/mspp/separator_wikiqa.tsv": "joint IE_k, masked tokens",
        "results/mspp/separator_rerank_claims.txt": "t_test_seeds",
    },
    "checkpoints/released": {
        "results/checkpoints/released.tsv": "asnq_wikiqa.tar\twikiqa\tclean\t25"
    },
    "mspp/speed": {"results/mspp/speed_float32.txt": "2 candidates of 8 tokens"},
}
BENCH = ROOT / "recipes" / "bench"


@pytest.fixture(scope="session")
def recipe_out(tmp_path_factory):
    """Where all recipes leave their runs: one goes on with what another has trained, as it does at
    full size."""
    return tmp_path_factory.mktemp("recipes")


def run_recipe(name, out, folder, wqa_command, **settings):
    variables = {"SMOKE": "1", "OUT": str(out), "WQA": wqa_command}
    variables["PYTHON"] = f"{wqa_command}_python"
    variables.update(settings)
    return subprocess.run(
        ["bash", str(ROOT / "recipes" / f"{name}.sh")],
        capture_output=True,
        text=True,
        timeout=600,
        env=child_environment(**variables),
        cwd=folder,
    )


def run_script(*command):
    """Standard output of a script that ends well."""
    status, out, error = script_result(*command)
    assert status == 0, error
    return out


def test_every_recipe_is_run():
    scripts = (ROOT / "recipes").glob("*/*.sh")
    started = {f"{path.parent.name}/{path.stem}" for path in scripts}
    assert started - {"scale/launch"} == set(RECIPES)  # it starts the workers of any command
    assert set(RECIPES) > TESTED


#: Recipes that `make test` runs: the steps, and a table or a figure of each paper. `make nightly`
#: runs all others, most of which train the same systems.
TESTED = {
    "tanda/transfer",
    "tanda/adapt",
    "cascade/transfer",
    "cascade/adapt",
    "cascade/table3",
    "cascade/untrained",
    "mhs/grid",
    "dcbert/table3",
    "cosinet/table2",
    "mspp/table2",
    "checkpoints/released",
}


@pytest.mark.parametrize("name", nightly(RECIPES, set(RECIPES) - TESTED))
def test_recipe_in_smoke_mode(name, minilm, recipe_out, tmp_path, wqa_command):
    for result in RECIPES[name]:
        with contextlib.suppress(FileNotFoundError):
            (recipe_out / result).unlink()  # what an earlier recipe left says nothing of this one
    done = run_recipe(name, recipe_out, tmp_path, wqa_command)
    assert done.returncode == 0, done.stderr
    for result, word in RECIPES[name].items():
        content = (recipe_out / result).read_bytes()
        assert word in (gzip.decompress(content) if result.endswith("gz") else content).decode()
        if result.endswith("/metrics.jsonl"):
            assert (recipe_out / result).with_name("model.params").exists()
    if name == "cascade/table3":
        check_costs(recipe_out / "results/cascade/table3.tsv")


@pytest.mark.nightly
def test_students_of_fewer_layers(minilm, recipe_out, tmp_path, wqa_command):
    done = run_recipe("mhs/minilm_tables", recipe_out, tmp_path, wqa_command, LAYERS="2")
    assert done.returncode == 0, done.stderr
    results = recipe_out / "results" / "mhs"
    rows = {row["row"] for row in read_rows(results / "minilm_wikiqa.tsv")}
    assert {"teacher 1", "student, KD_RR, 2 layers", "MHS B1_3H1"} <= rows
    assert "KD_RR; MHS (2 and 2 seeds)" in (results / "minilm_2_layers_claims.txt").read_text()
    lines = (results / "minilm_2_layers_cost.txt").read_text().splitlines()
    parameters = [int(line.split()[1].replace(",", "")) for line in lines[1:]]
    teacher, ensemble, student, heads = parameters
    assert student < teacher < heads < ensemble  # the student's encoder has one layer less
    assert (results / "runs" / "minilm_2_layers_kd_wikiqa_seed_1.trec.gz").exists()
    assert (recipe_out / "mhs" / "minilm_transferred_2" / "model.params").exists()


@pytest.mark.parametrize(
    "name, module, extra",
    [
        ("mhs/table2", "optuna", "tune"),
        ("cascade/figure2", "matplotlib", "plots"),
    ],
)
def test_a_missing_extra_ends_a_recipe_before_it_trains(
    name, module, extra, recipe_out, tmp_path, wqa_command
):
    """A Python that lacks the module; where it looks for others, it is the real one."""
    lacking = tmp_path / "python"
    write_command(lacking, f'[ "${{3:-}}" != {module} ] && exec "{sys.executable}" "$@"\n')
    done = run_recipe(name, recipe_out, tmp_path, wqa_command, PYTHON=str(lacking))
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"error: {module} is not installed; expected the extra {extra}: "
    assert done.stderr == f"{expected}pip install -e '.[{extra}]'\n"


def test_recipes_take_the_environment_of_the_repository(tmp_path):
    """Where none is active; where there is no other, the error is one line."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    command = ["bash", "-c", '. recipes/settings.sh; command -v "$wqa" "$python"']
    options = {"cwd": tmp_path, "env": {"PATH": "/usr/bin:/bin"}, "capture_output": True}
    done = subprocess.run(command, text=True, **options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: wqa is not installed here; expected an active environ")
    assert len(done.stderr.splitlines()) == 1
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    write_command(programs / "wqa", "")
    write_command(programs / "python", f'exec "{sys.executable}" "$@"\n')
    done = subprocess.run(command, text=True, **options)
    assert done.stdout.split() == [str(programs / "wqa"), str(programs / "python")], done.stderr


def check_costs(table):
    """The costs of the table are those of dropping floor(alpha k) of k candidates after layer 1."""
    sizes = [len(question.candidates) for question in read_questions(builtin_path("test"))]
    costs = {}
    for row in read_rows(table):
        costs[row["row"], row["drop_ratio"]] = int(row["wikiqa_cost_reduction"])
    expected = {("MT 1 layers", "0"): -67, ("MT 3 layers", "0"): 0}
    expected.update({("CT 1 layers", "0"): -67, ("CT 3 layers", "0"): 0})
    for tenths in (3, 4, 5):
        left = sum(size - tenths * size // 10 for size in sizes) / sum(sizes)
        expected["CT 3 layers", f"0.{tenths}"] = round(100 * ((1 + 2 * left) / 3 - 1))
        expected["SR", f"0.{tenths}"] = round(100 * ((1 + 3 * left) / 3 - 1))
    assert costs == expected


def test_a_recipe_that_has_run_does_not_train_again(recipe_out, tmp_path, wqa_command):
    arguments = ("tanda/transfer", recipe_out, tmp_path, wqa_command)
    if not (recipe_out / "tanda" / "transfer_3" / "model.params").exists():
        assert run_recipe(*arguments).returncode == 0
    again = run_recipe(*arguments)
    assert again.returncode == 0
    assert "==" not in again.stdout
    assert "training" not in again.stderr


def test_a_grid_with_other_settings_is_refused(recipe_out, tmp_path, wqa_command):
    """In the folder of a grid that has run; with the same settings nothing is trained again."""
    run = recipe_out / "mhs" / "mhs_wikiqa" / "alpha_0.5_tau_1" / "model.params"
    arguments = ("mhs/grid", recipe_out, tmp_path, wqa_command)
    if not run.exists():
        assert run_recipe(*arguments).returncode == 0
    before = run.stat().st_mtime_ns
    again = run_recipe(*arguments)
    assert again.returncode == 0 and "complete already" in again.stdout
    for settings, found in (
        ({"TOKENS": "1000"}, "tokens_per_batch was 2000; expected 1000"),
        ({"BODY": "1"}, "body was 2; expected 1"),
    ):
        refused = run_recipe(*arguments, **settings)
        assert refused.returncode == 2 and found in refused.stderr, refused.stderr
    assert run.stat().st_mtime_ns == before


def test_a_grid_is_chosen_by_its_best_evaluation_on_dev(tmp_path):
    """Of all evaluations of a run the best counts, as its parameters are those that are kept."""
    figures = {"alpha_0_tau_1": [0.5, 0.7], "alpha_0.5_tau_3": [0.9, 0.2], "alpha_0.9_tau_1": [0.9]}
    for name, maps in figures.items():
        lines = ['{"update": 1, "loss": 9.0}']
        lines += [json.dumps({"dev": {"map": value, "mrr": 1 - value}}) for value in maps]
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.params").touch()
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "alpha_1_tau_1").mkdir()  # of a training that has not ended
    script = ROOT / "recipes" / "mhs" / "choose.py"
    assert "alpha 0.5, tau 3, dev MAP 90.00" in run_script(script, tmp_path)
    assert (tmp_path / "chosen.txt").read_text() == "0.5 3\n"
    rows = [tuple(row.values()) for row in read_rows(tmp_path / "grid.tsv", ("dev_map",))]
    assert rows == [("0.5", "3", "90.00"), ("0.9", "1", "90.00"), ("0", "1", "70.00")]


def test_the_rows_of_dcbert(tmp_path):
    """Figures over seeds, the paper's P@N from hits, shares of the first row, speeds by name."""
    script = ROOT / "recipes" / "rows.py"
    files = {
        "a.json": {"drop_ratio": "0", "hit@10": 0.5, "pbt@10": 0.25, "cost": 1.0},
        "b.json": {"drop_ratio": "0", "hit@10": 0.7, "pbt@10": 0.35, "cost": 1.0},
        "c.json": [
            {"drop_ratio": "0", "hit@10": 0.9, "pbt@10": 0.1, "cost": 1.0},
            {"drop_ratio": "0.3", "hit@10": 0.45, "pbt@10": 0.2, "cost": 0.25},
        ],
        "x.json": {"em": 0.4, "f1": 0.5},
        "y.json": {"em": 0.6, "f1": 0.7},
        "z.json": {"em": 0.4, "f1": 0.3},
        "speed.json": [{"ranker": "fast", "questions_per_second": 12.345, "speedup": 10.26}],
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    table = tmp_path / "table.tsv"

    def row(name, columns, ranked, answered, *options):
        paths = [*(tmp_path / name for name in ranked), "--beside"]
        paths += [tmp_path / name for name in answered]
        run_script(script, table, "nq", f"{columns},seeds", "--row", name, *paths, *options)

    columns = "p@10,pbt@10,cost_reduction,em,em_drop,p@10_kept,speedup,questions_per_second"
    row("first", columns, ("a.json", "b.json"), ("x.json", "y.json"))
    timed = ("--timed", tmp_path / "speed.json", "fast", "--label", "0.3")
    for _ in range(2):  # a row is written anew, not twice
        row("second", columns, ("c.json",), ("z.json",), *timed)
    first, second = [list(row.values()) for row in read_rows(table)]
    hits = ["first", "0", "60.00 (14.14)", "30.00 (7.07)", "+0"]
    assert first == [*hits, "50.00 (14.14)", "0.0", "100.0", "-", "-", "2"]
    hits = ["second", "0.3", "45.00", "20.00", "-75"]
    assert second == [*hits, "40.00", "20.0", "75.0", "10.3x", "12.35", "1"]
    with pytest.raises(AssertionError, match="error: .*no row with drop ratio 0.5"):
        row("third", "p@10", ("c.json",), (), "--label", "0.5")


def test_a_second_retriever_beside_the_first(tmp_path):
    """What it retrieves beyond the first, and what of the first it lacks, among the first two."""

    def write(name, *candidates, key="q"):
        rows = [{"text": key, "id": key, "label": int(key == "good")} for key in candidates]
        question = {"id": key, "question": "which ?", "candidates": rows}
        (tmp_path / name).write_text(json.dumps(question) + "\n")

    def figures(first, second, *options):
        script = ROOT / "recipes" / "dcbert" / "retrievers.py"
        out = tmp_path / "out.json"
        metrics = "hit@2,pbt@2,ptb@2"
        run_script(script, tmp_path / first, tmp_path / second, metrics, out, *options)
        found = json.loads(out.read_text())
        return [found[name] for name in metrics.split(",")]

    write("early", "good", "a", "b")
    write("late", "a", "b", "good")
    write("never", "a", "b", "c")
    assert figures("early", "early") == [1, 0, 0]
    assert figures("early", "late") == [0, 0, 1]
    assert figures("early", "never") == [0, 0, 1]
    assert figures("late", "early") == [1, 1, 0]
    assert figures("never", "early") == [1, 1, 0]
    write("short", "a")  # a correct document of the first alone is not the second's next one
    assert figures("early", "short") == [0, 0, 1]
    # A question that the second does not retrieve for, and one that the first does not.
    write("other", "good", key="other")
    assert figures("early", "other") == [0.5, 0.5, 0.5]
    assert figures("early", "other", "--total", "8") == [0.125, 0.125, 0.125]


def test_the_documents_that_questions_retrieve(tmp_path):
    script = ROOT / "recipes" / "dcbert" / "tested_documents.py"
    lists = {"q0": ["D3", "D1"], "q1": ["D1"]}
    with open(tmp_path / "questions.jsonl", "w") as file:
        for key, ids in lists.items():
            candidates = [{"text": "a text", "id": number} for number in ids]
            line = {"id": key, "question": "which ?", "candidates": candidates}
            file.write(json.dumps(line) + "\n")
    documents = [f'{{"id": "D{number}", "text": "a text", "title": "T"}}\n' for number in range(5)]
    (tmp_path / "documents.jsonl").write_text("".join(documents))
    files = [tmp_path / name for name in ("questions.jsonl", "documents.jsonl", "out.jsonl")]
    run_script(script, *files)
    assert [(d.id, d.title) for d in read_documents(files[2])] == [("D1", "T"), ("D3", "T")]
    (tmp_path / "documents.jsonl").write_text("".join(documents[:3]))
    with pytest.raises(AssertionError, match="error: .*holds no document D3, a candidate of"):
        run_script(script, *files)


def test_answers_from_what_a_run_puts_first(tmp_path, monkeypatch):
    """The reader gets the first candidates of the run; missing questions count as wrong."""
    module = runpy.run_path(str(ROOT / "recipes" / "dcbert" / "read.py"))
    texts = {"D0": "in Oslo", "D1": "in Rome", "D2": "in Bern"}
    candidates = [{"text": text, "id": key, "label": 0} for key, text in texts.items()]
    rows = [
        {"id": "q0", "question": "where ?", "candidates": candidates, "answers": ["Bern"]},
        {"id": "q1", "question": "where ?", "candidates": candidates, "answers": ["in Oslo"]},
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = {"q0": {"D0": 1, "D1": 2, "D2": 3}, "q1": {"D0": 1, "D1": 2, "D2": 3}}
    with open(tmp_path / "run.trec", "w") as file:
        for key, of_documents in scores.items():
            for document, score in of_documents.items():
                file.write(f"{key} Q0 {document} {4 - score} {score} it\n")

    read = []

    class Reader:
        def prepare(self, questions):
            return types.SimpleNamespace(questions=questions)

        def read_all(self, questions):
            for question in questions:
                read.append([candidate.id for candidate in question.candidates])
                yield [types.SimpleNamespace(text=question.candidates[0].text)]

    main = module["main"]
    monkeypatch.setitem(main.__globals__, "load_reader", lambda *_, **__: Reader())
    options = {"questions": tmp_path / "q.jsonl", "reader": "it", "out": tmp_path / "out.json"}
    options.update(run=str(tmp_path / "run.trec"), read=2, ctx="cpu", precision="float32")
    main(types.SimpleNamespace(**options, total=4))
    # "in Bern" shares one of its two words with "Bern"; the second answer is wrong but for "in".
    figures = json.loads((tmp_path / "out.json").read_text())
    assert read == [["D2", "D1"]] * 2
    assert (figures["em"], figures["f1"]) == pytest.approx((0, (2 / 3 + 1 / 2) / 4))
    main(types.SimpleNamespace(**{**options, "run": None}, total=0))
    figures = json.loads((tmp_path / "out.json").read_text())
    assert read[2:] == [["D0", "D1"]] * 2
    assert (figures["em"], figures["f1"]) == (0.5, 0.5)


def test_random_documents_beside_retrieved_ones(tmp_path):
    """None that is retrieved already or contains the answer; the same ones by the same seed."""
    script = ROOT / "recipes" / "dcbert" / "random_documents.py"
    retrieved = [("hard_1", 0), ("good_1", 1), ("good_2", 1), ("hard_2", 0)]
    question = {
        "id": "q",
        "question": "how many moons has mars ?",
        "candidates": [{"text": key, "id": key, "label": label} for key, label in retrieved],
        "answers": ["two moons"],
    }
    (tmp_path / "retrieved.jsonl").write_text(json.dumps(question) + "\n")
    texts = {f"other_{number}": f"of the planet {number}" for number in range(6)}
    texts.update(dict.fromkeys(("hard_1", "hard_2", "good_1"), "retrieved"))
    texts["unseen"] = "Mars, with Two Moons, is red"
    with open(tmp_path / "documents.jsonl", "w") as file:
        for key, text in texts.items():
            file.write(json.dumps({"id": key, "title": "Mars", "text": text}) + "\n")

    def sampled(*options):
        out = tmp_path / "out.jsonl"
        files = (tmp_path / "retrieved.jsonl", tmp_path / "documents.jsonl", out)
        run_script(script, *files, *options)
        (only,) = read_questions(out)
        assert (only.id, only.answers) == ("q", ("two moons",))
        return [(item.id, item.label, item.text) for item in only.candidates]

    first = sampled()
    assert first[:2] == [("good_1", 1, "good_1"), ("hard_1", 0, "hard_1")]
    assert len({key for key, _, _ in first[2:]}) == 2
    for key, label, text in first[2:]:
        assert (label, text) == (0, f"Mars\n{texts[key]}") and key.startswith("other_")
    everything = sampled("--negatives", "9", "--random", "9")
    assert [key for key, _, _ in everything[:3]] == ["good_1", "hard_1", "hard_2"]
    assert sorted(key for key, _, _ in everything[3:]) == [f"other_{n}" for n in range(6)]
    near = sampled("--near", "2", "--random", "1")
    # good_1 stands after hard_1 and hard_2, which were retrieved, and before one with the answer.
    assert [key for key, _, _ in near[2:4]] == ["other_5", "other_4"]
    assert len({key for key, _, _ in near}) == len(near) == 5


def test_questions_are_divided_between_paragraphs(tmp_path):
    script = COSINET / "divide.py"
    source, train, test = (tmp_path / f"{name}.jsonl" for name in ("all", "train", "test"))
    questions = []
    for number in range(6):
        paragraph = (Candidate(f"paragraph {number // 3}", 1), Candidate("another", 0))
        questions.append(Question(f"q{number}", f"which {number} ?", paragraph))
    write_questions(source, questions)
    assert run_script(script, source, "0.4", train, test) == "3 questions to train, 3 to test\n"
    assert [*read_questions(train), *read_questions(test)] == questions
    for share, message in (("0.6", "no question is left to test"), ("1", "SHARE: 1; expected")):
        status, _, error = script_result(script, source, share, train, test)
        assert status == 2 and message in error


def test_a_transfer_corpus(tmp_path, wqa_command):
    """Questions with the sentence that answers, a retrieved one and a near one; then SelQA's."""
    squad, selqa = tmp_path / "squad", tmp_path / "selqa"
    facts = [f"crater {n} is on moon{n // 4} ." for n in range(30)]
    asked = [f"where is crater {n} , moon{n // 4} ?" for n in range(30)]
    squad.mkdir()
    for side, lines in (("src", facts), ("tgt", asked)):
        (squad / f"{side}-test.txt").write_text("\n".join(lines) + "\n")
    selqa.mkdir()
    entry = {"question": "which ?", "article": "Rye", "section": "Dough", "answers": [1]}
    entries = [{**entry, "candidates": ["Salt is heavy.", "Rye keeps."]}]
    (selqa / "selqa-ass-dev.json").write_text(json.dumps(entries))
    (selqa / "selqa-ass-test.json").write_text(json.dumps(entries * 2))
    data = tmp_path / "data"
    scripts = ROOT / "data_scripts"
    options = ("--archive", squad, "--held-out", "2,2", "--out", data / "squad_sentences")
    run_script(scripts / "squad_sentences.py", *options)
    out = tmp_path / "corpus" / "transfer.jsonl"

    done = subprocess.run(
        ["bash", str(ROOT / "recipes" / "transfer_corpus.sh"), str(out)],
        capture_output=True,
        text=True,
        env=child_environment(
            DATA=str(data),
            SELQA_ARCHIVE=str(selqa),
            RUNS=str(tmp_path / "runs"),
            RESULTS=str(tmp_path / "results"),
            WQA=wqa_command,
            PYTHON=f"{wqa_command}_python",
        ),
    )
    assert done.returncode == 0, done.stderr
    questions = list(read_questions(out))
    ids = [question.id for question in questions[-3:]]
    assert ids == ["selqa-dev-1", "selqa-test-1", "selqa-test-2"]
    assert questions[-1].labels == (0, 1)
    known = dict(zip(asked, facts))
    for question in questions[:-3]:
        answers = [item.text for item in question.candidates if item.label]
        assert answers == [known[question.question]]
        retrieved, near = [item.text for item in question.candidates if not item.label]
        moon = question.question.split()[-2]
        assert moon in retrieved and moon not in near
    assert len(questions) == 26 + 3


COSINET = ROOT / "recipes" / "cosinet"


def test_the_rows_of_cosinet(tiny_run, tmp_path):
    """Figures over seeds; parameters that are trained; seconds by the speeds of a training."""
    for name, value in (("a", 0.5), ("b", 0.7)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"map": value, "mrr": 1.0}))
    lines = ['{"update": 2, "pairs_per_second": 10.0}', '{"update": 2, "dev": {"map": 1}}']
    lines.append('{"update": 8, "pairs_per_second": 60.0}')
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    table = tmp_path / "table.tsv"
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    script, costs = ROOT / "recipes" / "rows.py", (COSINET / "costs.py", builtin_path("dev"), "all")
    columns = "map,params,epoch_seconds,train_seconds,seeds"
    for _ in range(2):  # a row is written anew, not twice
        cells = run_script(*costs, run, run).split()
        rows = ("--row", "list", *files, "--cells", *cells)
        run_script(script, table, "wikiqa", columns, *rows)
        run_script(script, table, "wikiqa", "map,params,seeds", "--row", "rr", files[0])
    listed, rule = read_rows(table)
    # Two updates at 10 and six at 60 pairs a second: 8 updates in 0.3 of the time of one pair each.
    pairs = sum(len(question.candidates) for question in read_questions(builtin_path("dev")))
    seconds = pairs / (8 / 0.3)
    assert listed == {
        "row": "list",
        "drop_ratio": "0",
        "wikiqa_map": "60.00 (14.14)",
        "wikiqa_params": f"{tiny_parameters(tiny_run):,}",
        "wikiqa_epoch_seconds": f"{seconds:.3g}",
        "wikiqa_train_seconds": f"{3 * seconds:.3g}",
        "wikiqa_seeds": "2",
    }
    assert (rule["wikiqa_map"], rule["wikiqa_params"], rule["wikiqa_seeds"]) == ("50.00", "-", "1")
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(AssertionError, match="error: .*metrics.jsonl: no speed"):
        run_script(*costs, run)


def tiny_parameters(run):
    ranker = load_ranker(run)
    return sum(parameter.data().size for parameter in ranker.network.collect_params().values())


def test_the_statistics_of_a_corpus(tmp_path):
    """Over all questions; words with punctuation; the mean of the random draws."""
    rows = [("why so ?", [("One, two .", 0), ("Three", 1)]), ("who", [("a-b", 0)])]
    questions = []
    for number, (text, candidates) in enumerate(rows):
        candidates = [{"text": text, "label": label} for text, label in candidates]
        questions.append({"id": str(number), "question": text, "candidates": candidates})
    data, table = tmp_path / "test.jsonl", tmp_path / "table2.tsv"
    data.write_text("".join(json.dumps(question) + "\n" for question in questions))
    files = []
    for name, value in (("x", 0.2), ("y", 0.4), ("wo", 0.5)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps({"p@1": value, "map": 2 * value}))
    given = ["--random", *files[:2], "--baselines", f"WO={files[2]}"]
    run_script(COSINET / "table2.py", table, "small", data, *given)
    run_script(COSINET / "table2.py", table, "other", data, "--random", files[2], *given[3:])
    values = {row["row"]: (row["small_test"], row["other_test"]) for row in read_rows(table)}
    assert values == {
        "questions": ("2", "2"),
        "sentences": ("3", "3"),
        "% of questions answered": ("50.00", "50.00"),
        "candidates a question": ("1.50", "1.50"),
        "words a question": ("2.00", "2.00"),
        "words a candidate": ("2.67", "2.67"),
        "random P@1": ("30.00", "50.00"),
        "random MAP": ("60.00", "100.00"),
        "WO P@1": ("50.00", "50.00"),
        "WO MAP": ("100.00", "100.00"),
    }


MSPP = ROOT / "recipes" / "mspp"


def test_systems_are_compared_over_seeds_and_over_questions(tmp_path):
    """Two seeds each: of two questions the first system has none or one right, the second one or
    two."""
    (tmp_path / "qrels").write_text("q1 0 a 1\nq1 0 b 0\nq2 0 a 1\nq2 0 b 0\n")
    orders = {"f0": ("ba", "ba"), "f1": ("ba", "ab"), "s0": ("ab", "ba"), "s1": ("ab", "ab")}
    for name, ranked in orders.items():
        lines = []
        for qid, order in zip(("q1", "q2"), ranked):
            lines += [f"{qid} Q0 {doc} {k} {-k} x" for k, doc in enumerate(order, 1)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    runs = {name: tmp_path / name for name in orders}
    first = ("--system", "first", runs["f0"], runs["f1"])
    second = ("--system", "second", runs["s0"], runs["s1"])
    claims = (ROOT / "recipes" / "claims.py", tmp_path / "qrels", "p@1", *first, *second)
    title, header, cells = run_script(*claims, "--pair", "first", "second").splitlines()[:3]
    assert title == "# first; second (2 and 2 seeds)"
    tests = ["t_test", "t_test_seeds", "wilcoxon", "spearman_p"]
    assert header.split() == ["metric", "first", "second", "difference", "low", "high", *tests]
    # Seeds: 0 and 0.5 beside 0.5 and 1, t = 0.5 / 0.3536 = sqrt 2 at two degrees of freedom, whose
    # two-sided p is 1 - t / sqrt(t^2 + 2). Questions: changes of 1 and 0, t = 1 at one degree;
    # Wilcoxon's test has one change, z = 1, and two questions have no correlation.
    assert cells.split()[:4] == ["p@1", "25.00", "75.00", "50.00"]
    assert cells.split()[6:] == ["0.500", f"{1 - 2**0.5 / 2:.3f}", "0.317", "nan"]
    with pytest.raises(AssertionError, match="error: .*third"):
        run_script(*claims, "--pair", "first", "third")


def test_labels_are_compared_over_claims(tmp_path):
    """By the share of the claims whose label is right; ids are numbers in the files of labels."""
    right = {"7": "SUPPORTS", "8": "REFUTES"}
    lines = []
    for key, label in right.items():
        claim = {"id": key, "claim": "a cave", "evidence": ["some text"], "label": label}
        lines.append(json.dumps(claim))
    data = tmp_path / "dev.jsonl"
    data.write_text("\n".join(lines) + "\n")

    def labels(name, *predicted):
        rows = []
        for key, label in zip((7, 8), predicted):
            rows.append(json.dumps({"id": key, "predicted_label": label}))
        (tmp_path / name).write_text("\n".join(rows) + "\n")
        return tmp_path / name

    one = ("--system", "one", labels("one", "SUPPORTS", "SUPPORTS"))
    all_right = ("--system", "all", labels("all", *right.values()))
    few = ("--system", "few", labels("few", "SUPPORTS"))
    claims = (ROOT / "recipes" / "claims.py", data, "accuracy", *one, *all_right)
    cells = run_script(*claims, "--pair", "one", "all").splitlines()[2].split()
    assert cells[:4] == ["accuracy", "50.00", "100.00", "50.00"] and cells[7] == "nan"
    with pytest.raises(AssertionError, match="error: .*few: other claims than the judgements"):
        run_script(*claims, *few, "--pair", "one", "few")


def test_the_first_candidates_of_a_ranker(tmp_path):
    """They keep their order, ids and labels; a question without a positive among them stays."""
    texts = [("one apple", 1, "d0"), ("red apple pie", 0, "d1"), ("red apple", 0, "d2")]
    candidates = [{"text": text, "label": label, "id": key} for text, label, key in texts]
    questions = [
        {"id": "q1", "question": "red apple pie", "candidates": candidates},
        {"id": "q2", "question": "red apple pie", "candidates": candidates[1:]},
    ]
    data, out = tmp_path / "test.jsonl", tmp_path / "first"
    data.write_text("".join(json.dumps(question) + "\n" for question in questions))
    files = ("--questions", data, "no-all-negative", out / "some.jsonl")
    files += ("--questions", data, "all", out / "all.jsonl")
    run_script(MSPP / "first.py", "wo", "--keep", 2, *files)
    [some] = read_questions(out / "some.jsonl")
    assert [candidate.id for candidate in some.candidates] == ["d1", "d2"]
    assert some.labels == (0, 0) and some.texts == ("red apple pie", "red apple")
    assert [question.id for question in read_questions(out / "all.jsonl")] == ["q1", "q2"]


def left_out(name, precision):
    """The line that a comparison prints for a precision that this machine lacks."""
    return f"left out: {name} {precision}: {lacks(precision)}"


@pytest.mark.onednn
@pytest.mark.once
@pytest.mark.nightly
def test_the_comparison_of_speeds(tmp_path):
    """In two precisions, and without the peers, which another environment holds."""
    size = ("--shape", "tiny", "--questions", 4, "--candidates", 12, "--chunk", 2)
    options = ("--precision", "float32", "--precision", "int8", "--json", tmp_path / "bench.json")
    output = run_python(BENCH / "compare.py", *size, *options, check=True).stdout
    machine, size_line = output.splitlines()[:2]
    assert re.match(rf"\d+ processors: .+; wqa {re.escape(wqa.__version__)}; 20\d\d-", machine)
    assert size_line.startswith("4 questions, 48 candidates")
    figures = json.loads((tmp_path / "bench.json").read_text())
    rows = {(row["name"], row["precision"], row["drop_ratio"]): row for row in figures["rows"]}
    # float32 is measured everywhere: without oneDNN's package by MXNet.
    measured = ["float32"] if lacks("int8") else ["float32", "int8"]
    expected = [("wqa pairwise", precision, 0.0) for precision in measured]
    for ratio in (0.0, 0.3, 0.5):
        expected += [("wqa cascade", precision, ratio) for precision in measured]
    assert sorted(rows) == sorted(expected)
    lines = [line for line in output.splitlines() if line.startswith("left out: ")]
    if lacks("int8"):
        assert lines == [left_out("wqa pairwise", "int8"), left_out("wqa cascade", "int8")]
    else:
        assert not lines
    assert len(figures["left_out"]) == len(lines)
    for (name, precision, ratio), row in rows.items():
        assert row["tokens_per_s"] > row["candidates_per_s"] > 0
        assert row["memory_mib"] > 50
        assert (row["end_to_end"] is None) == (precision == "float32")
        if ratio == 0:
            assert row["spearman"] > 0.4, (name, precision)
    for precision in measured:  # candidates that are dropped early keep the order of an early exit
        full, some, half = (rows["wqa cascade", precision, ratio] for ratio in (0.0, 0.3, 0.5))
        assert half["spearman"] < some["spearman"] < full["spearman"], precision


@pytest.fixture
def bench(monkeypatch):
    """Folder of the comparisons, whose modules may be imported."""
    monkeypatch.syspath_prepend(str(BENCH))
    return BENCH


def start(code):
    """Start a contender that runs some code; gives what was left out."""
    from contenders import Contender, start_all

    with contextlib.ExitStack() as stack:
        contender = Contender("peer", "int8", [sys.executable, "-c", code])
        ready, left_out = start_all([contender], stack)
        if ready:
            assert contender.work(3, 5) == {"seconds": 8}
        return left_out


def test_a_contender_answers(bench):
    code = "print('{}', flush=True); begin, end = map(int, input().split()); "
    assert start(code + "print('{\"seconds\": %d}' % (begin + end))") == []


def test_an_instruction_that_the_processor_lacks_leaves_a_contender_out(bench):
    [row] = start("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert (row["name"], row["precision"]) == ("peer", "int8") and "SIGILL" in row["reason"]


def test_options_of_runs_go_together(bench):
    done = run_python(BENCH / "compare_training.py", "--pairwise", "run")
    assert done.returncode == 2 and "--pairwise, --cascade, --data: some" in done.stderr


def test_a_contender_with_a_fault_ends_the_comparison(bench, capfd):
    with pytest.raises(SystemExit, match="peer int8 ended: status 1"):
        start("import sys; sys.exit('no module of its own')")
    assert "no module of its own" in capfd.readouterr().err
    with pytest.raises(SystemExit, match="peer int8 ended: .*memory is short"):
        start("import os, signal; print('{}', flush=True); os.kill(os.getpid(), signal.SIGKILL)")


def test_the_comparison_puts_peers_beside(bench):
    import compare

    def contender(name, precision, seconds, scores, **extra):
        entry = compare.Contender(name, precision, [])
        for value in seconds:
            row = {"drop_ratio": 0.0, "seconds": value, "scores": scores, **extra}
            entry.turns.append({"tokens": 30, "memory_mib": 1.0, "rows": [row]})
        return entry

    contenders = [
        contender("pytorch", "float32", [4, 9, 4], [[1, 2, 3]]),
        contender("cross-encoder", "float32", [8, 8, 8], [[1, 2, 3]]),
        contender("wqa pairwise", "int8", [1, 3, 2], [[1, 3, 2]], end_to_end=2.0),
    ]
    others = [
        contender("pytorch", "float32", [40, 40, 40], [[1, 2, 3]]),
        contender("openvino", "int8", [10, 20, 40], [[2, 1, 3]]),
    ]
    questions = [(["a", "b", "c"], [0, 0, 1])] * 3
    rows = compare.rows_of([contenders, others], questions)
    [ours] = [row for row in rows if row["name"] == "wqa pairwise"]
    assert len(rows) == 4  # PyTorch is in both groups, and in the table once
    # The CrossEncoder starts from text, so ours does beside it. OpenVINO ran in other turns, where
    # it was twice as fast as PyTorch.
    expected = {"pytorch float32": 3, "cross-encoder float32": 4, "openvino int8": 1.5}
    assert ours["over"] == expected
    assert ours["map"] == 0.5
    assert ours["candidates_per_s"] == 9 / 6
    assert ours["tokens_per_s"] == 90 / 6
    assert ours["end_to_end"] == 1
    assert ours["spearman"] == 0.5
    assert ours["same_first"] == 0
    header, *lines = compare.table(list(map(compare.flat, rows))).splitlines()
    assert header.endswith("  over openvino int8") and "wqa pairwise       int8 " in lines[2]
    rows = compare.rows_of([contenders, others[1:]], questions)
    assert rows[2]["over"]["openvino int8"] is None  # PyTorch is not among the others
    assert compare.table(list(map(compare.flat, rows))).splitlines()[3].endswith(" -")
    contenders[0].setting = others[0].setting = "batches of 32"
    lines = compare.settings_of([contenders, others])
    assert lines == ["pytorch float32: batches of 32"]
