"""The house's own rules: which module may import which, and what the repository may name."""

import ast
import subprocess

import pytest
from conftest import ROOT

#: Layers of the package, lowest first, and the layers that each may import beside itself.
LAYERS = {
    "errors": set(),
    "config": {"errors"},
    "data": {"errors", "config"},
    "evaluation": {"errors", "config", "data"},
    "retrieval": {"errors", "config", "data"},
    "text": {"errors", "config", "data"},
    "models": {"errors", "config", "text"},
    "onednn": {"errors", "config", "text", "models"},
    "sparse": {"errors", "config", "models", "onednn"},
    "pretrained": {"errors", "config", "data", "text", "models"},
    "training": {"errors", "config", "data", "text", "models", "onednn", "sparse", "pretrained"},
    "inference": {
        "errors",
        "config",
        "data",
        "retrieval",
        "text",
        "models",
        "onednn",
        "sparse",
        "pretrained",
    },
    "tuning": {"errors", "config", "data", "evaluation", "text", "models", "inference"},
    "serve": {"errors", "config", "data", "inference"},
}
#: May import every layer.
TOP = ("cli", "__main__", "__init__")
WITHOUT_MXNET = {"errors", "config", "data", "evaluation", "retrieval"}

#: What a file of `wqa.models` may import of the files beside it.
SHARED_MODELS = {
    "backbone",
    "heads",
    "interactions",
    "joint_config",
    "joint_heads",
    "list_config",
    "lists",
    "network",
    "positions",
    "predictor",
    "runtime",
}
#: The files of `wqa.models` that collect the others.
COLLECTING_MODELS = {"__init__", "registry"}


def modules_of(root):
    """Modules of the package below a folder, by dotted name."""
    modules = {}
    for path in sorted((root / "wqa").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        modules[".".join(parts)] = path
    return modules


def imported(path):
    """Names that are imported when a file is; imports inside functions run later and do not count.

    ``from a import b`` gives ``a`` and ``a.b``, as ``b`` may be a module.
    """
    names = set()
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes.extend(ast.iter_child_nodes(node))
    return names


def layer_of(name):
    """Layer of a dotted name of the package; None for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


def against_layers(root):
    """Imports that run against the layers, and layers that have no entry."""
    broken = []
    modules = modules_of(root)
    layers = {layer_of(name) for name in modules} - {None}
    broken += [f"{layer} is not in LAYERS" for layer in layers - set(LAYERS) - set(TOP)]
    for name, path in modules.items():
        layer = layer_of(name)
        if layer not in LAYERS:
            continue
        for target in imported(path):
            if target.split(".")[0] == "mxnet" and layer in WITHOUT_MXNET:
                broken.append(f"{path} imports MXNet")
            below = layer_of(target) if target.startswith("wqa.") else None
            if below in layers and below != layer and below not in LAYERS[layer]:
                broken.append(f"{path} imports {target}")
    return broken


def in_cycles(root):
    """Modules that import themselves by way of others."""
    modules = modules_of(root)
    left = {}
    for name, path in modules.items():
        targets = imported(path) & set(modules)
        # A package is imported before its modules, so that a module does not wait for its package.
        left[name] = {target for target in targets if not f"{name}.".startswith(f"{target}.")}
    while True:
        free = [name for name, targets in left.items() if not targets & set(left)]
        if not free:
            return sorted(left)
        for name in free:
            del left[name]


def against_siblings(root):
    """Imports between the files of `wqa.models`, but for those that all may import."""
    broken = []
    files = {path.stem: path for path in (root / "wqa" / "models").glob("*.py")}
    for name, path in sorted(files.items()):
        if name in COLLECTING_MODELS:
            continue
        targets = {target.split(".")[2] for target in imported(path) if is_model(target)}
        siblings = targets & set(files) - SHARED_MODELS - {name}
        broken += [f"{path} imports {sibling}" for sibling in sorted(siblings)]
    return broken


def is_model(name):
    """Whether a dotted name lies in `wqa.models`."""
    return name.startswith("wqa.models.")


def test_imports_follow_the_layers():
    assert len(modules_of(ROOT)) > 40
    assert not against_layers(ROOT)


def test_no_module_imports_itself_by_way_of_others():
    assert not in_cycles(ROOT)


def test_models_import_only_what_they_share():
    assert not against_siblings(ROOT)
    assert (ROOT / "wqa" / "models" / "cascade.py").exists()


@pytest.mark.parametrize(
    "check, name, text, message",
    [
        (against_layers, "data/new.py", "import mxnet as mx", "new.py imports MXNet"),
        (against_layers, "text/new.py", "from wqa import models", "imports wqa.models"),
        (against_layers, "onednn/new.py", "import wqa.training", "imports wqa.training"),
        (against_layers, "training/new.py", "from wqa.inference import a", "imports wqa.inference"),
        (against_layers, "leftovers/new.py", "", "leftovers is not in LAYERS"),
        (in_cycles, "data/new.py", "from wqa.data.old import a", "wqa.data.new"),
        (against_siblings, "models/new.py", "from wqa.models import old", "new.py imports old"),
        (against_siblings, "models/new.py", "import wqa.models.old", "new.py imports old"),
    ],
)
def test_a_broken_rule_is_reported(tmp_path, check, name, text, message):
    for layer in ("data", "text", "models", "onednn", "training", "inference"):
        (tmp_path / "wqa" / layer).mkdir(parents=True)
        (tmp_path / "wqa" / layer / "__init__.py").write_text("")
    (tmp_path / "wqa" / "data" / "old.py").write_text("from wqa.data import new\n")
    (tmp_path / "wqa" / "models" / "old.py").write_text("from wqa.models.heads import b\n")
    assert not check(tmp_path)
    path = tmp_path / "wqa" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    assert any(message in line for line in check(tmp_path))


def test_data_scripts_import_the_lowest_layers_alone():
    paths = sorted((ROOT / "data_scripts").glob("*.py"))
    assert len(paths) > 5
    for path in paths:
        layers = {layer_of(name) for name in imported(path) if name.startswith("wqa.")}
        assert layers <= {"errors", "data", "evaluation"}, path


def test_the_repository_names_no_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    folders = ("/ro" + "ot/", "/wo" + "rk/", "/ho" + "me/", "/tm" + "p/")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".py", ".sh", ".md", ".txt", ".toml", ".jsonl"):
            text = path.read_text(encoding="utf-8")
            assert not [folder for folder in folders if folder in text], name
