"""Documents of folders and tables."""

import gzip
import os

import pytest

from wqa.data import Document, read_collection, read_documents, read_folder, read_table
from wqa.data.folders import collection_digest, is_collection
from wqa.data.markup import markdown_text, page_text
from wqa.errors import DataError, OptionError

PAGE = """<html><head><title> Caves &amp; ice </title><style>p {}</style></head><body>
<nav><p>Home</p></nav><main><h1>Glacier caves</h1><p>They <b>form</b> in
ice. They <a href="x">melt</a>.</p><ul><li>One item.<li><p>Two</p></ul>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td><p>two</p><p>words</p></td></tr></table>
<pre>code</pre>tail<br>text</main><footer>Imprint</footer></body></html>"""
TEXT = """# Glacier caves

They form in ice. They melt.

- One item.

- Two

| a | b |
| 1 | two words |

```
code
```

tail text"""


def refused(read, *arguments):
    with pytest.raises(DataError) as error:
        list(read(*arguments))
    return str(error.value)


def test_a_folder_of_texts_markdown_and_pages(tmp_path, caplog):
    (tmp_path / "deep").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "a.txt").write_text("hidden")
    (tmp_path / "b lava_tubes.txt").write_bytes(b"\xef\xbb\xbfLava flows.")
    (tmp_path / "deep" / "a.HTML").write_text(PAGE)
    (tmp_path / "caves.md").write_text("Glacier *caves*\n===\nSee [ice](ice.md), **cold** `x`.\n")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "README").write_text("without a suffix")
    assert list(read_folder(tmp_path)) == [
        Document("b_lava_tubes.txt", "Lava flows.", "b lava tubes"),
        Document("caves.md", "# Glacier caves\n\nSee ice, cold x.", "Glacier caves"),
        Document("deep/a.HTML", TEXT, "Caves & ice"),
    ]
    assert (
        "1 file of kind '.png' left out, 1 file without a text left out, 1 file without suffix"
        in caplog.text
    )
    assert [item.id for item in read_collection(tmp_path)][-1] == "deep/a.HTML"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt", "Käse".encode("cp1252"), "holds no document"),
        ("a.png", b"a", "holds no document; expected a text in a file that ends in .txt, .md"),
        ("a.md", b"<!-- nothing -->", "holds no document"),
    ],
)
def test_a_folder_that_does_not_fit(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refused(read_folder, tmp_path)


def test_two_files_of_one_id(tmp_path):
    (tmp_path / "a b.txt").write_text("one")
    (tmp_path / "a_b.txt").write_text("two")
    message = refused(read_folder, tmp_path)
    assert "its id is 'a_b.txt'" in message and "a b.txt has it too" in message
    assert "cannot be read" in refused(read_folder, tmp_path / "absent")


def test_a_file_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("wqa.data.folders.LONGEST_LINE", 8)
    (tmp_path / "a.txt").write_text("12345678")
    assert [document.text for document in read_folder(tmp_path)] == ["12345678"]
    (tmp_path / "a.txt").write_text("123456789")
    message = refused(read_collection, tmp_path / "a.txt")
    assert "a larger document; expected at most 8 bytes" in message


def test_the_text_of_a_page_is_that_of_its_main_part():
    assert page_text(PAGE) == ("Caves & ice", TEXT)
    assert page_text("<p>a</p><article><p>b</p></article>") == ("", "b")
    two = "<aside>x</aside><article>b</article><article>c</article>"
    assert page_text(f"{two}<script>y</script>") == ("", "b\n\nc")
    assert page_text("") == ("", "")
    assert page_text("<main> </main><p>outside</p>") == ("", "outside")
    assert page_text("<header>top</header><form><p>a</p><input></form>") == ("", "a")
    inside = "<article><header><h1>Ice</h1></header><section>One.</section>Two.</article>"
    assert page_text(inside) == ("", "# Ice\n\nOne.\n\nTwo.")
    figure = "<figure>a<figcaption>b</figcaption></figure><i>c</i><u>d</u>"
    assert page_text(figure) == ("", "a\n\nb\n\ncd")


def test_markdown_becomes_blocks_without_marks():
    source = (
        'a ![x y](b.png "t") [c](d) ``code`` __f__ 2 ** 3\n\n```py\nx ** y\n```\n\n'
        "- one\n- two\n\n| g | `h` |\n|---|---|\n| 1 | 2 |\n"
    )
    assert markdown_text(source) == (
        "",
        "a x y c code f 2 ** 3\n\n```\nx ** y\n```\n\n- one\n\n- two\n\n| g | h |\n| 1 | 2 |",
    )


@pytest.mark.parametrize(
    "source, title, text",
    [
        ("---\ntitle: x\n---\n# Caves\r\ntext\r\n", "Caves", "# Caves\n\ntext"),
        ("We use C# for caves.\n\n## Ice ##\n", "Ice", "We use C# for caves.\n\n## Ice"),
        ("```sh\n# a comment\n```\n# Ice\n", "Ice", "```\n# a comment\n```\n\n# Ice"),
        ("One.\nTwo.\n\n---\nThree.\n", "", "One. Two.\n\nThree."),
        ("a<!-- b\nc -->d <!-- e", "", "ad <!-- e"),
        ("A <script> tag.\n\nList<String>.", "", "A <script> tag.\n\nList<String>."),
        ("# *A* title\n*Never* _enter_ ***it***.", "A title", "# A title\n\nNever enter it."),
        (
            "2 * 3 * 4, f(*args, **more), a__b__c, *.txt",
            "",
            "2 * 3 * 4, f(*args, **more), a__b__c, *.txt",
        ),
        ("[one][1] \\*kept\\* AT&amp;T\n\n[1]: http://example.com", "", "one *kept* AT&T"),
    ],
)
def test_titles_and_texts_of_markdown(source, title, text):
    assert markdown_text(source) == (
        title,
        source.replace("* item", "- item") if text is None else text,
    )


def test_files_that_cannot_be_documents(tmp_path):
    path = tmp_path / "a.txt"
    path.symlink_to(tmp_path / "nowhere")
    assert "a.txt: cannot be read" in refused(read_collection, path)
    with open(os.fsencode(tmp_path) + b"/a\xff.txt", "w") as file:
        file.write("text")
    [document] = read_folder(tmp_path)
    assert document.id.isprintable() and document.text == "text"


def test_tables(tmp_path, caplog):
    table = tmp_path / "t.csv"
    table.write_text('id,body,title\nx,"One, two\nthree",T\ny, ,U\nz,four,\n')
    documents = [Document("x", "One, two\nthree", "T"), Document("z", "four")]
    assert list(read_table(table, "body")) == documents
    assert "1 row without a text left out" in caplog.text
    assert list(read_collection(table, "body")) == documents
    (tmp_path / "t.tsv").write_text("text\tn\none\t1\ntwo\t2\n")
    assert list(read_collection(tmp_path / "t.tsv")) == [Document("1", "one"), Document("2", "two")]
    (tmp_path / "q.TSV").write_text('text\n"one" is quoted\n\n')
    assert list(read_collection(tmp_path / "q.TSV")) == [Document("1", '"one" is quoted')]
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    assert list(read_collection(tmp_path / "t.csv.gz", "body")) == documents
    for other in (tmp_path, tmp_path / "t.jsonl"):
        with pytest.raises(OptionError, match="column: body for .* expected a table"):
            read_collection(other, "body")
    (tmp_path / "t.jsonl").write_text('{"id": "a", "text": "b"}\n')
    assert list(read_collection(tmp_path / "t.jsonl")) == list(read_documents(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    "content, message",
    [
        ("id,body\nx,y\n", "has no column 'text'; expected one of 'id', 'body'"),
        ("text,text\nx,y\n", "has 2 column 'text'; expected one of 'text', 'text'"),
        ("id;text\nx;y\n", "'id;text'; save it with commas"),
        ("Id\nx\n", "name the column of texts with --column"),
        ("id,text\nx\n", "row 1: 1 cells; expected 2, as in the first row"),
        ("id,text\nx,y\nx,z\n", "row 2: document id 'x' is on row 1 too"),
        ("id,text\nx y,z\n", "row 1: id is 'x y'; expected text without white space"),
        ('id,text\nx,"y\n', "after row 0: unexpected end of data; expected a whole table"),
        ("id,text\nx, \n", "holds no text; expected a row with a text"),
    ],
)
def test_a_table_that_does_not_fit(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    assert message in refused(read_table, tmp_path / "t.csv")


def test_a_single_text_is_a_collection_of_one_document(tmp_path):
    for name, content in (("a b.txt", "Ice."), ("a.MD", "# Ice\n\n*It* melts."), ("a.htm", PAGE)):
        (tmp_path / name).write_text(content)
    assert is_collection(tmp_path / "a b.txt") and not is_collection(tmp_path / "a.jsonl")
    assert list(read_collection(tmp_path / "a b.txt")) == [Document("a_b.txt", "Ice.", "a b")]
    expected = Document("a.MD", "# Ice\n\nIt melts.", "Ice")
    assert list(read_collection(tmp_path / "a.MD")) == [expected]
    assert list(read_collection(tmp_path / "a.htm")) == [Document("a.htm", TEXT, "Caves & ice")]
    (tmp_path / "blank.txt").write_text(" \n")
    assert "blank.txt: holds no text" in refused(read_collection, tmp_path / "blank.txt")
    (tmp_path / "a.pdf").write_text("text")
    message = refused(read_collection, tmp_path / "a.pdf")
    assert "is a .pdf file; expected text, Markdown" in message and "pdftotext" in message


def test_the_digest_of_a_collection_is_that_of_its_documents(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    first = collection_digest(tmp_path, "text")
    (tmp_path / "b.png").write_text("no document")
    assert collection_digest(tmp_path, "text") == first
    (tmp_path / "a.txt").write_text("two")
    assert collection_digest(tmp_path, "text") != first
