"""Questions answered by the sentences of a collection: the pipeline, and ``wqa ask``."""

import json
import shutil

import pytest

import wqa
from wqa import load_ranker
from wqa.cli import main
from wqa.data import Document, Question, builtin_path, write_documents, write_questions
from wqa.errors import DataError, InputError, OptionError
from wqa.inference.pipeline import Pipeline
from wqa.retrieval import Index

TEXTS = {
    "caves.md": "# Glacier caves\n\nGlacier caves form in\nice. Water melts it . They end soon .\n",
    "tubes.txt": "Lava tubes form where lava flows. Caves of lava are dry .\n",
    "tides.txt": "Tides rise and fall with the moon .\n",
}
QUESTION = "how are glacier caves formed ?"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ask")
    (folder / "docs").mkdir()
    # Words of most documents would weigh nothing.
    others = {f"{number}.txt": f"Snow {number} lies on hills.\n" for number in range(7)}
    for name, text in {**TEXTS, **others}.items():
        (folder / "docs" / name).write_text(text)
    assert main(["index", str(folder / "docs"), "--out", str(folder / "index")]) == 0
    return folder / "index"


def ask(index, run, *arguments):
    return main(list(map(str, ["ask", index, "--ranker", run, *arguments])))


def test_all_sentences_of_the_retrieved_documents_are_ranked(index, tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=0.4)
    opened = Index(index)
    asked = Pipeline(opened, ranker=ranker, top=2).ask(QUESTION)
    assert [hit.document.id for hit in asked.documents] == ["caves.md", "tubes.txt"]
    texts = [
        "Glacier caves form in ice.",
        "Water melts it .",
        "They end soon .",
        "Lava tubes form where lava flows.",
        "Caves of lava are dry .",
    ]
    expected = ranker.rank(QUESTION, texts)
    assert [sentence.text for sentence in asked.sentences] == [texts[i] for i in expected.order]
    for sentence, number in zip(asked.sentences, expected.order):
        assert sentence.score == pytest.approx(expected.scores[number], abs=1e-5)
        assert sentence.exit == expected.exits[number]
        document = asked.documents[sentence.document].document
        assert " ".join(document.text[sentence.start : sentence.end].split()) == sentence.text
    around = {sentence.text: (sentence.before, sentence.after) for sentence in asked.sentences}
    assert around[texts[0]] == ("", texts[1])
    assert around[texts[1]] == (texts[0], texts[2])
    assert around[texts[2]] == (texts[1], "")
    assert around[texts[4]] == (texts[3], "")
    many = list(Pipeline(opened, ranker=ranker, top=2).ask_all([Question("Q", QUESTION, ())] * 70))
    order = [sentence.text for sentence in asked.sentences]
    assert len(many) == 70 and [sentence.text for sentence in many[69].sentences] == order
    [nothing] = Pipeline(opened, ranker=ranker).ask_all([Question("N", "zebra ?", ())])
    assert nothing.documents == nothing.sentences == [] and nothing.ranking is None


def test_one_question_by_names(index, tiny_run):
    answers = wqa.ask(index, tiny_run, QUESTION, top=2, drop_ratio=0.4)
    ranker = load_ranker(tiny_run, drop_ratio=0.4)
    assert answers.sentences == wqa.ask(Index(index), ranker, QUESTION, top=2).sentences
    expected = Pipeline(Index(index), ranker=ranker, top=2).ask(QUESTION)
    assert [row.text for row in answers.sentences] == [row.text for row in expected.sentences]
    assert len(answers.documents) == 2
    with pytest.raises(DataError, match="absent: there is no such file or folder"):
        wqa.ask("absent", tiny_run, QUESTION)


def test_a_pipeline_without_its_parts_is_refused(index):
    with pytest.raises(OptionError, match="one without a ranker"):
        Pipeline(Index(index)).ask(QUESTION)
    with pytest.raises(OptionError, match="one without a reader"):
        Pipeline(Index(index)).answer(QUESTION)


