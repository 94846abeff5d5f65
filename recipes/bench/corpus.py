"""What the comparisons rank: random questions as long as WikiQA's, and rankers with random weights.

    python recipes/bench/corpus.py make FOLDER OUT.jsonl SHAPE QUESTIONS CANDIDATES [CALIBRATED]
    python recipes/bench/corpus.py complete PAIRWISE CASCADE HUGGINGFACE [CALIBRATION.jsonl]
    python recipes/bench/corpus.py batches OUT.npz RUN QUESTIONS.jsonl BATCHES

``make`` writes rankers of a shape and questions for their tokenizer. ``complete`` writes what
trained runs lack: the form that the peers read, and 8-bit weights. ``batches`` writes mini-batches
of `wqa train` for the peers.

The words are those of the built-in corpus. The lengths are those of WikiQA's test pairs, by the
deciles below, so no sentence of WikiQA is needed. Random weights take the time of trained ones;
their order of the candidates means nothing.
"""

import dataclasses
import json
import pathlib
import sys

from wqa.models import runtime  # noqa: F401 - before mxnet, whose threads it sets

import mxnet as mx  # isort: skip
import numpy as np
import tokenizers

from wqa.cli import main as wqa
from wqa.config import BACKBONES, RunConfig, TrainingConfig
from wqa.config.runs import to_json
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.text import load_tokenizer
from wqa.training import TrainingPairs
from wqa.training.schedules import order_of_epoch

TINY = {"units": 32, "hidden_size": 64, "num_layers": 6, "num_heads": 2}
SHAPES = {
    **BACKBONES,
    "tiny": dataclasses.replace(BACKBONES["roberta_12_768_12"], **TINY),
    "tiny_bert": dataclasses.replace(BACKBONES["bert_6_384_12"], **TINY),
}

SPLITS = ("train", "dev", "test")
VOCABULARY = 4000  # tokens that a random ranker's tokenizer learns, at most

SHARES = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)  # per cent of the pairs
QUESTION_TOKENS = (3, 5, 5, 6, 6, 7, 7, 8, 9, 10, 11, 13, 17, 22)
CANDIDATE_TOKENS = (1, 10, 12, 16, 19, 22, 26, 29, 33, 38, 46, 54, 74, 117)


def train_tokenizer(folder, config):
    """Train a tokenizer on the built-in corpus and write its vocabulary.

    The corpus has fewer tokens than the encoder's word table has rows, which loading refuses. The
    vocabulary gets unused tokens for the other rows.

    Parameters
    ----------
    folder : pathlib.Path
        Directory for the files.
    config : wqa.config.BackboneConfig
        Shape of the encoder. The form of its pairs decides the tokenizer: WordPiece for BERT's,
        byte-level BPE for RoBERTa's.
    """
    options = {"vocab_size": VOCABULARY, "show_progress": False}
    if config.pair_form == "roberta":
        tokenizer = tokenizers.ByteLevelBPETokenizer()
        options["special_tokens"] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    else:
        tokenizer = tokenizers.BertWordPieceTokenizer()
    tokenizer.train([str(builtin_path(split)) for split in SPLITS], **options)
    tokenizer.save_model(str(folder))
    indices = range(tokenizer.get_vocab_size(), config.vocab_size)
    unused = {f"[unused{index}]": index for index in indices}
    if config.pair_form == "roberta":
        path = folder / "vocab.json"
        path.write_text(json.dumps({**tokenizer.get_vocab(), **unused}), encoding="utf-8")
    else:
        with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
            file.writelines(token + "\n" for token in unused)


def write_run(folder, system, config, tokenizer):
    """Write a ranker with random weights as a run directory.

    Parameters
    ----------
    folder : pathlib.Path
        The new directory.
    system : str
        A key of `wqa.systems.SYSTEMS`.
    config : wqa.config.BackboneConfig
        Shape of the encoder.
    tokenizer : wqa.text.Tokenizer
        Tokenizer of the encoder's family.
    """
    mx.random.seed(0)
    model = build_network(system, config)
    model.initialize(mx.init.Normal(0.05))
    folder.mkdir()
    model.save_parameters(str(folder / "model.params"))
    tokenizer.save(folder / "tokenizer.json")
    record = RunConfig(system, config, {"exits": list(model.exits)})
    (folder / "config.json").write_text(to_json(record), encoding="utf-8")


