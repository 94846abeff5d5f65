"""The commands that write files, on tiny inputs, and what an undisturbed one writes."""

import contextlib
import importlib
import io
import json
import re
import shutil
import time

from soak.attack import Fault, Unavailable
from soak.material import TRAINING
from soak.processes import LIMIT, Child

#: Fields of JSON files that differ between runs, because the clock decides them.
CLOCK = re.compile(r"(^|_)(seconds?|time|date)(_|$)")
#: Temporary names. A store that is whole loses its journal after it gets its final name.
TEMPORARY = re.compile(r"\.tmp$|\.partial$|^\.|^journal\.json$")
#: Lines by which a command is refused: another process writes the output, or it is there already.
LOCKED = re.compile(r"error: \S+: locked by process (\d+) on \S+ since .*one writer at a time")
EXISTS = re.compile(r"error: \S+: exists already; expected a new directory")

#: Commands by name. MATERIAL is the folder that `soak.material` wrote, OUT the folder of the try,
#: which holds what `COPIED` says before.
COMMANDS = {
    "train mxnet": "train cascade --encoder MATERIAL/encoder --train MATERIAL/train.jsonl "
    "--dev MATERIAL/dev.jsonl --out OUT/run --engine mxnet --resume",
    "train onednn": "train cascade --encoder MATERIAL/encoder --train MATERIAL/train.jsonl "
    "--dev MATERIAL/dev.jsonl --out OUT/run --engine onednn --resume",
    "train --init": "train cascade --init MATERIAL/run --train MATERIAL/store --out OUT/run "
    "--engine mxnet --resume",
    "tokenize": "tokenize --encoder MATERIAL/encoder --data MATERIAL/train.jsonl --out OUT/store",
    "convert": "convert MATERIAL/encoder OUT/converted",
    "quantize": "quantize OUT/run --data MATERIAL/dev.jsonl",
    "tune": "tune OUT/run --data MATERIAL/dev.jsonl --max-cost 0.8",
    "export": "export MATERIAL/run OUT/exported",
    "evaluate": "evaluate MATERIAL/run --data MATERIAL/dev.jsonl --json OUT/figures.json",
    "asnq": "asnq --archive MATERIAL/archives/asnq --splits MATERIAL/archives/asnq --out OUT/data",
    "asnq.tar": "asnq --archive MATERIAL/archives/asnq/asnq.tar --splits MATERIAL/archives/asnq "
    "--out OUT/data",
    "wikiqa": "wikiqa --archive MATERIAL/archives/wikiqa --out OUT/data",
    "trecqa": "trecqa --archive MATERIAL/archives/trecqa --out OUT/data",
    "squad": "squad --archive MATERIAL/archives/squad --out OUT/data",
    "retrieval": "retrieval --split dev --questions MATERIAL/archives/retrieval/questions "
    "--sentences MATERIAL/archives/retrieval/sentences --run MATERIAL/archives/retrieval/run "
    "--qrels MATERIAL/archives/retrieval/qrels --out OUT/data",
    "encoders": "encoders electra-small --archive MATERIAL/encoder --out OUT/data",
}
#: What is copied to OUT before a command, by its first word.
COPIED = {"quantize": "run", "tune": "run"}
#: Commands that draw more often, by the number of their system calls.
WEIGHTS = {"train mxnet": 4, "train onednn": 2, "train --init": 2, "asnq": 3, "asnq.tar": 2}
SCRIPTS = ("asnq", "wikiqa", "trecqa", "squad", "retrieval", "encoders")


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
        self._import()

    @staticmethod
    def _import():
        """Import what the children use. Nothing may be computed before they are forked."""
        for name in ("mxnet", "matplotlib.pyplot", "pysbd", "wqa.cli", "wqa.systems.export"):
            importlib.import_module(name)
        for name in ("wqa.systems.quantize", "wqa.tuning", "wqa.training", "wqa.pretrained"):
            importlib.import_module(name)
        for name in SCRIPTS:
            importlib.import_module(name)
        # Several parts and commits even for a tiny corpus.
        importlib.import_module("partition").QUESTIONS = 2

    def choose(self, random):
        """Choose the name of a command."""
        return random.choices(list(COMMANDS), [WEIGHTS.get(name, 1) for name in COMMANDS])[0]

    def arguments(self, name):
        """Arguments of a command, the first of them the subcommand or the script."""
        words = COMMANDS[name].split()
        if words[0] == "train":
            words += TRAINING
        folders = {"MATERIAL": str(self._material), "OUT": str(self.out)}
        return [re.sub("MATERIAL|OUT", lambda match: folders[match[0]], word) for word in words]

    def start(self, name, output, waits=False):
        """Start a command in a child.

        Parameters
        ----------
        name : str
            A key of `COMMANDS`.
        output : str
            Name of the file, beside ``out``, that receives what the command prints.
        waits : bool
            As `soak.processes.Child` takes it.

        Returns
        -------
        soak.processes.Child
            The child.
        """
        first, *arguments = self.arguments(name)

        def work():
            if first in SCRIPTS:
                return importlib.import_module(first).main(arguments)
            return importlib.import_module("wqa.cli").main([first, *arguments])

        return Child(work, self.out.parent / output, waits)

    def clear(self, name):
        """Empty the folder of the outputs, but for what the command works on."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        copied = COPIED.get(name.split()[0])
        if copied:
            shutil.copytree(self._material / copied, self.out / copied)

    def expected(self, name):
        """What an undisturbed command writes, as `contents` gives it, and its seconds."""
        if name not in self._expected:
            self.clear(name)
            begin = time.monotonic()
            code = self.start(name, "expected.txt").wait()
            seconds = time.monotonic() - begin
            if code == 2 and "is not installed" in self.printed("expected.txt"):
                raise Unavailable(f"{name}: {self.last_line('expected.txt')}")
            if code != 0:
                raise Fault(f"undisturbed, `{name}` ends with {code}")
            self._expected[name] = (contents(self.out), seconds)
        return self._expected[name]

    def printed(self, output):
        """What a command printed."""
        return (self.out.parent / output).read_text(encoding="utf-8", errors="replace")

    def last_line(self, output):
        """The last line that a command printed."""
        lines = self.printed(output).strip().splitlines()
        return lines[-1] if lines else ""

    def check_parts(self, name):
        """Check that a file under its final name is whole, in whatever state the command is."""
        expected, _ = self.expected(name)
        before = {}
        copied = COPIED.get(name.split()[0])
        if copied:
            before = contents(self._material / copied, prefix=f"{copied}/")
        for path, content in contents(self.out).items():
            if _is_hidden(path) or "checkpoints/" in path or path.endswith(("/", "metrics.jsonl")):
                continue
            if path not in expected:
                raise Fault(f"`{name}` leaves {path}, which an undisturbed one does not")
            whole = (_settings(expected[path]), _settings(before.get(path)))
            if _settings(content) not in whole:
                raise Fault(f"`{name}` leaves {path}, which is not whole")

    def check_whole(self, name):
        """Check that the outputs equal those of an undisturbed command, without more files."""
        expected, _ = self.expected(name)
        actual = contents(self.out)
        for path in sorted(set(expected) | set(actual)):
            if path not in actual:
                raise Fault(f"`{name}` does not write {path}")
            if path not in expected:
                raise Fault(f"`{name}` leaves {path}")
            if expected[path] != actual[path]:
                raise Fault(f"`{name}` writes another {path}")

    def is_whole(self, name):
        """Whether the outputs equal those of an undisturbed command, but for temporary files."""
        # A kill after the last rename may leave a lock, which the next command removes.
        visible = {}
        for path, content in contents(self.out).items():
            if not _is_hidden(path):
                visible[path] = content
        return visible == self.expected(name)[0]

    def finish(self, name):
        """Run a command to its end and check what it writes."""
        was_whole = self.is_whole(name)
        child = self.start(name, "resumed.txt")
        code = child.wait()
        child.kill()
        if code is None:
            raise Fault(f"`{name}` hangs for {LIMIT} seconds after a kill")
        line = self.last_line("resumed.txt")
        # Commands that make a new folder refuse one that is whole.
        if code != 0 and not (code == 2 and was_whole and EXISTS.match(line)):
            raise Fault(f"`{name}` ends with {code} after a kill: {line}")
        self.check_whole(name)


def contents(folder, prefix=""):
    """Contents of all files below a folder, without what the clock decides.

    Parameters
    ----------
    folder : pathlib.Path
        The folder.
    prefix : str
        Put before the names.

    Returns
    -------
    dict of str to object
        Bytes or values by the file's path.
    """
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
    if name.endswith(".tsv"):
        return _columns(raw.decode("utf-8"))
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
    if isinstance(value, dict):
        kept = {}
        for key, content in value.items():
            if not CLOCK.search(key):
                kept[key] = _without_clock(content)
        return kept
    return value


def _columns(text):
    """Columns of a table that the clock does not decide."""
    rows = [line.split("\t") for line in io.StringIO(text)]
    dropped = {index for index, title in enumerate(rows[0]) if CLOCK.search(title)} if rows else ()
    table = []
    for row in rows:
        table.append([cell for index, cell in enumerate(row) if index not in dropped])
    return table
