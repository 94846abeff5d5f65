"""No file of the package knows a system, but the system's own files and the registries."""

import ast

from conftest import ROOT

from wqa.inference import Ranker
from wqa.models import NETWORKS, Head, Network


def source_files():
    """Files of the package by their path from its folder."""
    folder = ROOT / "wqa"
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}


def kinds(*bases):
    """Names of classes and of all that inherit from them in the package."""
    names = set()
    for base in bases:
        if base.__module__.startswith("wqa."):
            names |= {base.__name__} | kinds(*base.__subclasses__())
    return names


def types_of_checks(tree):
    """Names of the types that `isinstance` and `issubclass` are given."""
    names = set()
    for node in ast.walk(tree):
        called = getattr(getattr(node, "func", None), "id", "")
        if called in ("isinstance", "issubclass"):
            for part in ast.walk(node.args[1]):
                names.add(getattr(part, "id", getattr(part, "attr", "")))
    return names


def test_no_file_checks_the_type_of_a_head_a_network_or_a_ranker():
    names = kinds(Head, Network, Ranker)
    assert {"MeanHead", "CascadeTransformer", "SequentialRanker"} <= names
    for name, path in source_files().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not types_of_checks(tree) & names, name


#: Files that name a system beside its own, and why.
NAMING = {
    "models/registry.py": "a registry",
    "models/__init__.py": "collects the networks",
    "training/registry.py": "a registry",
    "training/paragraphs.py": "pre-trains the joint model",
    "training/claims.py": "trains the joint model on claims",
    "pretrained/checkpoints.py": "a registry",
    "inference/pipeline.py": "imports readers of spans, by any system that computes them",
    "inference/__init__.py": "collects the rankers",
    "inference/decoupled.py": "ranks by the groups and drops of cascades",
    "inference/load.py": "another library's classifier is the monolithic ranker",
    "inference/export.py": "exports it to that library",
    "pretrained/load.py": "the same",
    "pretrained/source.py": "the same",
    "pretrained/convert.py": "the same",
    "inference/random.py": "times shapes of cascades by default",
    "cli/bench.py": "the same, beside monolithic rankers",
    "inference/cost.py": "the drop rule, which stands in the cascade's file",
    "inference/dropping.py": "the drop rule",
    "inference/tuned.py": "the drop rule",
    "tuning/scored.py": "the drop rule",
}


def docstrings(tree):
    """Ids of the nodes of docstrings."""
    ids = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            ids.add(id(body[0].value))
    return ids


def systems_named(tree, systems):
    """Systems that code names: as a text, or as the module of an import."""
    ignored, named = docstrings(tree), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in systems and id(node) not in ignored:
            named.add(node.value)
        if isinstance(node, ast.ImportFrom):
            named |= systems & set((node.module or "").split("."))
        if isinstance(node, ast.Import):
            named |= {part for alias in node.names for part in alias.name.split(".")} & systems
    return named


def test_no_file_names_a_system_but_its_own():
    systems = set(NETWORKS)
    assert systems >= {"cascade", "pairwise"}
    named = {}
    for name, path in source_files().items():
        others = systems_named(ast.parse(path.read_text(encoding="utf-8")), systems) - {path.stem}
        if others:
            named[name] = others
    assert set(named) <= set(NAMING), named


def test_a_check_and_a_name_are_noticed():
    tree = ast.parse("isinstance(head, (str, heads.MeanHead))\nissubclass(a, Ranker)")
    assert types_of_checks(tree) >= {"MeanHead", "Ranker"}
    code = '"""the cascade"""\nfrom wqa.models.pairwise import a\nb = ("cascade", "a cascade")'
    assert systems_named(ast.parse(code), {"cascade", "pairwise", "a"}) == {"cascade", "pairwise"}
