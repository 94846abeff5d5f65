"""Model cards: the ``README.md`` of run directories and of exports, in the Hugging Face hub's form.

A card is made from a run's ``config.json`` and ``metrics.jsonl``. Nothing reads it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
from typing import Any, Dict, Iterable, List, Optional, Tuple

from wqa.config import RunConfig, TrainingConfig, parse_json
from wqa.errors import printable
from wqa.io.files import PathLike, atomic_writer

#: Name of the file.
CARD = "README.md"

#: A card with this line is written anew; one without it is somebody's own.
MARK = "<!-- Written by wqa. Delete this line, and wqa keeps what you write here. -->"

_RANK = """```python
from wqa import load_ranker

ranker = load_ranker("{name}")
ranking = ranker.rank("why does a kettle whistle ?", ["Tea is a drink.", "Steam makes it whistle."])
print(ranking.order)  # best first
```

```sh
wqa rank {shell} --question "why does a kettle whistle ?" --candidates FILE
```
"""

#: How what is described is loaded: by what a run computes, or by the format of an export.
USES: Dict[str, str] = {
    "scores": _RANK,
    "spans": """```python
from wqa import load_reader

reader = load_reader("{name}")
print(reader.read("why does a kettle whistle ?", ["Steam makes the kettle whistle."]))
```

```sh
wqa ask INDEX --reader {shell} --question "why does a kettle whistle ?"
```
""",
    "labels": """```python
from wqa import load_verifier

verifier = load_verifier("{name}")
print(verifier.label("Steam makes a kettle whistle.", ["A kettle whistles by its steam."]))
```

```sh
wqa verify {shell} --claim "Steam makes a kettle whistle." --evidence FILE
```
""",
    "paragraphs": """The training of a joint model starts from it:

```python
from wqa import train

train("mspp", "train.jsonl", "runs/joint", init="{name}")
```

```sh
wqa train mspp --init {shell} --train TRAIN --dev DEV --out RUN
```
""",
    "encoder": """```python
from wqa.pretrained import load_backbone

backbone = load_backbone("{name}")
```

```sh
wqa train cascade --encoder {shell} --train TRAIN --dev DEV --out RUN
```
""",
    "mxnet": """```python
import json

from mxnet.gluon import SymbolBlock

with open("{name}/export.json") as file:
    inputs = json.load(file)["networks"]["model"]["inputs"]
network = SymbolBlock.imports("{name}/model-symbol.json", inputs, "{name}/model-0000.params")
```

MXNet's bindings of other languages read the same files. `wqa` reads the run that they come from.
""",
    "huggingface": """```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSequenceClassification.from_pretrained("{name}")
```

```sh
wqa rank {shell} --question "why does a kettle whistle ?" --candidates FILE
```
""",
    "onnx": """```python
import json

import onnxruntime

with open("{name}/config.json") as file:
    graphs = json.load(file)["graphs"]  # names of inputs and outputs by name of the graph
sessions = {graph: onnxruntime.InferenceSession(f"{name}/{graph}.onnx") for graph in graphs}
```

`weights.bin` holds the weights of all graphs. `wqa` reads the run that they come from.
""",
    "onnx_ranker": _RANK
    + """
ONNX Runtime computes its graphs, so that MXNet need not be installed: the extra `onnx` of `wqa` is
enough. `config.json` names the inputs and outputs of the graphs for other programs.
""",
    "pytorch": """```python
import torch

parameters = torch.load("{name}/cerberus_model.pt")
```