def test_the_table_shows_sentences_where_they_stand(index, tiny_run, tmp_path, capsys):
    out = tmp_path / "asked.json"
    arguments = ["--question", QUESTION, "--n-best", 5, "--drop-ratio", 0.3, "--json", out]
    assert ask(index, tiny_run, *arguments) == 0
    said = capsys.readouterr()
    assert "Glacier caves form in ice.\n" in said.out
    assert "caves.md: Glacier caves form in ice. [...] They end soon ." in said.out
    assert "5 sentences of 2 documents, cost " in said.out
    result = json.loads(out.read_text())
    assert [row["rank"] for row in result["sentences"]] == [1, 2, 3, 4, 5]
    assert result["answered"] is None and result["threshold"] is None and result["cost"] < 1
    best = result["sentences"][0]
    assert f"{best['score']:.3f}" in said.out.splitlines()[1]
    text = TEXTS[best["document"]]
    assert " ".join(text[best["start"] : best["end"]].split()) == best["text"]


def test_no_answer_below_a_threshold(index, tiny_run, capsys):
    question = ["--question", QUESTION]
    assert ask(index, tiny_run, *question, "--threshold", 1) == 0
    out = capsys.readouterr().out
    assert out.startswith("no answer found: the relevance of the first sentence, 0.")
    assert ask(index, tiny_run, *question, "--threshold", 0) == 0
    assert capsys.readouterr().out.startswith("rank    score  sentence")
    assert ask(index, tiny_run, "--question", "zebra ?") == 0
    assert "no answer found: the question retrieves no document" in capsys.readouterr().out


def test_the_threshold_of_a_calibrated_run(index, tiny_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    options = ["--data", str(builtin_path("train"))]
    assert main(["calibrate", str(run), *options]) == 0
    values = json.loads((run / "calibration.json").read_text())
    config = json.loads((run / "config.json").read_text())
    del config["sha256"]["calibration.json"]  # as its error says of a file that was changed
    (run / "config.json").write_text(json.dumps(config))
    for threshold, answered in ((1.0, False), (0.0, True)):
        (run / "calibration.json").write_text(json.dumps({**values, "threshold": threshold}))
        capsys.readouterr()
        out = tmp_path / "out.json"
        assert ask(index, run, "--question", QUESTION, "--json", out) == 0
        assert capsys.readouterr().out.startswith("no answer found: ") is not answered
        result = json.loads(out.read_text())
        assert (result["answered"], result["threshold"]) == (answered, threshold)


def test_figures_of_questions_with_known_answers(index, tmp_path, capsys):
    """By overlap of words, whose ranks are known: the stages say where an answer is lost."""
    questions = [
        Question("first", "what do glacier caves form in ?", (), ("ICE",)),
        Question("second", "which caves form ?", (), ("dry",)),  # in the last of five sentences
        Question("across", "what melts ?", (), ("ice . water",)),  # of two sentences
        Question("elsewhere", "which lava flows ?", (), ("moon",)),  # of another document
        Question("absent", "which lava flows ?", (), ("zebra",)),
        Question("nothing", "zebra ?", (), ("moon",)),
    ]
    write_questions(tmp_path / "q.jsonl", questions)
    data = ["--data", tmp_path / "q.jsonl", "--json", tmp_path / "all.json", "--n-best", 2]
    assert ask(index, "wo", *data) == 0
    said = capsys.readouterr()
    assert "1 of 6 questions retrieve no document" in said.err
    assert "6 questions, with an answer 50.00 % in documents, 33.33 % in sentences" in said.out
    figures = json.loads((tmp_path / "all.json").read_text())
    assert figures["documents"] == 3 / 6 and figures["sentences"] == 2 / 6
    asked = list(Pipeline(Index(index), ranker=load_ranker("wo")).ask_all(questions[:2]))
    ranks = []
    for item, text in zip(asked, ("Glacier caves form in ice.", "Caves of lava are dry .")):
        ranks.append([sentence.text for sentence in item.sentences].index(text) + 1)
    assert ranks[0] == 1
    assert figures["hit@1"] == 1 / 6
    assert figures["hit@2"] == sum(rank <= 2 for rank in ranks) / 6
    assert figures["mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / 6)
    assert [row["id"] for row in figures["results"]][-1] == "nothing"
    bare = [question._replace(answers=()) for question in questions]
    write_questions(tmp_path / "q.jsonl", bare)
    assert ask(index, "wo", "--data", tmp_path / "q.jsonl") == 0
    said = capsys.readouterr().out
    assert said == "6 questions, without known answers\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--question", " "], "question: the question is empty"),
        (["--question", QUESTION, "--n-best", "0"], "--n-best: 0; expected a whole number from 1"),
        (["--question", QUESTION, "--threshold", "2"], "--threshold: '2'; expected a number from"),
        (["--question", QUESTION, "--drop-ratio", "1"], "--drop-ratio: 1"),
        (["--question", "how " * 80], "question 'how how how"),
        (["--question", QUESTION, "--json", "."], "--json: ., a folder; expected the name of a"),
        (["--question", QUESTION, "--cache", "c"], "--cache: without --reader"),
        ([], "one of the arguments --question --data is required"),
    ],
)
def test_errors_are_one_line(index, tiny_run, refusal, arguments, message):
    assert message in refusal("ask", index, "--ranker", tiny_run, *arguments)


