"""Damaged files: of a run, a store, a checkpoint, an encoder and a sequence of rankers."""

import contextlib
import gc
import importlib
import json
import os
import shutil
import stat

import numpy as np

from soak.attack import Attack, Fault
from soak.mutations import damage_bytes, damage_json

#: Targets by name, and how often they are drawn: the quick loads most.
TARGETS = {
    "run": 5,
    "run by MXNet": 0.2,
    "int8": 1.5,
    "sequence": 0.5,
    "store": 8,
    "encoder": 2,
    "zipped": 2,
    "legacy": 2,
    "checkpoint": 0.1,
}
#: Files whose changes cannot be noticed: settings, which no digest covers, and foreign files but
#: for a zip archive, which has a checksum of each storage.
UNCOVERED = (
    "config.json",
    "tuned.json",
    "meta.json",
    "sequence.json",
    "state.json",
)
FOREIGN = ("encoder", "zipped", "legacy")
#: Targets of one file.
SINGLE = {"sequence": "sequence.json"}
#: End of a folder's name, which is no UTF-8.
ODD_NAME = os.fsdecode(b"\xff" * 238)
QUESTION = "how do tides rise and fall ?"
CANDIDATES = ["The moon pulls the water .", "", "Tides rise and fall twice a day in many places ."]
#: Tries between two collections of dropped rankers.
COLLECTED = 50


class Damage(Attack):
    """A file of a run, a store, a checkpoint or an encoder is damaged: bytes are flipped, cut,
    inserted, zeroed, doubled or swapped, or its JSON gets other types, sizes, keys and nesting, or
    a key twice. A named pipe or an endless device takes the place of a file. The folders have names
    of 245 bytes that are not UTF-8. Loading is refused by an error of `wqa.errors`, or gives the
    same scores as without the damage; where no digest can cover the file, it gives finite ones. A
    training resumes from the weights of its checkpoint even where the checkpoint's settings are
    damaged.
    """

    name = "damage"
    unit = "files"
    weight = 35
    limit = 60
    memory = 2 << 30

    def prepare(self):
        from wqa.engines.onednn.library import available
        from wqa.text import PairInputs, load_tokenizer

        self._pair_inputs = PairInputs(load_tokenizer(self.material / "encoder"), 64)
        copied = self.fresh("copies" + ODD_NAME)
        for name in ("run", "store", "stopped", "encoder", "zipped", "legacy"):
            shutil.copytree(self.material / name, copied / name)
        content = {"rankers": ["run", {"run": "run", "drop_ratio": 0.3}], "keep": [2]}
        (copied / "sequence.json").write_text(json.dumps(content), encoding="utf-8")
        self._copies, self._count = copied, 0
        self._damaged = None
        self._loads = {
            "run by MXNet": lambda: self._rank("run", "tuned", engine="mxnet"),
            "sequence": lambda: self._rank("sequence.json", None),
            "store": self._store,
            "encoder": self._encoder,
            "zipped": lambda: self._backbone("zipped"),
            "legacy": lambda: self._backbone("legacy"),
            "checkpoint": self._resume,
        }
        if available():
            self._loads["run"] = lambda: self._rank("run", "tuned", engine="onednn")
            self._loads["int8"] = lambda: self._rank("run", None, precision="int8")
        self._files = {}
        self._expected = {}

    def attempt(self, random):
        if self._damaged:  # a fault leaves it as it is, to be kept
            path, raw = self._damaged
            path.unlink()  # it may be a pipe
            path.write_bytes(raw)
        names = list(self._loads)
        target = random.choices(names, [TARGETS[name] for name in names])[0]
        load = self._loads[target]
        if target not in self._expected:
            self._expected[target] = load()
            self._files[target] = self._list_files(target)
        path = random.choice(self._files[target])
        raw = path.read_bytes()
        self._count += 1
        if self._count % COLLECTED == 0:
            gc.collect()
        self._damaged = path, raw
        path.unlink()
        if random.random() < 0.02:
            os.mkfifo(path)
        elif random.random() < 0.02:
            path.symlink_to("/dev/zero")
        else:
            path.write_bytes(self._damage(random, path, raw))
        self._try(target, path)
        return 1

    def _try(self, target, path):
        """Load what is damaged."""
        from wqa.errors import WqaError

        try:
            result = self._loads[target]()
        except WqaError as error:
            if "\n" in str(error):
                raise Fault(f"an error of several lines: {error}") from None
            return
        expected = self._expected[target]
        if target == "checkpoint" and path.name in UNCOVERED:
            # The weights that it began with; what it trains them to depends on the settings.
            result, expected = result[1:], expected[1:]
        elif path.name in UNCOVERED or not _has_checksum(target, path):
            return
        if len(result) != len(expected) or not all(map(np.array_equal, result, expected)):
            raise Fault(f"damage to {path.relative_to(self._copies)} gives another result")

    @staticmethod
    def _damage(random, path, raw):
        if path.suffix == ".json" and random.random() < 0.5:
            return damage_json(random, raw)
        damaged = damage_bytes(random, raw)
        while random.random() < 0.2:
            damaged = damage_bytes(random, damaged)
        return damaged

    def _list_files(self, target):
        """Files that a target is loaded from; one that stands twice is drawn twice as often."""
        run, copies = self._copies / "run", self._copies
        if target in SINGLE:
            return [copies / SINGLE[target]]
        if target == "int8":
            return [run / "int8.safetensors", run / "config.json"]
        if target.startswith("run"):
            names = ("config.json", "config.json", "model.params", "tokenizer.json", "tuned.json")
            return [run / name for name in names]
        if target == "checkpoint":
            folder = max((copies / "stopped" / "checkpoints").iterdir())
            return sorted(folder.iterdir())
        paths = [path for path in sorted((copies / target).iterdir()) if path.is_file()]
        weights = [path for path in paths if path.suffix in (".safetensors", ".bin")]
        return paths + weights

    # Loading. Each function returns arrays.

    def _rank(self, name, drop_ratio, **options):
        from wqa.systems.load import load_ranker

        ranker = load_ranker(self._copies / name, drop_ratio, threads=1, **options)
        ranking = ranker.rank(QUESTION, CANDIDATES)
        _check_ranking(ranking)
        return [ranking.order, ranking.scores]

    def _store(self):
        from wqa.text import PairStore

        store = PairStore(self._copies / "store")
        store.check(self._pair_inputs)
        results = []
        for name in sorted(vars(store)):
            value = getattr(store, name)
            if isinstance(value, np.ndarray):
                results.append(np.array(value))
        if not results:
            raise Fault("the store has no arrays")
        return results

    def _encoder(self):
        from wqa.pretrained import load_backbone
        from wqa.text import load_tokenizer

        folder = self._copies / "encoder"
        backbone = load_backbone(folder)
        load_tokenizer(folder).check_fits(backbone.config, folder)
        return _finite_arrays(backbone)

    def _backbone(self, name):
        from wqa.pretrained import load_backbone

        return _finite_arrays(load_backbone(self._copies / name))

    def _resume(self):
        """Resume a stopped training, in a copy of its folder."""
        run = self.fresh("resumed" + ODD_NAME)
        shutil.rmtree(run)
        shutil.copytree(self._copies / "stopped", run, symlinks=True, copy_function=_copy)
        from soak.material import TRAINING

        files = self.material
        arguments = ["--encoder", str(files / "encoder"), "--train", str(files / "train.jsonl")]
        arguments += ["--dev", str(files / "dev.jsonl"), "--out", str(run), "--resume"]
        with _loaded_weights() as loaded:
            _train(["train", "cascade", *arguments, *TRAINING])
        return [np.frombuffer((run / "model.params").read_bytes(), np.uint8), *loaded]


