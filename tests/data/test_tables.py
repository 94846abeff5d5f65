"""Questions in tables, CSV and with tabs."""

import csv
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import Candidate, Question, read_questions
from wqa.errors import DataError

#: Cells that survive a CSV file: what ends a line inside a cell is kept, but for NUL.
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def write_table(path, questions):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["question", "candidate", "label", "id"])
        for question in questions:
            for candidate in question.candidates:
                label = "" if candidate.label is None else candidate.label
                table.writerow([question.question, candidate.text, label, candidate.id or ""])
    return path


def test_a_table_of_questions(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"\xef\xbb\xbfquestion,rank,candidate,label,id\r\n"
        b'why ?,1,"Tea, a drink\nof ""leaves"".",1,D7\r\n'
        b"who ?,1,,,\r\n"
        b"\r\n"
        b"why ?,2,Ice.,0.0,D8\r\n"
        b"why ?,3,Steam.,1.0,\r\n"
    )
    assert list(read_questions(path)) == [
        Question(
            "1",
            "why ?",
            (
                Candidate('Tea, a drink\nof "leaves".', 1, "D7"),
                Candidate("Ice.", 0, "D8"),
                Candidate("Steam.", 1),
            ),
        ),
        Question("2", "who ?", (Candidate("", None),)),
    ]
    text = 'candidate\tquestion\n"Ice\twhy ?\n'
    (tmp_path / "t.TSV.gz").write_bytes(gzip.compress(text.encode()))
    [question] = read_questions(tmp_path / "t.TSV.gz")
    assert question == Question("1", "why ?", (Candidate('"Ice', None),))


@pytest.mark.parametrize(
    "rows, texts, is_quoted",
    [
        # RFC 4180, as pandas and Excel write it
        (['"say ""so"""\t"a\nb"', 'why\t"""Go"", she said"'], ["a\nb", '"Go", she said'], True),
        (['why\t"a ""b"" c"', "why\tit"], ['a "b" c', "it"], True),
        # Quotation marks that are text: one is open, or goes on behind its end, or is in a cell
        (['"Ice\twhy', "who\tit"], ["why", "it"], False),
        (['"Ice" is\ta', 'who\t"b"'], ["a", '"b"'], False),
        (['"Ice\ta', 'who"\tb\tc"'], None, False),
        (['5" pipe\tit is 7"'], ['it is 7"'], False),
    ],
)
def test_quotation_marks_of_a_table_with_tabs(tmp_path, caplog, rows, texts, is_quoted):
    path = tmp_path / "t.tsv"
    path.write_text("\n".join(["question\tcandidate", *rows, ""]))
    if texts is None:
        with pytest.raises(DataError, match="t.tsv, row 2: 3 cells"):
            list(read_questions(path))
        return
    read = [
        candidate.text for question in read_questions(path) for candidate in question.candidates
    ]
    assert read == texts and ("t.tsv: quotation marks" in caplog.text) == is_quoted


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_line_ends_and_rows_without_text(tmp_path, caplog, end, name):
    rows = ["", "question,candidate,label", "why ?,Ice.,1", ",,", "why ?,Tea.,0", " ,,,,", ""]
    text = end.join(rows).replace(",", "," if name == "t.csv" else "\t")
    (tmp_path / name).write_bytes(text.encode())
    expected = Question("1", "why ?", (Candidate("Ice.", 1), Candidate("Tea.", 0)))
    assert list(read_questions(tmp_path / name)) == [expected]
    assert "2 rows without a text left out" in caplog.text


def test_labels_in_a_column_of_another_name(tmp_path, caplog):
    (tmp_path / "t.csv").write_text("question,candidate,relevance\nwhy ?,Ice.,1\n")
    [question] = read_questions(tmp_path / "t.csv")
    assert question.labels == (None,)
    assert "t.csv: no column 'label'" in caplog.text and "not 'relevance'" in caplog.text


def test_questions_without_candidates(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("question\nwho ?\nwhy ?\nwho ?\n")
    questions = list(read_questions(path, with_candidates=False))
    assert questions == [Question("1", "who ?", ()), Question("2", "why ?", ())]
    with pytest.raises(DataError, match="has no column 'candidate'; expected one of 'question'"):
        list(read_questions(path))


@pytest.mark.parametrize(
    "content, message",
    [
        ("question,sentence\nq,a\n", "has no column 'candidate'; expected one of 'question', 'sen"),
        ("question;candidate\nq;a\n", "save it with commas, or with tabs as .tsv"),
        ("", "is empty; expected a first row with the names of the columns"),
        ("question,candidate\n\n", "holds no question; expected a row with one"),
        ("question,candidate\nq,a\n ,b\n", "row 2: question is empty; expected text"),
        ("question,candidate,label\nq,a,2\n", "row 1: label is '2'; expected 0 or 1, or an empty"),
        ("question,candidate\nq\n", "row 1: 1 cells; expected 2, as in the first row"),
        ("question,candidate,id\nq,a,D 7\n", "candidate 1: id is 'D 7'"),
        ("question,candidate,id\nq,a,D\nq,b,D\n", "document id 'D' belongs to candidate 1 too"),
        ('question,candidate\nq,a\nq,"b\n', "after row 1: unexpected end of data"),
    ],
)
def test_a_table_of_questions_that_does_not_fit(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError) as caught:
        list(read_questions(tmp_path / "t.csv"))
    assert message in str(caught.value) and "t.csv" in str(caught.value)


@given(
    st.dictionaries(
        CELLS.filter(str.strip),
        st.lists(st.tuples(CELLS, st.sampled_from([None, 0, 1])), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_a_table_holds_what_was_written(tmp_path_factory, texts):
    questions = []
    for number, (text, items) in enumerate(texts.items(), 1):
        questions.append(Question(str(number), text, tuple(Candidate(*item) for item in items)))
    path = write_table(tmp_path_factory.getbasetemp() / "written.csv", questions)
    assert list(read_questions(path)) == questions
