"""Damaged files: of a run, a store, a checkpoint and an encoder."""

import contextlib
import gc
import importlib
import os
import shutil

import numpy as np

from soak.attack import Attack, Fault, copy_file
from soak.material import TRAINING
from soak.mutations import damage_bytes, damage_json

#: Targets by name, and how often they are drawn: the quick loads most.
TARGETS = {"run": 5, "int8": 1.5, "store": 8, "encoder": 2, "checkpoint": 0.1}
#: Settings, which no digest covers.
UNCOVERED = ("config.json", "tuned.json", "meta.json", "state.json")
QUESTION = "how do tides rise and fall ?"
CANDIDATES = ["The moon pulls the water .", "", "Tides rise and fall twice a day in many places ."]


class Damage(Attack):
    """A file of a run, a store, a checkpoint or an encoder is damaged: bytes are flipped, cut,
    inserted, zeroed or doubled, or its JSON gets other types, sizes, keys and nesting, or a key
    twice. A named pipe or an endless device takes the place of a file. Loading is refused by an
    error of `wqa.errors`, or gives the same scores as without the damage; where no digest can cover
    the file, it gives finite ones. A training resumes from the weights of its checkpoint even where
    the checkpoint's settings are damaged.
    """

    weight = 35
    limit = 60

    def prepare(self):
        from wqa.engines.onednn.library import available
        from wqa.text import PairInputs, load_tokenizer

        self._pair_inputs = PairInputs(load_tokenizer(self.material / "encoder"), 64)
        self._copies, self._damaged = self.folder / "copies", None
        for name in ("run", "store", "stopped", "encoder"):
            shutil.copytree(self.material / name, self._copies / name)
        self._loads = {
            "run": self._rank,
            "store": self._store,
            "encoder": self._encoder,
            "checkpoint": self._resume,
        }
        if available():
            self._loads["int8"] = lambda: self._rank(precision="int8")
        self._expected = {}

    def attempt(self, random):
        if self._damaged:  # a fault leaves it as it is, to be kept
            path, raw = self._damaged
            path.unlink()  # it may be a pipe
            path.write_bytes(raw)
            gc.collect()
        target = random.choices(list(self._loads), [TARGETS[name] for name in self._loads])[0]
        if target not in self._expected:
            self._expected[target] = self._loads[target]()
        path = random.choice(self._files(target))
        raw = path.read_bytes()
        self._damaged = path, raw
        path.unlink()
        way = random.random()
        if way < 0.02:
            os.mkfifo(path)
        elif way < 0.04:
            path.symlink_to("/dev/zero")
        elif path.suffix == ".json" and way < 0.5:
            path.write_bytes(damage_json(random, raw))
        else:
            path.write_bytes(damage_bytes(random, raw))
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
        elif path.name in UNCOVERED or target == "encoder":  # of others, without digests
            return
        if len(result) != len(expected) or not all(map(np.array_equal, result, expected)):
            raise Fault(f"damage to {path.relative_to(self._copies)} gives another result")

    def _files(self, target):
        """Files that a target is loaded from."""
        run, copies = self._copies / "run", self._copies
        if target == "int8":
            return [run / "int8.safetensors", run / "config.json"]
        if target == "run":
            names = ("config.json", "model.params", "tokenizer.json", "tuned.json")
            return [run / name for name in names]
        folder = copies / target
        if target == "checkpoint":
            folder = max((copies / "stopped" / "checkpoints").iterdir())
        return sorted(path for path in folder.iterdir() if not path.is_dir())

    # Loading. Each function returns arrays.

    def _rank(self, **options):
        from wqa.systems.load import load_ranker

        ranking = load_ranker(self._copies / "run", "tuned", threads=1, **options).rank(
            QUESTION, CANDIDATES
        )
        scores = ranking.scores[~ranking.blank]
        if not np.isfinite(scores).all() or ranking.blank.tolist() != [False, True, False]:
            raise Fault(f"scores {ranking.scores.tolist()}, blank {ranking.blank.tolist()}")
        return [ranking.order, ranking.scores]

    def _store(self):
        from wqa.text import PairStore

        store = PairStore(self._copies / "store")
        store.check(self._pair_inputs)
        arrays = [value for _, value in sorted(vars(store).items())]
        return [np.array(value) for value in arrays if isinstance(value, np.ndarray)]

    def _encoder(self):
        from wqa.pretrained import load_backbone
        from wqa.text import load_tokenizer

        folder = self._copies / "encoder"
        backbone = load_backbone(folder)
        load_tokenizer(folder).check_fits(backbone.config, folder)
        return _finite_arrays(backbone)

    def _resume(self):
        """Resume a stopped training, in a copy of its folder."""
        run = self.folder / "resumed"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self._copies / "stopped", run, symlinks=True, copy_function=copy_file)
        files, cli = self.material, importlib.import_module("wqa.cli")
        arguments = ["--encoder", str(files / "encoder"), "--train", str(files / "train.jsonl")]
        arguments += ["--dev", str(files / "dev.jsonl"), "--out", str(run), "--resume"]
        options = cli.parse(["train", "cascade", *arguments, *TRAINING])
        with _loaded_weights() as loaded, contextlib.redirect_stdout(None):
            cli.COMMANDS["train"].run(options)
        return [np.frombuffer((run / "model.params").read_bytes(), np.uint8), *loaded]


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


def _finite_arrays(block):
    """Parameters of a network by their order in it."""
    arrays = []
    for key, parameter in block.collect_params().items():
        arrays.append(parameter.data().asnumpy())
        if not np.isfinite(arrays[-1]).all():
            raise Fault(f"{key} is not finite")
    return arrays
