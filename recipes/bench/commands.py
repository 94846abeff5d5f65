#!/usr/bin/env python3
"""Time, memory and disk of each command on the built-in corpus, with MiniLM, in a table.

    python recipes/bench/commands.py [FOLDER]

Each command runs as a process of its own, so that its seconds hold the import of MXNet. A training
makes twenty updates, fewer where its data has fewer. What a command writes stays in FOLDER, by
default build/commands.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

from wqa.data import builtin_path
from wqa.evaluation import table

HERE = pathlib.Path(__file__).resolve().parent
TRAIN, DEV, TEST = (str(builtin_path(split)) for split in ("train", "dev", "test"))
QUESTION = "how do tides rise and fall ?"
SENTENCES = str(HERE.parent / "quickstart.txt")
FROM_MINILM = "--encoder minilm --learning-rate 5e-5"
SHORT = "--epochs 20 --max-updates 20"

#: Commands by title, in order; one may read what those before it wrote. In a command, words in
#: capitals are files.
COMMANDS = [
    ("doctor", "doctor"),
    ("convert, MiniLM", "convert minilm encoder"),
    ("tokenize", "tokenize --encoder minilm --data TRAIN --out store"),
    (
        "train pairwise",
        f"train pairwise {FROM_MINILM} --train TRAIN --dev DEV --out pairwise {SHORT}",
    ),
    (
        "train cascade",
        f"train cascade {FROM_MINILM} --exits 2,4,6 --train TRAIN --dev DEV --out cascade {SHORT}",
    ),
    ("score", "score pairwise --data TRAIN --out scores"),
    (
        "train mhs, from scores",
        f"train mhs {FROM_MINILM} --train TRAIN --dev DEV --out mhs --teachers scores "
        f"--teaching sum {SHORT}",
    ),
    ("evaluate", "evaluate cascade --data TEST --drop-ratio 0 --drop-ratio 0.3"),
    ("compare", "evaluate pairwise cascade --data TEST"),
    ("rank", "rank cascade --question QUESTION --candidates SENTENCES --drop-ratio 0.3"),
    ("tune", "tune cascade --data DEV --max-loss 0"),
    ("calibrate", "calibrate cascade --data DEV"),
    ("quantize", "quantize cascade --data DEV"),
    ("export", "export cascade exported"),
    ("bench", "bench cascade --data TEST"),
    ("index", "index collection/documents.jsonl --out index --sentences"),
    ("ask", "ask index --ranker cascade --drop-ratio 0.3 --question QUESTION"),
    (
        "retrieve",
        "retrieve index --data collection/train.questions.jsonl --out retrieved.jsonl --top 5",
    ),
    ("train dcbert", f"train dcbert {FROM_MINILM} --train retrieved.jsonl --out dcbert {SHORT}"),
    ("encode", "encode dcbert --documents collection/documents.jsonl --out cache"),
    ("train reader", f"train reader {FROM_MINILM} --train retrieved.jsonl --out reader {SHORT}"),
    (
        "answer",
        "ask index --ranker dcbert --cache cache --reader reader --question QUESTION",
    ),
    ("embed-words", "embed-words --data TRAIN DEV TEST --out words --encoder minilm"),
    ("train cosinet", f"train cosinet --words words --train TRAIN --dev DEV --out cosinet {SHORT}"),
    (
        "train compare_aggregate",
        f"train compare_aggregate --words words --train TRAIN --out compare_aggregate {SHORT}",
    ),
    (
        "train mspp_pretraining",
        f"train mspp_pretraining {FROM_MINILM} --train documents/train.jsonl --out paragraphs "
        f"{SHORT}",
    ),
    (
        "train mspp",
        f"train mspp --init paragraphs --learning-rate 5e-5 --train TRAIN --out joint {SHORT}",
    ),
    (
        "train mspp_claims",
        f"train mspp_claims {FROM_MINILM} --train fever/train.jsonl --out claims {SHORT}",
    ),
    ("verify", "verify claims --claim QUESTION --evidence SENTENCES"),
]


def words_of(command):
    """Return the words of a command, with the files that stand for names in capitals."""
    files = {"TRAIN": TRAIN, "DEV": DEV, "TEST": TEST, "QUESTION": QUESTION}
    files.update(SENTENCES=SENTENCES)
    return [files.get(word, word) for word in command.split()]


def prepare(folder):
    """Write what the commands read."""
    for script, out in (
        ("dcbert/builtin_collection.py", "collection"),
        ("mspp/builtin_corpora.py", "."),
    ):
        subprocess.run([sys.executable, HERE.parent / script, out], cwd=folder, check=True)


def sizes_of(folder):
    """Return the bytes of each file below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path: path.stat().st_size for path in files}


def measure(title, command, folder):
    """Run a command and return its row of the table."""
    before = sizes_of(folder)
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "wqa", *words_of(command)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = process.stdout.read().decode("utf-8", "replace")
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"error: wqa {command} ended with {os.WEXITSTATUS(status)}:\n{output}")
    after = sizes_of(folder)
    written = sum(size for path, size in after.items() if before.get(path) != size)
    return {
        "command": title,
        "seconds": f"{seconds:.1f}",
        "MiB of memory": f"{usage.ru_maxrss / 1024:,.0f}",
        "MB written": f"{written / 1e6:.1f}" if written else "",
    }


def main(folder="build/commands"):
    """Measure all commands and print the table."""
    folder = pathlib.Path(folder).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    prepare(folder)
    print(table([measure(title, command, folder) for title, command in COMMANDS]))


if __name__ == "__main__":
    main(*sys.argv[1:])
