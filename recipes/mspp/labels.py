#!/usr/bin/env python3
"""Label claims by runs of `wqa train mspp_claims`, in the form that FEVER's scorer takes.

    python recipes/mspp/labels.py FILE NAME [FILE NAME ...] --ctx DEVICE --runs RUN ...

Writes NAME into the folder of each RUN for each FILE of claims: JSONL with the id and
predicted_label of each claim. The claims need no labels. predicted_evidence is empty, as label
accuracy does not read it.
"""

import json
import pathlib
import sys

from wqa.data.documents import read_claims
from wqa.errors import run_script
from wqa.io.files import atomic_writer
from wqa.systems.run_directory import load_verifier


def number_of(text):
    """FEVER's ids are numbers there."""
    return int(text) if text.isdecimal() else text


def main(files, ctx, runs):
    """Write the files of labels."""
    for run in runs:
        verifier = load_verifier(run, ctx=ctx, long_questions="truncate")
        for data, name in zip(files[::2], files[1::2]):
            claims = list(read_claims(data, labelled=False))
            with atomic_writer(pathlib.Path(run) / name) as file:
                for claim, verdict in zip(claims, verifier.label_all(claims)):
                    line = {"id": number_of(claim.id), "predicted_label": verdict.label}
                    file.write(json.dumps({**line, "predicted_evidence": []}) + "\n")


if __name__ == "__main__":
    divide = sys.argv.index("--runs")
    run_script(main, sys.argv[1 : divide - 2], sys.argv[divide - 1], sys.argv[divide + 1 :])