def _copy(source, target):
    """Copy a file; of a pipe, which would be read without an end, make another one."""
    if stat.S_ISFIFO(os.stat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def _loaded_weights():
    """List that receives the weights which a training resumes from."""
    from wqa.training.checkpoint import Checkpoints

    load_latest, loaded = Checkpoints.load_latest, []

    def load(self, model, *arguments):
        state = load_latest(self, model, *arguments)
        loaded.extend(_finite_arrays(model))
        return state

    Checkpoints.load_latest = load
    try:
        yield loaded
    finally:
        Checkpoints.load_latest = load_latest


def _has_checksum(target, path):
    """Whether a digest or a checksum covers the weights of a file."""
    return target not in FOREIGN or (target == "zipped" and path.suffix == ".bin")


def _finite_arrays(block):
    """Parameters of a network by their order in it."""
    arrays = []
    for key, parameter in block.collect_params().items():
        arrays.append(parameter.data().asnumpy())
        if not np.isfinite(arrays[-1]).all():
            raise Fault(f"{key} is not finite")
    return arrays


def _train(arguments):
    """Run a training in this process, and raise its errors."""
    cli = importlib.import_module("wqa.cli")
    options = cli.parse(arguments)
    with contextlib.redirect_stdout(None):
        cli.COMMANDS["train"].run(options)


def _check_ranking(ranking):
    if sorted(ranking.order.tolist()) != list(range(len(CANDIDATES))):
        raise Fault(f"order {ranking.order.tolist()}")
    scores = ranking.scores[~ranking.blank]
    if not np.isfinite(scores).all() or ranking.blank.tolist() != [False, True, False]:
        raise Fault(f"scores {ranking.scores.tolist()}, blank {ranking.blank.tolist()}")
