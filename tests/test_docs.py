"""The documentation: links, names, commands and examples."""

import ast
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT, run_python, script_result
from pages import BLOCK, blocks, files, untitled
from tiny_encoder import write_tiny_encoder

import wqa
from wqa.cli import COMMANDS, parse
from wqa.config import TrainingConfig
from wqa.data import Claim, write_claims
from wqa.systems.train import train

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
]
GUIDES = [page for page in PAGES if page.parent != DOCS / "reference"]
RESULTS = sorted((DOCS / "results").glob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))

#: Comments, such as the marks of figures.
COMMENT = re.compile("<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)\s]*)\)")
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
#: Files and folders of the repository, as text names them.
NAMED = re.compile(r"`((?:wqa|docs|recipes|data_scripts|tests)/[\w./-]*|[\w.-]+/?\.(?:md|txt))`")


def page_id(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """A page without its fenced blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """Ids of a page's headings, as MkDocs and code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", text) for text in words}


# Texts


def test_the_readme_is_short():
    assert len(COMMENT.sub("", (ROOT / "README.md").read_text(encoding="utf-8")).split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_resolve(page):
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", GUIDES, ids=page_id)
def test_files_that_pages_name_exist(page):
    unlinked = re.sub(r"\[[^\]]*\]\([^)]*\)", "", prose(page))
    for name in NAMED.findall(unlinked):
        if "PAPER" not in name:
            places = (ROOT / name, page.parent / name)
            assert any(place.exists() for place in places), name


def test_the_site_lists_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w/]+\.md", navigation))
    inside = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert inside <= listed
    for page in listed - inside - {"reference/options.md"}:  # which is made from the parser
        assert (ROOT / page).is_file(), page


@pytest.mark.nightly
@pytest.mark.skipif(sys.version_info < (3, 10), reason="the extra docs needs Python 3.10")
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None,
    reason="mkdocs is not installed: pip install -e '.[docs]'",
)
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "adapters" / "index.html").is_file()
    options = (tmp_path / "reference" / "options" / "index.html").read_text(encoding="utf-8")
    assert "--drop-ratio" in options and "--trained-exits" in options


# The reference. MkDocs reads the source without importing it, and so do these tests.


def module_file(name):
    path = ROOT / pathlib.Path(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def name_of(target):
    return getattr(target, "id", None)


def public_names(name):
    """What a module lists in ``__all__``; without it, what it defines without an underscore."""
    tree = ast.parse(module_file(name).read_text(encoding="utf-8"))
    defined = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            defined.append(node.name)
    return defined


def documentation(module, name):
    """Docstring of a public name, or the ``#:`` comment of a constant; None without either."""
    path = module_file(module)
    source = path.read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return ast.get_docstring(node)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return documentation(node.module, alias.name)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            comment = lines[node.lineno - 2]
            if name_of(target) == name and comment.startswith("#:"):
                return comment
    return None


def directives():
    """What the pages of the reference document, by page."""
    pages = sorted((DOCS / "reference").glob("*.md"))
    return {page.stem: DIRECTIVE.findall(page.read_text(encoding="utf-8")) for page in pages}


PUBLIC = ["errors"] + [path.parent.name for path in sorted((ROOT / "wqa").glob("*/__init__.py"))]
PUBLIC.remove("cli")  # its pages are the commands' own help, and command_line.md


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module):
    """A directive of a package documents all that its ``__all__`` lists and that has a text."""
    assert f"wqa.{module}" in directives().get(module, []), f"docs/reference/{module}.md"
    silent = [
        name for name in public_names(f"wqa.{module}") if not documentation(f"wqa.{module}", name)
    ]
    assert not silent, "a docstring, or a comment that starts with #:, is missing"


def test_what_the_reference_documents_exists():
    for page, names in directives().items():
        for name in names:
            assert module_file(name).is_file(), f"docs/reference/{page}.md, {name}"


# Commands


