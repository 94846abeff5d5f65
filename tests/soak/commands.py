"""The commands that write files, on tiny inputs, and what an undisturbed one writes."""

import contextlib
import importlib
import json
import re
import shutil
import time

from soak.attack import Fault
from soak.material import TRAINING
from soak.processes import Child

#: Fields of JSON files that differ between runs, because the clock decides them.
CLOCK = re.compile(r"(^|_)(seconds?|time|date)(_|$)")
#: Temporary names. A store that is whole loses its journal after it gets its final name.
TEMPORARY = re.compile(r"\.tmp$|\.partial$|^\.|^journal\.json$")
#: Line by which a command refuses an output that is there.
EXISTS = re.compile(r"error: \S+: exists already; expected a new directory")

#: Commands by name. MATERIAL is the folder that `soak.material` wrote, OUT the folder of the try,
#: which holds a copy of the run before the commands of `CHANGE_A_RUN`.
TRAIN = "train cascade --encoder MATERIAL/encoder --train MATERIAL/train.jsonl "
TRAIN += "--dev MATERIAL/dev.jsonl --out OUT/run --resume --engine "
COMMANDS = {
    "train mxnet": TRAIN + "mxnet",
    "train onednn": TRAIN + "onednn",
    "tokenize": "tokenize --encoder MATERIAL/encoder --data MATERIAL/train.jsonl --out OUT/store",
    "convert": "convert MATERIAL/encoder OUT/converted",
    "quantize": "quantize OUT/run --data MATERIAL/dev.jsonl",
    "tune": "tune OUT/run --data MATERIAL/dev.jsonl --max-cost 0.8",
    "export": "export MATERIAL/run OUT/exported",
    "asnq": "asnq --archive MATERIAL/asnq --splits MATERIAL/asnq --out OUT/data",
}
CHANGE_A_RUN = ("quantize", "tune")
#: What the children import, before any of them is forked.
IMPORTED = ("mxnet", "wqa.cli", "wqa.systems.export", "wqa.systems.quantize", "wqa.tuning", "asnq")


class Commands:
    """The commands of this worker.

    Parameters
    ----------
    material : pathlib.Path
        What `soak.material` wrote.
    folder : pathlib.Path
        Folder of the worker. Outputs go to ``out`` in it, so that recorded commands do not differ.
    """

    def __init__(self, material, folder):
        self._material, self.out = material, folder / "out"
        self._expected = {}
        for name in IMPORTED:
            importlib.import_module(name)
        importlib.import_module("asnq").QUESTIONS = 2  # several parts even for a tiny corpus

    def choose(self, random):
        """Choose the name of a command, a training as often as all others together."""
        names = list(COMMANDS)
        return random.choices(names, [4 if name.startswith("train") else 1 for name in names])[0]

    def start(self, name):
        """Start a command in a child; what it prints goes to a file beside ``out``."""
        words = COMMANDS[name].split()
        if words[0] == "train":
            words += TRAINING
        folders = {"MATERIAL": str(self._material), "OUT": str(self.out)}
        words = [re.sub("MATERIAL|OUT", lambda match: folders[match[0]], word) for word in words]

        def work():
            if name == "asnq":
                return importlib.import_module(name).main(words[1:])
            return importlib.import_module("wqa.cli").main(words)

        return Child(work, self.out.parent / "printed.txt")

    def clear(self, name):
        """Empty the folder of the outputs, but for what the command works on."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        if name in CHANGE_A_RUN:
            shutil.copytree(self._material / "run", self.out / "run")

    def expected(self, name):
        """What an undisturbed command writes, as `contents` gives it, and its seconds."""
        if name not in self._expected:
            self.clear(name)
            begin = time.monotonic()
            code = self.start(name).wait()
            seconds = time.monotonic() - begin
            if code != 0:
                raise Fault(f"undisturbed, `{name}` ends with {code}: {self.last_line()}")
            self._expected[name] = (contents(self.out), seconds)
        return self._expected[name]

    def last_line(self):
        """The last line that a command printed."""
        path = self.out.parent / "printed.txt"
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def check_parts(self, name):
        """Check that a file under its final name is whole, in whatever state the command is."""
        expected, _ = self.expected(name)
        before = {}
        if name in CHANGE_A_RUN:
            before = contents(self._material / "run", prefix="run/")
        for path, content in contents(self.out).items():
            if _is_hidden(path) or "checkpoints/" in path or path.endswith(("/", "metrics.jsonl")):
                continue
            if path not in expected:
                raise Fault(f"`{name}` leaves {path}, which an undisturbed one does not")
            whole = (_settings(expected[path]), _settings(before.get(path)))
            if _settings(content) not in whole:
                raise Fault(f"`{name}` leaves {path}, which is not whole")

    def is_whole(self, name):
        """Whether the outputs equal those of an undisturbed command, but for temporary files."""
        # A kill after the last rename may leave a lock, which the next command removes.
        visible = {}
        for path, content in contents(self.out).items():
            if not _is_hidden(path):
                visible[path] = content
        return visible == self.expected(name)[0]

    def finish(self, name):
        """Run a command to its end, and check that it writes what an undisturbed one does."""
        was_whole = self.is_whole(name)
        child = self.start(name)
        code = child.wait()
        child.kill()
        # Commands that make a new folder refuse one that is whole.
        is_there = code == 2 and was_whole and EXISTS.match(self.last_line())
        if code != 0 and not is_there:
            raise Fault(f"`{name}` ends with {code} after a kill: {self.last_line()}")
        check_same(contents(self.out), self.expected(name)[0], name)


def check_same(actual, expected, name):
    """Check that files, as `contents` gives them, are the expected ones."""
    for path in sorted(set(expected) | set(actual)):
        if actual.get(path) != expected.get(path):
            raise Fault(f"`{name}`: {path} differs from that of an undisturbed command")


def contents(folder, prefix=""):
    """Bytes or values of all files below a folder, without what the clock decides."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = prefix + path.relative_to(folder).as_posix()
        if path.is_file():
            files[name] = _comparable(path.name, path.read_bytes())
        elif path.is_dir() and not any(path.iterdir()):
            files[f"{name}/"] = b""
    return files


def _comparable(name, raw):
    if name.endswith((".json", ".jsonl")):
        with contextlib.suppress(ValueError):
            lines = raw.decode("utf-8").splitlines() if name.endswith(".jsonl") else [raw]
            return [_without_clock(json.loads(line)) for line in lines]
    return raw


def _is_hidden(path):
    """Whether a path has a temporary name, or lies in a folder that has one."""
    return any(TEMPORARY.search(part) for part in path.split("/"))


def _settings(content):
    """Values of a ``config.json`` without the digests, which are entered when a run is whole."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return [{key: value for key, value in content[0].items() if key != "sha256"}]
    return content


def _without_clock(value):
    if not isinstance(value, dict):
        return value
    return {key: _without_clock(item) for key, item in value.items() if not CLOCK.search(key)}
