"""The house's own rules: which module may import which, and what the repository may name."""

import ast
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT

#: Layers of the package, lowest first, and the layers that each may import beside itself.
LAYERS = {
    "errors": set(),
    "config": {"errors"},
    "io": {"errors", "config"},
    "data": {"errors", "config", "io"},
    "cache": {"errors", "config", "io", "data"},
    "evaluation": {"errors", "config", "io", "data"},
    "retrieval": {"errors", "config", "io", "data"},
    "text": {"errors", "config", "io", "data"},
    "models": {"errors", "config", "io", "text"},
    "engines": {"errors", "config", "io", "text", "models"},
    "pretrained": {"errors", "config", "io", "data", "text", "models"},
    "training": {"errors", "config", "io", "data", "text", "models", "engines", "pretrained"},
}
LAYERS["inference"] = (LAYERS["training"] | {"cache", "retrieval"}) - {"training"}
LAYERS["systems"] = LAYERS["inference"] | {"evaluation", "training", "inference"}
LAYERS["tuning"] = {
    *("errors", "config", "io", "data", "evaluation", "text", "models", "inference", "systems")
}
LAYERS["serve"] = {"errors", "config", "io", "data", "inference", "systems"}
LAYERS["cluster"] = LAYERS["serve"] | {"cache"}
LAYERS["adapters"] = {"errors", "config", "data", "inference", "systems"}
#: Module that prepares the process for MXNet.
PREPARES = "wqa.models.runtime"
#: May import every layer.
TOP = ("cli", "__main__", "__init__")
WITHOUT_MXNET = {"errors", "config", "io", "data", "cache", "evaluation", "retrieval"}


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
    """Imports of a system's files from another system, or from a file beside the systems."""
    broken = []
    folder = root / "wqa" / "systems"
    for path in sorted(folder.glob("*/*.py")):
        own = f"wqa.systems.{path.parent.name}"
        for target in imported(path):
            if target.startswith("wqa.systems") and not f"{target}.".startswith(f"{own}."):
                broken.append(f"{path} imports {target}")
    return broken


def test_imports_follow_the_layers():
    assert len(modules_of(ROOT)) > 40
    assert not against_layers(ROOT)


def unprepared(root):
    """Modules that import MXNet before what prepares the process for it."""
    broken = []
    for name, path in modules_of(root).items():
        parts = name.split(".")
        # A package is imported before its modules.
        packages = [root.joinpath(*parts[:depth], "__init__.py") for depth in range(2, len(parts))]
        order = []
        for file in (*filter(pathlib.Path.is_file, packages), path):
            order += in_order(file)
        first = [target.split(".")[0] == "mxnet" or target == PREPARES for target in order]
        if any(first) and order[first.index(True)] != PREPARES:
            broken.append(f"{path} imports MXNet before {PREPARES}")
    return broken


def test_the_process_is_prepared_before_recipes_import_mxnet(tmp_path):
    scripts = sorted((ROOT / "recipes").rglob("*.py"))
    assert len(scripts) > 30
    assert not list(filter(imports_mxnet_first, scripts))
    path = tmp_path / "new.py"
    path.write_text("from mxnet import nd\nimport wqa.models\n")
    assert imports_mxnet_first(path)
    path.write_text("import wqa.models\nfrom mxnet import nd\n")
    assert not imports_mxnet_first(path)


def imports_mxnet_first(path):
    """Whether a script imports MXNet, or GluonNLP, before what prepares the process for it."""
    for name in in_order(path):
        if name == PREPARES:
            return False
        if name.split(".")[0] in ("mxnet", "gluonnlp"):
            return True
    return False


def in_order(path):
    """Modules that a file imports at its top, in order; what imports them first counts as them."""
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    return [PREPARES if name == "wqa.models" else name for name in names]


def test_the_process_is_prepared_before_mxnet_is_imported(tmp_path):
    assert not unprepared(ROOT)
    (tmp_path / "wqa" / "systems").mkdir(parents=True)
    path = tmp_path / "wqa" / "systems" / "new.py"
    path.write_text("import mxnet as mx\nimport wqa.models.runtime\n")
    assert len(unprepared(tmp_path)) == 1
    path.write_text("import wqa.models.runtime\nimport mxnet as mx\n")
    assert not unprepared(tmp_path)


def test_no_module_imports_itself_by_way_of_others():
    assert not in_cycles(ROOT)


def test_no_system_imports_another():
    assert len(list((ROOT / "wqa" / "systems").glob("*/network.py"))) > 5
    assert not against_siblings(ROOT)


@pytest.mark.parametrize(
    "check, name, text, message",
    [
        (against_layers, "data/new.py", "import mxnet as mx", "new.py imports MXNet"),
        (against_layers, "text/new.py", "from wqa import models", "imports wqa.models"),
        (against_layers, "engines/new.py", "import wqa.training", "imports wqa.training"),
        (against_layers, "training/new.py", "from wqa.inference import a", "imports wqa.inference"),
        (against_layers, "leftovers/new.py", "", "leftovers is not in LAYERS"),
        (in_cycles, "data/new.py", "from wqa.data.old import a", "wqa.data.new"),
        (against_siblings, "systems/new/task.py", "from wqa.systems import old", "wqa.systems.old"),
        (against_siblings, "systems/new/task.py", "import wqa.systems.load", "wqa.systems.load"),
    ],
)
def test_a_broken_rule_is_reported(tmp_path, check, name, text, message):
    for layer in ("data", "text", "models", "engines", "training", "inference", "systems"):
        (tmp_path / "wqa" / layer).mkdir(parents=True)
        (tmp_path / "wqa" / layer / "__init__.py").write_text("")
    (tmp_path / "wqa" / "data" / "old.py").write_text("from wqa.data import new\n")
    (tmp_path / "wqa" / "systems" / "old").mkdir()
    (tmp_path / "wqa" / "systems" / "old" / "task.py").write_text(
        "import wqa.systems.old.network\n"
    )
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
        assert layers <= {"errors", "io", "data", "evaluation"}, path


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


def test_an_editable_installation_is_found_beside_a_folder_of_the_same_name(tmp_path):
    """A path in a ``.pth`` file; setuptools' finder would come after a folder named ``wqa``."""
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "wqa").mkdir()
    shutil.copy(ROOT / "wqa" / "__init__.py", tmp_path / "wqa")
    command = [sys.executable, "setup.py", "-q", "editable_wheel", "-d", "wheel"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = (tmp_path / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [path] = [name for name in archive.namelist() if name.endswith(".pth")]
        assert archive.read(path).decode().strip() == str(tmp_path)
