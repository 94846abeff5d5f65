#!/usr/bin/env python3
"""Compare parts of GluonNLP with what this package has in their place.

    python recipes/bench/gluonnlp_parts.py [--turns 9]

The shape is MiniLM's (6 layers of 384 units), with random parameters: 32 pairs of 64 tokens, 20 to
64 of them valid. Texts are those of the built-in corpus, with the vocabulary of the installed
encoder. In each turn both sides run one after the other; the script prints the median over the
turns of GluonNLP's time over this package's, the quartiles, and the difference of the results.
"""

import argparse
import gc
import time

from wqa.models import Backbone  # before mxnet: it sets up threads

import gluonnlp as nlp  # isort: skip
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from wqa.config import BACKBONES
from wqa.config.encoders import PAIR_FORMS
from wqa.data import builtin_path, read_questions
from wqa.io.encoder_directories import encoder_directory
from wqa.pretrained import to_gluonnlp
from wqa.text import PairInputs, load_tokenizer, pad_pairs, plan_batches
from wqa.text.batching import bucketed
from wqa.training.optimizer import clip_gradients
from wqa.training.schedules import decay_weights
from wqa.training.workers import Workers

ROWS, LENGTH, LIMIT, TOKENS = 32, 64, 128, 4096
OURS = PAIR_FORMS["roberta"].separators
CONFIG = BACKBONES["bert_6_384_12"]
RATE, DECAY = 1e-4, 0.01


def seconds(work):
    """Seconds of a call, and of the arrays that it has begun."""
    mx.nd.waitall()
    begin = time.perf_counter()
    work()
    mx.nd.waitall()
    return time.perf_counter() - begin


def compare(name, ours, theirs, turns, result):
    """Print a line on two calls that do the same."""
    ours(), theirs()
    gc.collect()
    ratios = [seconds(theirs) / seconds(ours) for _ in range(turns)]
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    print(f"{name:<34} {middle:5.2f} ({low:.2f} to {high:.2f})  {result}", flush=True)


def compare_texts(turns):
    """Sentence transform, vocabulary, batches and padding."""
    tokenizer = load_tokenizer("minilm")
    with encoder_directory("minilm") as folder:
        words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ids = {word: index for index, word in enumerate(words)}
    vocab = nlp.vocab.BERTVocab(nlp.data.count_tokens(ids), token_to_idx=ids)
    transform = nlp.data.BERTSentenceTransform(
        nlp.data.BERTTokenizer(vocab, lower=True), LIMIT, pad=False
    )
    inputs = PairInputs(tokenizer, LIMIT)
    questions = []
    for part in ("train", "dev", "test"):
        questions += read_questions(builtin_path(part))

    def encode():
        return [pair for row in questions for pair in inputs.encode(row.question, row.texts)]

    def transform_all():
        return [transform((row.question, text)) for row in questions for text in row.texts]

    pairs, rows = encode(), transform_all()
    same = sum(list(pair.token_ids) == row[0].tolist() for pair, row in zip(pairs, rows))
    result = f"{same} of {len(pairs)} rows of BERT's ids are the same; {roberta_pair()}"
    compare("BERTSentenceTransform, BERTVocab", encode, transform_all, turns, result)
    compare_padding(pairs, rows, tokenizer.padding_id, turns)
    compare_batches(turns)


def roberta_pair():
    """How the transform separates the texts of a pair for RoBERTa."""
    vocab = nlp.Vocab(nlp.data.count_tokens(["a", "b"]), bos_token="<s>", eos_token="</s>")
    ids, _, _ = nlp.data.BERTSentenceTransform(str.split, 9, vocab, pad=False)(("a", "b"))
    count = ids.tolist()[:-1].count(vocab["</s>"])
    return f"RoBERTa's pair has {count} separator between its texts, ours {OURS}"


def compare_padding(pairs, rows, padding_id, turns):
    """Arrays of a batch."""
    pad = nlp.data.batchify.Pad
    batchify = nlp.data.batchify.Tuple(
        pad(pad_val=padding_id, dtype="int32"),
        nlp.data.batchify.Stack("float32"),
        pad(pad_val=0, dtype="int32"),
    )
    few, same = slice(0, ROWS), True

    def ours():
        length = max(len(pair.token_ids) for pair in pairs[few])
        arrays = pad_pairs(pairs[few], length, padding_id, typed=True)
        return [mx.nd.array(array, dtype=array.dtype) for array in arrays]

    def theirs():
        return batchify(rows[few])

    for one, other in zip(ours(), (theirs()[0], theirs()[2], theirs()[1])):
        same &= bool((one.asnumpy() == other.asnumpy()).all())
    result = f"the same arrays: {same}"
    compare("batchify.Tuple of Pad and Stack", ours, theirs, turns * 5, result)


def compare_batches(turns):
    """Batches of 20,000 samples whose lengths are spread like those of WikiQA's pairs."""
    rng = np.random.default_rng(1)
    lengths = np.minimum(rng.gamma(6.0, 6.5, 20_000).astype(int) + 5, LIMIT).tolist()

    def ours():
        return plan_batches(lengths, TOKENS, np.random.default_rng(2))

    def theirs():
        return list(
            nlp.data.FixedBucketSampler(
                lengths, TOKENS, num_buckets=16, shuffle=True, use_average_length=True
            )
        )

    result = []
    for batches, width in ((theirs(), int), (ours(), bucketed)):
        widths = [width(max(lengths[index] for index in batch)) for batch in batches]
        padded = [len(batch) * longest for batch, longest in zip(batches, widths)]
        over = sum(size > TOKENS for size in padded)
        share = sum(padded) / sum(lengths) - 1
        result.append(
            f"{len(batches)} batches of {len(set(widths))} lengths, {share:.1%} padding, {over} "
            f"above {TOKENS} tokens, at most {max(padded)}"
        )
    result = f"{result[0]}; ours {result[1]}"
    compare("FixedBucketSampler", ours, theirs, turns, result)


