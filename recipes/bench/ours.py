"""One of our rankers, for `compare.py`: ranks the questions that it is told to, and says how long
it took.

    python recipes/bench/ours.py RUN DATA PRECISION ENGINE DROP_RATIO...

Each line on standard input is two numbers, the first question and the one after the last. The
answer is a line of JSON: for each drop ratio the seconds of the network on encoded pairs and in
bfloat16 and int8 those of text in, ranking out; and the scores.
"""

import json
import os
import sys
import time

from wqa.data import read_questions
from wqa.inference import load_ranker


def main(run, data, precision, engine, *ratios):
    ranker = load_ranker(run, precision=precision, engine=engine)
    questions = list(read_questions(data))
    timed = (
        precision != "float32"
    )  # text in, ranking out; the difference is the same in every precision
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        begin, end = map(int, line.split())
        chunk = questions[begin:end]
        flights = list(ranker._flights(chunk))
        tokens = sum(
            len(pair.token_ids) for flight in flights for pairs in flight for pair in pairs
        )
        rows = []
        for ratio in ratios:
            ranker.drop_ratio = float(ratio)
            start = time.perf_counter()
            rankings = [ranking for flight in flights for ranking in ranker.rank_pairs(flight)]
            network = time.perf_counter() - start
            start = time.perf_counter()
            rankings = list(ranker.rank_all(chunk)) if timed else rankings
            whole = time.perf_counter() - start if timed else None
            # A cascade's order counts what was dropped last, so its scores are given as places.
            scores = [
                ranking.scores.tolist()
                if float(ratio) == 0
                else (-ranking.order.argsort()).tolist()
                for ranking in rankings
            ]
            rows.append(
                {
                    "drop_ratio": float(ratio),
                    "seconds": network,
                    "end_to_end": whole,
                    "scores": scores,
                }
            )
        with open("/proc/self/statm", encoding="ascii") as file:
            memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        print(json.dumps({"rows": rows, "tokens": tokens, "memory_mib": memory}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