def make_questions(path, tokenizer_folder, count, candidates, seed=0):
    """Write questions of random words whose lengths follow WikiQA's.

    Parameters
    ----------
    path : str or path-like
        The new file, canonical JSONL. The first candidate of a question has label 1, others 0.
    tokenizer_folder : str or path-like
        Directory of the tokenizer that counts the tokens.
    count, candidates : int
        The number of questions, and that of the candidates of one.
    seed : int
        Seed of the words and the lengths.
    """
    rng = np.random.default_rng(seed)
    words = set()
    for builtin in map(builtin_path, SPLITS):
        for question in read_questions(builtin):
            words.update(*map(str.split, (question.question, *question.texts)))
    words = sorted(words)
    tokens = load_tokenizer(tokenizer_folder).encode([" " + word for word in words])
    sizes = [len(word_tokens) for word_tokens in tokens]
    half_word = np.mean(sizes) / 2

    def text(lengths):
        """Words until the text is within half a word of a drawn length, at least one."""
        missing = np.interp(rng.uniform(0, 100), SHARES, lengths)
        chosen = []
        while missing > half_word or not chosen:
            word = rng.integers(len(words))
            chosen.append(words[word])
            missing -= sizes[word]
        return " ".join(chosen)

    questions = []
    for number in range(count):
        labels = [1] + [0] * (candidates - 1)
        answers = tuple(Candidate(text(CANDIDATE_TOKENS), label) for label in labels)
        questions.append(Question(f"Q{number}", text(QUESTION_TOKENS), answers))
    write_questions(path, questions)


def write_batches(path, run, data, count):
    """Write the first mini-batches that `wqa train` draws with its defaults, for the peers.

    Parameters
    ----------
    path : str or path-like
        The new file: arrays ``0_ids``, ``0_types``, ``0_lengths``, ``0_labels``, and so on.
    run : str or path-like
        Run directory whose tokenizer encodes the pairs.
    data : str or path-like
        Labelled questions, canonical JSONL.
    count : str
        The number of mini-batches.
    """
    config = TrainingConfig()
    pairs = TrainingPairs(read_questions(data), load_ranker(run).inputs)
    plan = []
    epoch = 0
    while len(plan) < int(count):
        plan += pairs.plan(config.tokens_per_batch, order_of_epoch(config.seed, epoch))
        epoch += 1
    arrays = {}
    for number, rows in enumerate(plan[: int(count)]):
        batch = zip(("ids", "types", "lengths", "labels"), pairs.batch(rows))
        arrays.update({f"{number}_{name}": array for name, array in batch})
    np.savez(path, **arrays)


def quantize(runs, data, most=100):
    """Write the 8-bit weights of the runs that have none.

    Where oneDNN's package is missing nothing is written, and the int8 contenders say why they do
    not run.

    Parameters
    ----------
    runs : iterable of path-like
        Run directories.
    data : path-like
        Questions to calibrate on, canonical JSONL.
    most : int
        The number of questions to take of them, at most.
    """
    for run in runs:
        if not (run / "int8.safetensors").exists():
            wqa(["quantize", str(run), "--data", str(data), "--questions", str(most)])


def export(run, out):
    """Write a monolithic ranker in the form that the peers read.

    Parameters
    ----------
    run : path-like
        Run directory.
    out : path-like
        The new directory.
    """
    code = wqa(["export", str(run), str(out), "--format", "huggingface"])
    if code:
        sys.exit(code)


def make(folder, data, shape, count, candidates, calibrated="3"):
    """Write rankers with random weights, and questions for them.

    Parameters
    ----------
    folder : str
        Directory for the rankers: ``pairwise``, ``cascade`` and ``huggingface``.
    data : str
        The new file of questions.
    shape : str
        A key of `SHAPES`.
    count, candidates : str
        The number of questions, and that of the candidates of one.
    calibrated : str
        The number of questions that int8 is calibrated on; ``"0"`` writes no 8-bit weights.
    """
    if shape not in SHAPES:
        sys.exit(f"--shape: {shape}; expected one of " + ", ".join(SHAPES))
    folder, config = pathlib.Path(folder), SHAPES[shape]
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(folder, config)
    tokenizer = load_tokenizer(folder)
    for system in ("pairwise", "cascade"):
        write_run(folder / system, system, config, tokenizer)
    export(folder / "pairwise", folder / "huggingface")
    make_questions(data, folder, int(count), int(candidates))
    if int(calibrated):
        quantize((folder / "pairwise", folder / "cascade"), data, int(calibrated))


def complete(pairwise, cascade, huggingface, calibration=""):
    """Write what trained runs lack for a comparison.

    Parameters
    ----------
    pairwise, cascade : str
        Run directories.
    huggingface : str
        The new directory for the peers.
    calibration : str
        Questions to calibrate int8 on; without them nothing is calibrated.
    """
    export(pairwise, huggingface)
    if calibration:
        quantize((pathlib.Path(pairwise), pathlib.Path(cascade)), calibration)


def main(command, *arguments):
    """Run one of the commands.

    Parameters
    ----------
    command : str
        ``make``, ``complete`` or ``batches``.
    *arguments : str
        The command's own.
    """
    {"make": make, "complete": complete, "batches": write_batches}[command](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
