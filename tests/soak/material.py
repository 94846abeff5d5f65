"""What the attacks work on, written once: an encoder, a corpus and a run."""

import gzip
import shlex

from wqa.data import builtin_path, read_questions, write_questions

#: Options of the trainings, which take a third of a second.
TRAINING = shlex.split(
    "--exits 1,2,3 --max-length 64 --max-updates 8 --epochs 9 --seed 1 --learning-rate 1e-2 "
    "--warmup-updates 3 --tokens-per-batch 600 --checkpoint-every 3 --eval-every 3 --log-every 2"
)


def prepare(folder):
    """Write everything into a new folder."""
    from tiny_encoder import write_tiny_encoder

    folder.mkdir(parents=True)
    questions = list(read_questions(builtin_path("dev")))
    write_questions(folder / "train.jsonl", questions[:8])
    write_questions(folder / "dev.jsonl", questions[8:11])
    write_asnq(folder / "asnq")
    write_tiny_encoder(folder / "encoder")
    write_runs(folder)


def write_runs(folder):
    """Write a trained, calibrated and tuned cascade."""
    from wqa.cli import main

    train, dev = str(folder / "train.jsonl"), str(folder / "dev.jsonl")
    run, encoder = str(folder / "run"), str(folder / "encoder")
    command = ["train", "cascade", "--encoder", encoder, "--train", train, "--dev", dev, *TRAINING]
    for arguments in (
        [*command, "--out", run],
        ["quantize", run, "--data", dev],
        ["tune", run, "--data", dev, "--max-cost", "0.8"],
    ):
        if main(arguments):
            raise RuntimeError(f"the material cannot be written: {arguments}")


def write_asnq(folder):
    """Write a tiny archive of ASNQ."""
    folder.mkdir()
    for name, question, count in (("train", "train", 40), ("dev", "held", 30)):
        lines = [f"{question} {n % 6}\tsentence {n} of it\t{1 + n % 4}\n" for n in range(count)]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    for split, kept in (("dev", (0, 1, 2)), ("test", (3, 4, 5))):
        text = "".join(f"held {n}\n" for n in kept)
        (folder / f"unique.{split}.gz").write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