```sh
wqa convert {shell}/cerberus_model.pt RUN --encoder {shell}
```
""",
}

_LICENCES = {
    "minilm": "`minilm` is all-MiniLM-L6-v2, under Apache-2.0. Its authors trained it on a billion "
    "pairs of texts, which have licences of their own.",
    "": "It starts from no encoder.",
}
_TAGS = ("answer-sentence-selection", "mxnet")


def write_model_card(
    folder: PathLike,
    config: RunConfig,
    use: str,
    name: str = "",
    run: Optional[PathLike] = None,
) -> None:
    """Write the model card of a folder, unless it has one that is not marked by `MARK`.

    Parameters
    ----------
    folder : str or path-like
        Folder of the card.
    config : RunConfig
        Configuration of the run that is described.
    use : str
        How it is loaded, a key of `USES`.
    name : str
        Name of the model; by default that of the folder.
    run : str or path-like, optional
        Run directory whose ``metrics.jsonl`` has the figures; by default the folder.

    Raises
    ------
    StorageError
        If the card cannot be written.
    """
    path = pathlib.Path(folder) / CARD
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        return
    title = _plain(name or path.absolute().parent.name)
    figures = best_figures(pathlib.Path(run or folder) / "metrics.jsonl", _metric(config))
    parts = [
        _front_matter(config, figures),
        f"{MARK}\n\n# {title}\n",
        f"A network of the system `{config.system}`, for answer sentence selection by "
        f"`wqa` {config.versions.get('wqa', '')}".rstrip()
        + ".\n",
        "## Load it\n",
        USES[use].replace("{name}", title).replace("{shell}", shlex.quote(title)),
        "## Data\n",
        _data_table(config, figures),
        "## Figures on the development data\n",
        _figures_table(config, figures),
        "## Settings\n",
        _settings_table(config),
        "## Licence\n",
        _licence(config),
    ]
    with atomic_writer(path) as file:
        file.write("\n".join(parts))


def best_figures(path: pathlib.Path, metric: str) -> Dict[str, Any]:
    """Read the figures of the evaluation that chose the parameters of a run.

    Parameters
    ----------
    path : pathlib.Path
        ``metrics.jsonl`` of the run.
    metric : str
        Figure that chose.

    Returns
    -------
    dict of str to float
        Figures by name, and ``"update"``; empty if the file has no evaluation, or is not there.
    """
    best: Dict[str, Any] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return best
    for line in lines:
        try:
            values = parse_json(line)
        except ValueError:
            continue
        figures = values.get("dev") if isinstance(values, dict) else None
        if not isinstance(figures, dict) or not isinstance(figures.get(metric), (int, float)):
            continue
        if not best or figures[metric] > best[metric]:
            best = {**figures, "update": values.get("update")}
    return best


def _metric(config: RunConfig) -> str:
    return str(config.data.get("metric", "map"))


def _front_matter(config: RunConfig, figures: Dict[str, Any]) -> str:
    """YAML for the hub, whose strings are written as those of JSON."""
    lines = ["---", "library_name: wqa", "pipeline_tag: text-ranking", "tags:"]
    lines += [f"- {json.dumps(tag)}" for tag in (*_TAGS, config.system)]
    lines.append("# language: en  # fill in the language of the data")
    lines.append("license: unknown  # fill in; see the section Licence")
    if figures:
        lines += ["metrics:", f"- {json.dumps(_metric(config))}"]
    return "\n".join([*lines, "---\n"])


def _data_table(config: RunConfig, figures: Dict[str, Any]) -> str:
    train, dev = _of(config, "train"), _of(config, "dev")
    rows = []
    if config.train_sha256 or train:
        rows.append(("training", *_described(train), config.train_sha256))
    if dev:
        counts = {name: count for name, count in figures.items() if name != "update"}
        rows.append(("development", *_described({**counts, **dev}), dev.get("sha256", "")))
    rows += [("teacher", "", "", digest) for digest in config.teachers_sha256]
    if not rows:
        return "The run does not record what it was trained on.\n"
    return _table(("part", "file", "size", "SHA-256"), rows)


def _of(config: RunConfig, part: str) -> Dict[str, Any]:
    values = config.data.get(part)
    return values if isinstance(values, dict) else {}


def _described(values: Dict[str, Any]) -> Tuple[str, str]:
    """File and counts of a part of the data."""
    counts = [f"{count:,} {name}" for name, count in values.items() if isinstance(count, int)]
    return _code(values["file"]) if "file" in values else "not recorded", ", ".join(counts)


def _figures_table(config: RunConfig, figures: Dict[str, Any]) -> str:
    if not figures:
        return "It was not evaluated while it was trained.\n"
    rows = []
    for figure, value in figures.items():
        if figure == "update":
            continue
        shown = value
        if isinstance(value, float):
            shown = f"{value:.4f}" if figure.endswith("loss") else f"{100 * value:.2f}"
        rows.append((figure, shown))
    best = f"update {figures['update']}, the best by {_code(_metric(config))}"
    text = f"The parameters are those of {best}. Figures but counts and losses are in per cent.\n\n"
    return text + _table(("figure", "value"), rows)


def _settings_table(config: RunConfig) -> str:
    """All settings of the system; of the training, those that are not the defaults."""
    rows: List[Tuple[str, Any]] = [("encoder", config.encoder or "none")]
    rows += [("max_length", config.max_length), *config.network.items()]
    if config.training is not None:
        defaults = dataclasses.asdict(TrainingConfig())
        for name, value in dataclasses.asdict(config.training).items():
            if value != defaults[name]:
                rows.append((name, value))
    table = _table(("setting", "value"), [(name, _code(value)) for name, value in rows])
    command = f"\n```sh\n{printable(config.command)}\n```\n" if config.command else ""
    return f"{table}{command}"


def _licence(config: RunConfig) -> str:
    known = _LICENCES.get(config.encoder)
    if known is None:
        known = f"Encoder {_code(config.encoder)}: unknown; fill in its licence."
    return f"- {known}\n- Data: unknown; fill in its licence.\n- This model: unknown; fill in.\n"


def _table(heads: Tuple[str, ...], rows: Iterable[Tuple[Any, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def _plain(value: Any) -> str:
    """A value as one line without what Markdown's code and tables end at."""
    return printable(str(value)).replace("`", "'").replace("|", "\\|")


def _code(value: Any) -> str:
    return f"`{_plain(value)}`"
