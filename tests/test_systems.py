"""No file of the package knows a system, but the system's own files and the registries."""

import ast

from conftest import ROOT

from wqa.inference import Ranker
from wqa.models import Head, Network
from wqa.systems import SYSTEMS


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
    for system in SYSTEMS.values():  # their classes exist once they are imported
        system.network_type(), system.ranker_type()
    names = kinds(Head, Network, Ranker)
    assert {"MeanHead", "CascadeTransformer", "SequentialRanker"} <= names
    for name, path in source_files().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not types_of_checks(tree) & names, name


#: The registry, and three files outside of a system's folder that name it, with the reason.
NAMING = {
    "systems/registry.py": "the registry",
    "pretrained/source.py": "a run of the monolithic ranker is also an encoder with a classifier",
    "cli/ask.py": "its option --reader",
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
            if node.module == "wqa.systems":
                named |= systems & {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            named |= {part for alias in node.names for part in alias.name.split(".")} & systems
    return named


def folder_of(system):
    """Folder of a system, from that of the package."""
    return "systems/" + SYSTEMS[system].network.split(".")[2] + "/"


def test_no_file_names_a_system_but_its_own():
    named = {}
    for name, path in source_files().items():
        systems = systems_named(ast.parse(path.read_text(encoding="utf-8")), set(SYSTEMS))
        others = {system for system in systems if not name.startswith(folder_of(system))}
        if others:
            named[name] = others
    assert set(named) == set(NAMING), named


def test_a_check_and_a_name_are_noticed():
    tree = ast.parse("isinstance(head, (str, heads.MeanHead))\nissubclass(a, Ranker)")
    assert types_of_checks(tree) >= {"MeanHead", "Ranker"}
    code = '"""the cascade"""\nfrom wqa.systems.pairwise import a\nb = ("cascade", "a cascade")'
    assert systems_named(ast.parse(code), {"cascade", "pairwise", "a"}) == {"cascade", "pairwise"}
