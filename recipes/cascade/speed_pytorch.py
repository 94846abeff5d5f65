#!/usr/bin/env python3
"""Training speed of a plain PyTorch fine-tuning, to lay beside that of `wqa train` in one sitting.

    python recipes/cascade/speed_pytorch.py MINILM_DIR data/wikiqa/train.jsonl 60
    wqa train pairwise --encoder minilm --train data/wikiqa/train.jsonl --out runs/speed
    --max-updates 50 \\
        --train-filter no-all-negative --learning-rate 3e-5 --warmup-updates 10

Random batches of 32 pairs, padded to the longest of each, at most 128 tokens; mean pooling; AdamW.
It runs in an environment of its own with torch and transformers, and prints pairs a second over all
updates but the first three.
"""

import json
import os
import random
import sys
import time

import torch
from transformers import AutoTokenizer, BertModel

BATCH = 32


def main(directory, file, updates):
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    tokenizer, model = (
        AutoTokenizer.from_pretrained(directory),
        BertModel.from_pretrained(directory).train(),
    )
    head = torch.nn.Linear(model.config.hidden_size, 1)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=3e-5)
    with open(file, encoding="utf-8") as lines:
        questions = [json.loads(line) for line in lines]
    pairs = [
        (question["question"], candidate["text"], float(candidate["label"]))
        for question in questions
        if any(candidate["label"] for candidate in question["candidates"])
        for candidate in question["candidates"]
    ]
    random.Random(0).shuffle(pairs)
    begin = 0.0
    for update in range(updates):
        if update == 3:
            begin = time.perf_counter()
        batch = pairs[BATCH * update : BATCH * (update + 1)]
        inputs = tokenizer(
            [q for q, _, _ in batch],
            [c for _, c, _ in batch],
            truncation="only_second",
            max_length=128,
            padding=True,
            return_tensors="pt",
        )
        real = inputs["attention_mask"][..., None]
        scores = head((model(**inputs).last_hidden_state * real).sum(1) / real.sum(1))[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            scores, torch.tensor([y for _, _, y in batch])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{BATCH * (updates - 3) / (time.perf_counter() - begin):.1f} pairs/s")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
