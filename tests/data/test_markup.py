"""What of a file is its text: front matter, rules, and elements that XHTML closes at once."""

import re

import pytest

from wqa.data.markup import markdown_text, page_text


@pytest.mark.parametrize(
    "front",
    [
        "---\ntitle: Tides\n---\n",
        "---\ntitle: Tides\ntags:\n- sea\n- moon\n\nother: {a: 1}\n...\n",
        "--- \n# a comment\ntitle: >\n  in two\n  lines\n---  \n",
    ],
)
def test_front_matter_is_left_out(front):
    assert markdown_text(front + "# Tides\n\nThe moon.\n") == ("Tides", "# Tides\n\nThe moon.")


@pytest.mark.parametrize(
    "source",
    [
        "---\n\nThe tide tables are in the cabinet.\n\n---\n\nThe lighthouse.\n",
        "---\n---\nThe tide tables.\n",
        "---\ntitle: no end\n\nThe tide tables.\n",
        "---\nNote: a rule\nand a sentence behind it.\n---\nThe lighthouse.\n",
    ],
)
def test_a_rule_is_no_front_matter(source):
    text = markdown_text(source)[1]
    assert set(re.findall(r"\w+", source)) == set(re.findall(r"\w+", text))


def test_soft_hyphens_do_not_divide_words():
    pytest.importorskip("selectolax")
    page = "<title>Eis&shy;berg</title><p>The Glet&shy;scher&shy;höhle is cold.</p>"
    assert page_text(page) == ("Eisberg", "The Gletscherhöhle is cold.")


def test_front_matter_ends_at_its_first_end():
    text = markdown_text("---\na: 1\n...\n\nThe mill.\n\n---\n\nThe ferry.\n")[1]
    assert "The mill." in text and "The ferry." in text and "a: 1" not in text


@pytest.mark.parametrize(
    "element",
    [
        *('<iframe src="x"/>', "<script src='y' />", "<title/>", "<SVG/>", "<xmp/>", "<aside/>"),
        *('<iframe title="a > b"/>', "<nav class='x'/>", "<noembed/>", "<main/>"),
    ],
)
def test_what_follows_an_element_that_is_closed_at_once_is_kept(element):
    pytest.importorskip("selectolax")
    page = f"<html><body><p>One.</p>{element}<p>The mill was built in 1702.</p></body></html>"
    assert "The mill was built in 1702." in page_text(page)[1]
