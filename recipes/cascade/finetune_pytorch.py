#!/usr/bin/env python3
"""A plain PyTorch fine-tuning of MiniLM, to lay its MAP beside that of `wqa train`.

    python recipes/cascade/finetune_pytorch.py MINILM_DIR data/wikiqa first 3
    python recipes/cascade/finetune_pytorch.py MINILM_DIR data/wikiqa mean 3

`first` scores by the library's own classifier on the first position (pooler, dropout, one output),
`mean` by one linear layer on the mean of the real positions. Questions with an answer, random
batches of 32 pairs, AdamW, peak 3e-5 after 100 updates, then down in a line; seed 0. It runs in an
environment of its own with torch and transformers.
"""

import json
import os
import random
import sys

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

BATCH, PEAK, WARMUP = 32, 3e-5, 100


def read(path):
    """Questions that have an answer."""
    with open(path, encoding="utf-8") as lines:
        questions = [json.loads(line) for line in lines]
    return [
        question
        for question in questions
        if any(candidate["label"] for candidate in question["candidates"])
    ]


def score(tokenizer, model, pooling, questions, candidates):
    """Log-odds of pairs."""
    inputs = tokenizer(
        questions,
        candidates,
        truncation="only_second",
        max_length=128,
        padding=True,
        return_tensors="pt",
    )
    if pooling == "first":
        return model(**inputs).logits[:, 0]
    real = inputs["attention_mask"][..., None]
    hidden = model.bert(**inputs).last_hidden_state
    return model.classifier((hidden * real).sum(1) / real.sum(1))[:, 0]


def mean_average_precision(tokenizer, model, pooling, questions):
    """MAP over questions; ties by descending document id, as trec_eval orders them."""
    total = 0.0
    for question in questions:
        texts = [candidate["text"] for candidate in question["candidates"]]
        with torch.no_grad():
            scores = score(
                tokenizer, model, pooling, [question["question"]] * len(texts), texts
            ).tolist()
        keys = []
        for index, candidate in enumerate(question["candidates"]):
            document_id = candidate.get("id", f"{question['id']}-{index}")
            keys.append((scores[index], document_id.encode()))
        order = sorted(range(len(texts)), key=keys.__getitem__, reverse=True)
        hits = [
            rank for rank, place in enumerate(order, 1) if question["candidates"][place]["label"]
        ]
        total += sum(count / rank for count, rank in enumerate(hits, 1)) / len(hits)
    return total / len(questions)


def main(directory, data, pooling, epochs):
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = BertForSequenceClassification.from_pretrained(directory, num_labels=1)
    dev = read(f"{data}/dev.jsonl")
    pairs = [
        (question["question"], candidate["text"], float(candidate["label"]))
        for question in read(f"{data}/train.jsonl")
        for candidate in question["candidates"]
    ]
    optimizer, draw, update = torch.optim.AdamW(model.parameters(), lr=PEAK), random.Random(0), 0
    total = epochs * -(-len(pairs) // BATCH)
    for epoch in range(epochs):
        model.train()
        draw.shuffle(pairs)
        for start in range(0, len(pairs), BATCH):
            update += 1
            rate = PEAK * min(update / WARMUP, (total + 1 - update) / (total + 1 - WARMUP))
            for group in optimizer.param_groups:
                group["lr"] = rate
            batch = pairs[start : start + BATCH]
            scores = score(
                tokenizer, model, pooling, [q for q, _, _ in batch], [c for _, c, _ in batch]
            )
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                scores, torch.tensor([y for _, _, y in batch])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = mean_average_precision(tokenizer, model.eval(), pooling, dev)
        print(f"epoch {epoch + 1}: dev MAP {100 * found:.2f}", flush=True)
    found = mean_average_precision(tokenizer, model, pooling, read(f"{data}/test.jsonl"))
    print(f"after the last epoch: test MAP {100 * found:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
