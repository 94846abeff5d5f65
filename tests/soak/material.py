"""What the attacks work on, written once: tiny encoders, corpora, runs, a store, a checkpoint."""

import gzip
import json
import os
import pathlib
import shlex
import shutil
import tarfile

from wqa.data import builtin_path, read_questions, write_questions

#: Options of the trainings, which take a third of a second.
TRAINING = shlex.split(
    "--exits 1,2,3 --max-length 64 --max-updates 8 --epochs 9 --seed 1 --learning-rate 1e-2 "
    "--warmup-updates 3 --tokens-per-batch 600 --checkpoint-every 3 --eval-every 3 --log-every 2"
)

#: Files of `tests.data.pickled`, by the name of the encoder that they become.
PICKLED = {"zipped": "zip.bin", "legacy": "legacy.bin"}


def prepare(folder):
    """Write everything.

    Parameters
    ----------
    folder : pathlib.Path
        New folder.
    """
    folder.mkdir(parents=True)
    write_corpora(folder)
    write_archives(folder / "archives")
    write_encoders(folder)
    write_runs(folder)


def write_corpora(folder):
    """Write a few questions of the built-in corpus to train, evaluate and rank on."""
    questions = list(read_questions(builtin_path("dev")))
    write_questions(folder / "train.jsonl", questions[:8])
    write_questions(folder / "dev.jsonl", questions[8:11])


def write_encoders(folder):
    """Write an encoder in safetensors, and two whose weights are pickled."""
    from tiny_encoder import write_tiny_encoder

    write_tiny_encoder(folder / "encoder")
    data = pathlib.Path(__file__).parents[1] / "files"
    for name, file in PICKLED.items():
        target = folder / name
        target.mkdir()
        shutil.copyfile(data / "pickled" / file, target / "pytorch_model.bin")
        for part in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
            source = data / "tiny_bert" / part
            if source.exists():
                shutil.copyfile(source, target / part)


def write_runs(folder):
    """Write a trained, calibrated and tuned cascade, its store, and a run that was stopped."""
    from wqa.cli import main

    train, dev = str(folder / "train.jsonl"), str(folder / "dev.jsonl")
    run, encoder = str(folder / "run"), str(folder / "encoder")
    command = ["train", "cascade", "--encoder", encoder, "--train", train, "--dev", dev, *TRAINING]
    _stop(folder, command)
    _expect(main([*command, "--out", run]))
    _expect(main(["quantize", run, "--data", dev]))
    _expect(main(["tune", run, "--data", dev, "--max-cost", "0.8"]))
    options = ["--max-length", "64", "--out", str(folder / "store")]
    _expect(main(["tokenize", "--encoder", encoder, "--data", train, *options]))


def _stop(folder, command):
    """Leave a training as a kill after the last checkpoint does.

    The child computes, so this process must not have computed anything before.
    """
    from wqa.cli import main
    from wqa.training.checkpoint import Checkpoints

    finish = Checkpoints.finish
    Checkpoints.finish = lambda *_: os._exit(0)
    child = os.fork()
    if not child:
        main([*command, "--out", str(folder / "stopped"), "--resume"])
        os._exit(1)
    Checkpoints.finish = finish
    _expect(os.waitpid(child, 0)[1])


def _expect(code):
    if code:
        raise RuntimeError(f"the material cannot be written: exit {code}")


def write_archives(folder):
    """Write a tiny archive of every corpus that a data script reads.

    Parameters
    ----------
    folder : pathlib.Path
        New folder; one folder below it for each script.
    """
    for name in ("asnq", "wikiqa", "trecqa", "squad", "retrieval"):
        (folder / name).mkdir(parents=True)
    _write_asnq(folder / "asnq")
    header = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
    for split in ("train", "dev", "test"):
        rows = [header]
        for question in range(4):
            for sentence in range(3):
                text = f"Sentence {sentence} of {split} {question} ."
                rows.append(
                    f"Q{question}\twho is {question} ?\tD{question}\tTitle\tD{question}-{sentence}"
                    f"\t{text}\t{int(sentence == 1)}"
                )
        _write(folder / "wikiqa" / f"WikiQA-{split}.tsv", rows)
    _write_trecqa(folder / "trecqa")
    _write_squad(folder / "squad")
    files = {
        "questions": [f"{n}\twho is {n} ?" for n in range(6)],
        "sentences": [f"d{n}\tSentence {n} , here ." for n in range(9)],
        "run": [f"{n} Q0 d{n + k} {k + 1} {9 - k}.5 t" for n in range(6) for k in range(3)],
        "qrels": [f"{n} 0 d{n + k} {int(k == 1)}" for n in range(6) for k in range(3)],
    }
    for name, lines in files.items():
        _write(folder / "retrieval" / name, lines)
    rows = [f"who is {n} ?\tSentence {k} .\t{int(k == 1)}" for n in range(6) for k in range(3)]
    _write(folder / "table.tsv", ["question\tcandidate\tlabel", *rows])


def _write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _write_asnq(folder):
    train = [f"train {n % 7}\tsentence {n} of it\t{1 + n % 4}" for n in range(40)]
    dev = [f"held {n % 6}\tsentence {n} of it\t{1 + n % 4}" for n in range(30)]
    _write(folder / "train.tsv", train)
    _write(folder / "dev.tsv", dev)
    for split, kept in (("dev", (0, 1, 2)), ("test", (3, 4, 5))):
        text = "".join(f"held {n}\n" for n in kept)
        (folder / f"unique.{split}.gz").write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
    with tarfile.open(folder / "asnq.tar", "w") as tar:
        for name in ("train.tsv", "dev.tsv"):
            tar.add(folder / name, f"data/asnq/{name}")


def _write_trecqa(folder):
    lines = []
    for number in range(5):
        lines += [f"<QApairs id='{number}'>", "<question>", f"who\tis\t{number}\t?", "</question>"]
        for kind in ("positive", "negative", "negative"):
            lines += [
                f"<{kind}>",
                f"He\tis\t{kind}\t{number}\t.",
                "PRP\tVBZ\tJJ\tCD\t.",
                f"</{kind}>",
            ]
        lines.append("</QApairs>")
    for name in ("train2393.cleanup.xml", "train.xml", "dev.xml", "test.xml"):
        _write(folder / name, lines)


def _write_squad(folder):
    paragraphs = []
    for number in range(3, 7):  # question 5 is one of dev
        text = f"Mr. Smith came in {1900 + number}. He met Jones. They left at {number}."
        answers = [{"text": "Jones", "answer_start": text.index("Jones")}]
        entry = {"id": f"squad-{number}", "question": "Whom did he meet?", "answers": answers}
        paragraphs.append({"context": text, "qas": [{**entry, "is_impossible": False}]})
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