def commands(page):
    """Arguments of every `wqa` command of a page's shell blocks."""
    arguments = []
    for _, text in blocks(page, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s[|&](?:\s|$)", line):
                if part.strip().startswith("wqa "):
                    arguments.append(shlex.split(part, comments=True)[1:])
    return arguments


@pytest.mark.parametrize("page", [page for page in GUIDES if commands(page)], ids=page_id)
def test_commands_parse(page):
    """No page names a command or an option that does not exist."""
    for words in commands(page):
        parse(words)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout by git")
def test_git_ignores_what_the_pages_write():
    written = set()
    for page in GUIDES:
        for _, text in blocks(page, "sh"):
            options = r"--(?:out|json|trec-run|write-qrels)\s+(?:\\\n\s*)?([\w./-]*\w)"
            written.update(re.findall(options, text))
    assert {"caches/squad", "predictions.json", "run.txt"} <= written
    # As folders too, which git ignores by the slash at their end.
    paths = sorted(written | {f"{path}/" for path in written})
    command = ["git", "check-ignore", "--stdin"]
    done = subprocess.run(
        command, input="\n".join(paths), cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60
    )
    ignored = {path.rstrip("/") for path in done.stdout.splitlines()}
    assert ignored == written


def test_the_command_line_page_shows_every_command():
    shown = {words[0] for words in commands(DOCS / "command_line.md")}
    assert shown == set(COMMANDS)


def test_the_wheel_that_the_installation_page_names_is_of_this_version():
    assert f'pip install "wqa-{wqa.__version__}-py3-none-any.whl[cpu]"' in "".join(
        text for _, text in blocks(DOCS / "installation.md", "sh")
    )


# Examples


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, tiny_run):
    """A folder that looks like a checkout in which pages' commands have been run."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("wqa", "data_scripts", "docs"):
        (folder / name).symlink_to(ROOT / name)
    encoder = write_tiny_encoder(folder / "encoders" / "roberta-base", num_hidden_layers=6)
    (folder / "minilm").symlink_to(encoder)
    (folder / "runs").mkdir()
    for name in ("quickstart", "cascade", "pairwise"):
        (folder / "runs" / name).symlink_to(tiny_run)
    claims = folder / "claims.jsonl"
    write_claims(claims, [Claim("1", "ice melts .", ("glacier caves .",), "SUPPORTS")])
    config = TrainingConfig(max_updates=1, warmup_updates=0)
    options = {"config": config, "k": 2, "segment_length": 50}
    train("mspp_claims", str(claims), str(folder / "runs" / "claims"), str(encoder), **options)
    return folder


def examples(page):
    """The Python of a page that no file is made of."""
    return untitled(page, "python")


def needed(code):
    """Libraries that a program imports beside the package, by the names of their modules."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return {name.split(".")[0] for name in names} - {"wqa"}


EXAMPLES = sorted(DOCS.rglob("*.md"))


def test_the_readmes_example_prints_what_it_says(minilm, tmp_path):
    page = ROOT / "README.md"
    done = run_python("-c", examples(page), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [(_, printed)] = blocks(page, "text")
    assert done.stdout == printed


@pytest.mark.parametrize("page", RESULTS, ids=page_id)
def test_a_page_of_results_is_short(page):
    text = COMMENT.sub("", page.read_text(encoding="utf-8"))
    words = [word for word in text.split() if word != "|"]
    assert len(words) <= 900


@pytest.mark.parametrize("page", [page for page in EXAMPLES if examples(page)], ids=page_id)
def test_python_examples_run(page, workplace, tmp_path, monkeypatch):
    for library in sorted(needed(examples(page))):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    script = tmp_path / "example.py"
    script.write_text(examples(page), encoding="utf-8")
    monkeypatch.chdir(workplace)
    status, printed, error = script_result(script)
    assert status == 0 and printed, error


# A newcomer's script


def pages_script(*arguments):
    return script_result(ROOT / "tests" / "pages.py", *arguments)[1]


def test_a_newcomer_runs_what_the_pages_say(tmp_path):
    """`make newcomer` takes its commands from the pages, in which they are found."""
    assert pages_script(ROOT / "README.md", "python") == examples(ROOT / "README.md")
    first = pages_script(DOCS / "installation.md", "--title", "first ranking")
    assert len(re.findall(r"^pip install ", first, re.MULTILINE)) == 2
    assert [words[:2] for words in commands(DOCS / "installation.md")][0] == ["rank", "minilm"]
    assert pages_script(TUTORIALS[0], "--files", tmp_path) == ""
    assert {path.name for path in tmp_path.iterdir()} == set(files(TUTORIALS[0]))
    script = ROOT / "tests" / "newcomer.sh"
    assert os.access(script, os.X_OK) and "make quickstart" in script.read_text()
    assert "make quickstart" in "".join(text for _, text in blocks(ROOT / "README.md", "sh"))
