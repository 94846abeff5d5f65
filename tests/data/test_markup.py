"""What of a file is its text: front matter, rules, and elements that XHTML closes at once."""

import re

import pytest

from wqa.data.markup import markdown_text


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
    ],
)
def test_a_rule_is_no_front_matter(source):
    text = markdown_text(source)[1]
    assert set(re.findall(r"\w+", source)) == set(re.findall(r"\w+", text))
