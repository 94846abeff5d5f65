"""What `compare.py` ranks: questions with candidates as long as WikiQA's, and rankers of
RoBERTa-base's size.

The words are those of the built-in corpus, the lengths those of WikiQA's test pairs, by the deciles
below (MiniLM's vocabulary; no sentence of WikiQA is needed). The rankers have random weights: their
speed is that of trained ones, their order of the candidates means nothing.
"""

import dataclasses
import pathlib
import sys

import mxnet as mx
import numpy as np
import tokenizers

from wqa.config import BACKBONES, RunConfig, to_json
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.inference.export import export_huggingface
from wqa.inference.quantize import quantize
from wqa.inference.quantized import FILE
from wqa.models import build_model
from wqa.pretrained.folders import new_directory, write_parameters
from wqa.text import PairEncoder, load_tokenizer

SHAPES = {
    **BACKBONES,
    "tiny": dataclasses.replace(
        BACKBONES["roberta_12_768_12"], units=32, hidden_size=64, num_heads=2, vocab_size=4000
    ),
}

SHARES = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)  # per cent of the pairs
QUESTION_TOKENS = (3, 5, 5, 6, 6, 7, 7, 8, 9, 10, 11, 13, 17, 22)
CANDIDATE_TOKENS = (1, 10, 12, 16, 19, 22, 26, 29, 33, 38, 46, 54, 74, 117)


def make_runs(folder, shape):
    """Write a monolithic ranker, a cascade on the same encoder, and the former for the peers."""
    folder = pathlib.Path(folder)
    files = [str(builtin_path(split)) for split in ("train", "dev", "test")]
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train(
        files,
        vocab_size=4000,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        show_progress=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    trained.save_model(str(folder))
    tokenizer, config, encoder = load_tokenizer(folder), SHAPES[shape], None
    for system in ("pairwise", "cascade"):
        mx.random.seed(0)
        model = build_model(system, config)
        model.initialize(mx.init.Normal(0.05))
        if encoder is None:
            encoder = model.backbone
        for name, parameter in model.backbone._collect_params_with_prefix().items():
            parameter.set_data(encoder._collect_params_with_prefix()[name].data())
        with new_directory(folder / system) as run:
            write_parameters(model, run / "model.params")
            tokenizer.save(run / "tokenizer.json")
            (run / "config.json").write_text(
                to_json(RunConfig(system, config, model.exits)), encoding="utf-8"
            )
    export_huggingface(folder / "pairwise", folder / "huggingface")
    return folder / "pairwise", folder / "cascade"


def make_questions(path, tokenizer_folder, count, candidates, seed=0):
    """Write questions of random words, as long as WikiQA's."""
    rng = np.random.default_rng(seed)
    encoder = PairEncoder(load_tokenizer(tokenizer_folder), 128)
    words = sorted(
        {
            word
            for split in ("train", "dev", "test")
            for question in read_questions(builtin_path(split))
            for text in (question.question, *question.texts)
            for word in text.split()
        }
    )
    sizes = [len(ids) for ids in encoder.tokenizer.encode([" " + word for word in words])]
    half = np.mean(sizes) / 2

    def text(lengths):
        wanted, chosen = np.interp(rng.uniform(0, 100), SHARES, lengths), []
        while (
            wanted > half or not chosen
        ):  # over or short by half a word at most, on average by none
            word = rng.integers(len(words))
            chosen.append(words[word])
            wanted -= sizes[word]
        return " ".join(chosen)

    write_questions(
        path,
        (
            Question(
                f"Q{number}",
                text(QUESTION_TOKENS),
                tuple(
                    Candidate(text(CANDIDATE_TOKENS), int(place == 0))
                    for place in range(candidates)
                ),
            )
            for number in range(count)
        ),
    )


def calibrate(runs, data, most=100):
    """Make the 8-bit weights of runs that have none."""
    for run in runs:
        if not (pathlib.Path(run) / FILE).exists():
            quantize(run, read_questions(data), most)


def make(folder, data, shape, count, candidates):
    """All that the comparison needs, with random weights."""
    runs = make_runs(folder, shape)
    make_questions(data, folder, int(count), int(candidates))
    calibrate(runs, data, most=3)


def questions(path, run, count, candidates):
    """Questions for a run of one's own."""
    make_questions(path, run, int(count), int(candidates))


def prepare(pairwise, cascade, huggingface, calibration):
    """What trained runs lack for the comparison."""
    export_huggingface(pairwise, huggingface)
    calibrate((pairwise, cascade), calibration)


if __name__ == "__main__":
    {"make": make, "prepare": prepare, "questions": questions, "export": export_huggingface}[
        sys.argv[1]
    ](*sys.argv[2:])