def random_arrays():
    """Token ids and types, (B, L), and valid lengths, (B,)."""
    rng = np.random.default_rng(3)
    ids = mx.nd.array(rng.integers(1000, 30000, (ROWS, LENGTH)), dtype="int32")
    types = mx.nd.array(rng.integers(0, 2, (ROWS, LENGTH)), dtype="int32")
    return ids, types, mx.nd.array(rng.integers(20, LENGTH + 1, ROWS))


def compare_encoders(turns):
    """Attention cells, inside encoders that MXNet computes."""
    mx.random.seed(4)
    backbone = Backbone(CONFIG)
    backbone.initialize(mx.init.Normal(0.02))
    model = to_gluonnlp(backbone)
    backbone.hybridize(static_alloc=True)
    model.hybridize(static_alloc=True)
    arrays = random_arrays()
    real = np.arange(LENGTH)[None] < arrays[2].asnumpy()[:, None]
    apart = np.abs(backbone(*arrays).asnumpy() - model(*arrays).asnumpy())[real].max()
    result = f"outputs differ by at most {apart:.1e}"
    name = "attention cells, forward"
    compare(name, lambda: backbone(*arrays), lambda: model(*arrays), turns, result)

    weights = mx.nd.random.normal(shape=(ROWS, LENGTH, CONFIG.units))

    def update(block):
        with autograd.record():
            loss = (block(*arrays) * weights).sum()
        loss.backward()

    name = "attention cells, with gradients"
    compare(name, lambda: update(backbone), lambda: update(model), turns, "")
    return backbone


def compare_softmax(turns):
    """Softmax over the positions that are not padding."""
    heads = CONFIG.num_heads
    scores = mx.nd.random.normal(shape=(ROWS * heads, LENGTH, LENGTH))
    valid = np.repeat(random_arrays()[2].asnumpy(), heads)
    lengths = mx.nd.array(np.repeat(valid[:, None], LENGTH, 1), dtype="int32")
    masked = np.arange(LENGTH)[None] >= valid[:, None]
    mask = mx.nd.array(np.broadcast_to(masked[:, None] * -1e4, scores.shape))

    def ours():
        return mx.nd.softmax(scores + mask)

    def theirs():
        return mx.nd.softmax(scores, length=lengths, use_length=True)

    apart = np.abs(ours().asnumpy() - theirs().asnumpy()).max()
    compare("softmax with use_length", ours, theirs, turns, f"differ by at most {apart:.1e}")


def compare_updates(backbone, turns):
    """Clipping of gradients, and Adam."""
    parameters = backbone._collect_params_with_prefix()
    values = list(parameters.values())
    gradients = [parameter.grad() for parameter in values]
    copies = [gradient.copy() for gradient in gradients]

    def restore():
        for gradient, copy in zip(gradients, copies):
            copy.copyto(gradient)

    exact = np.sqrt(sum((array.asnumpy().astype(np.float64) ** 2).sum() for array in gradients))
    limit = 0.5 * float(exact)

    def ours():
        clip_gradients(gradients, limit, Workers())

    def theirs():
        nlp.utils.clip_grad_global_norm(values, limit)

    clipped = []
    for clip in (ours, theirs):
        restore()
        clip()
        clipped.append(np.concatenate([gradient.asnumpy().ravel() for gradient in gradients]))
    errors = [abs(np.linalg.norm(array.astype(np.float64)) / limit - 1) for array in clipped]
    result = f"the clipped norm misses the limit by {errors[1]:.1e}, ours by {errors[0]:.1e}"
    compare("clip_grad_global_norm", ours, theirs, turns, result)

    restore()
    adam = gluon.Trainer(values, "adam", {"learning_rate": RATE}, update_on_kvstore=False)
    bert_adam = gluon.Trainer(
        values, "bertadam", {"learning_rate": RATE, "wd": DECAY}, update_on_kvstore=False
    )

    def our_update():
        decay_weights(parameters, mx.cpu(), RATE * DECAY)
        adam.update(1, ignore_stale_grad=True)
        refresh(values)

    def their_update():
        bert_adam.update(1, ignore_stale_grad=True)
        refresh(values)

    weight = backbone.layers[0].ffn_1.weight
    steps = []
    for update in (our_update, their_update):
        before = weight.data().asnumpy()
        update()
        steps.append(np.abs(weight.data().asnumpy() - before).mean())
    result = f"the first step is {steps[1] / steps[0]:.2f} times as long"
    compare("BERTAdam", our_update, their_update, turns, result)


def refresh(values):
    """Let gradients count as new."""
    for parameter in values:
        for array in parameter.list_data():
            array._fresh_grad = True


def main():
    """Run all comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9, help="(default: 9)")
    turns = parser.parse_args().turns
    mx.random.seed(5)
    print(f"{'part of GluonNLP ' + nlp.__version__:<34} its time over ours, result")
    compare_texts(turns)
    backbone = compare_encoders(turns)
    compare_softmax(turns * 5)
    compare_updates(backbone, turns * 2)


if __name__ == "__main__":
    main()
