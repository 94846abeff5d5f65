"""A ranker of wqa, for `compare.py`: ranks the questions that it is told to and reports the time.

    python recipes/bench/ours.py RUN DATA PRECISION DROP_RATIO...

Each line on standard input is two numbers: the first question, and the one after the last. The
answer is a line of JSON. For each drop ratio it holds the scores, the seconds of the network on
encoded pairs, and in bfloat16 and int8 the seconds from text to ranking as well: what lies between
the two is the same in every precision.
"""

import sys
import time

from machine import answer, resident, say

from wqa.data import read_questions
from wqa.errors import MissingDependency, PrecisionError
from wqa.systems.load import load_ranker


def timed(function, *arguments):
    """Call a function and take the time.

    Parameters
    ----------
    function : callable
        What is timed.
    *arguments
        Its arguments.

    Returns
    -------
    list
        What the function returns.
    float
        Seconds.
    """
    start = time.perf_counter()
    result = list(function(*arguments))
    return result, time.perf_counter() - start


def scores_of(ranking, drop_ratio):
    """Scores of one question's candidates, comparable by rank.

    Parameters
    ----------
    ranking : wqa.inference.Ranking
        Its ranking.
    drop_ratio : float
        Above 0 candidates have scores of several exits, so that their ranks stand for scores.

    Returns
    -------
    list of float
        One a candidate.
    """
    if drop_ratio == 0:
        return ranking.scores.tolist()
    return (-ranking.order.argsort()).tolist()


def main(run, data, precision, *ratios):
    """Answer the commands on standard input.

    Parameters
    ----------
    run : str
        Run directory.
    data : str
        Questions, canonical JSONL.
    precision : str
        What the products compute in.
    *ratios : str
        Drop ratios.
    """
    try:
        ranker = load_ranker(run, precision=precision)
    except (PrecisionError, MissingDependency) as error:
        return say(left_out=str(error))
    questions = list(read_questions(data))

    def work(begin, end):
        chunk = questions[begin:end]
        encode = ranker.inputs.encode
        pairs = [encode(question.question, question.texts, question.id) for question in chunk]
        rows = []
        for drop_ratio in map(float, ratios):
            ranker.set_drops(drop_ratio)
            rankings, seconds = timed(ranker.rank_pairs, pairs)
            end_to_end = None
            if precision != "float32":
                rankings, end_to_end = timed(ranker.rank_all, chunk)
            row = {"drop_ratio": drop_ratio, "seconds": seconds, "end_to_end": end_to_end}
            row["scores"] = [scores_of(ranking, drop_ratio) for ranking in rankings]
            rows.append(row)
        tokens = sum(len(pair.token_ids) for question in pairs for pair in question)
        return {"rows": rows, "tokens": tokens, "memory_mib": resident()}

    say(ready=True)
    return answer(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