def test_questions_in_python_are_checked_before_anything_is_retrieved(index):
    for question, found in (("", "the question is empty"), (None, "is None; expected a text")):
        with pytest.raises(InputError, match=found):
            wqa.ask(index, "wo", question)


def test_texts_are_asked_without_an_index(index, tmp_path, capsys):
    folder = index.parent / "docs"
    assert ask(index, "wo", "--question", QUESTION) == 0
    expected = capsys.readouterr().out
    assert ask(folder, "wo", "--question", QUESTION) == 0
    assert capsys.readouterr().out == expected
    (tmp_path / "kettle.txt").write_text("A kettle boils water. It whistles when steam escapes.")
    write_documents(tmp_path / "d.jsonl", [Document("D", "Tea is a drink. A kettle whistles.")])
    for name, text in (
        ("kettle.txt", "It whistles when steam escapes."),
        ("d.jsonl", "A kettle whistles."),
    ):
        [first, *_] = wqa.ask(tmp_path / name, "wo", "what whistles ?").sentences
        assert first.text == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.jsonl", "kettle.txt"]


def test_a_file_that_holds_no_candidate_lines(tmp_path, refusal):
    for name, hint in (("t.csv", "`wqa index` and `wqa ask`"), ("t.docx", "convert it to text")):
        (tmp_path / name).write_text("id,text\n1,Ice melts.\n")
        error = refusal("rank", "wo", "--question", QUESTION, "--candidates", tmp_path / name)
        assert f"is a {name[1:]} file; expected candidates, one a line; {hint}" in error


def test_a_ranker_that_is_a_file_or_is_misspelt(index, tmp_path, refusal):
    ask = ("ask", index, "--question", QUESTION, "--ranker")
    assert "minlm: there is no such directory; " in (said := refusal(*ask, "minlm"))
    assert said.endswith("did you mean minilm?")
    assert "'random:x': no seed; expected random:SEED" in refusal(*ask, "random:x")
    (tmp_path / "sentences.txt").write_text("Ice melts.\n")
    error = refusal(*ask, tmp_path / "sentences.txt")
    assert "sentences.txt: is a file; expected a run" in error


def test_indexes_of_documents_with_and_without_sentences(tmp_path, run_main, refusal):
    documents, table = tmp_path / "d.jsonl", tmp_path / "t.csv"
    write_documents(documents, [Document("D", TEXTS["tides.txt"])])
    assert run_main("index", documents, "--out", tmp_path / "whole")[0] == 0
    absent = ("--ranker", tmp_path / "absent")  # it is not loaded
    error = refusal("ask", tmp_path / "whole", *absent, "--question", "tides ?")
    assert "make it with `wqa index --sentences`" in error
    _, printed, _ = run_main("index", documents, "--sentences", "--out", tmp_path / "index")
    assert "1 document, 1 sentence, " in printed
    assert ask(tmp_path / "index", "wo", "--question", "how do tides rise ?") == 0
    table.write_text("body\nIce melts . It does .\n")
    command = ("index", table, "--out", tmp_path / "index", "--column", "body")
    assert "replace it with --replace, or choose another folder" in refusal(*command)
    assert "1 document, 2 sentences, " in run_main(*command, "--replace")[1]
    error = refusal("index", table, "--out", tmp_path / "other")
    assert "name the column of texts with --column; ',' divides them" in error


def test_a_collection_without_the_answer_says_so_by_the_untrained_ranker(index, minilm, capsys):
    assert ask(index, "minilm", "--question", "is the president of Finland on the moon ?") == 0
    assert "no answer found: the relevance of the first sentence" in capsys.readouterr().out
    assert ask(index, "minilm", "--question", "how do glacier caves form ?") == 0
    assert "Glacier caves form in ice" in capsys.readouterr().out
    never = ["--threshold", "0", "--question", "is the president of Finland on the moon ?"]
    assert ask(index, "minilm", *never) == 0
    assert "rank" in capsys.readouterr().out
