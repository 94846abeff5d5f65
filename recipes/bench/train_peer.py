"""PyTorch's training of the same classifier on the same batches, for `compare_training.py`; the
protocol of `train_ours.py`.

    python recipes/bench/train_peer.py DIRECTORY BATCHES.npz PRECISION

In bfloat16 under autocast, as PyTorch advises.
"""

import json
import os
import sys
import time

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification


def main(directory, batches, precision):
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(directory).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    arrays = np.load(batches)
    typed = model.config.type_vocab_size > 1
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        begin, end = map(int, line.split())
        start = time.perf_counter()
        for number in range(begin, end):
            ids, types, lengths, labels = (
                torch.from_numpy(arrays[f"{number}_{name}"])
                for name in ("ids", "types", "lengths", "labels")
            )
            inputs = {
                "input_ids": ids.long(),
                "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long(),
            }
            if typed:
                inputs["token_type_ids"] = types.long()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                scores = model(**inputs).logits[:, 0]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                scores.float(), labels.float()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
