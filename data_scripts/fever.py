#!/usr/bin/env python3
"""FEVER (Thorne et al. 2018) with the evidence that KernelGAT (Liu et al. 2020) retrieved for it,
to claims with their evidence.

    python data_scripts/fever.py --out data/fever
    python data_scripts/fever.py --out data/fever --archive KernelGAT.zip

Writes train.jsonl, dev.jsonl and test.jsonl, and stats.json with the counts beside those of MSPP's
Table 6. ``--archive`` takes the zip of the release, or a folder of bert_train.json, bert_dev.json
and bert_test.json, plain or .gz.

A piece of evidence is the title of its page, a point and the sentence, both as the release has
them. A claim has at most five, in the order of their retrieval; where nothing was retrieved it has
the text "no doc. ". Labels of the test split are not public: its claims may have none.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import collections
import sys

from collection import write_counts
from corpus import from_archive, make_parser, refuse_empty, run
from fetching import download
from releases import Release

from wqa.data.claims import LABELS, NO_EVIDENCE, Claim, check_label, write_claims
from wqa.errors import DataError, shorten
from wqa.io.lines import json_value, text_of

URL = "https://thunlp.oss-cn-qingdao.aliyuncs.com/KernelGAT/FEVER/KernelGAT.zip"
NAMES = {split: f"bert_{split}.json" for split in ("train", "dev", "test")}
#: MSPP's Table 6.
PUBLISHED = {
    "train": {"claims": 145_406, "evidence": 722_473},
    "dev": {"claims": 19_998, "evidence": 98_915},
    "test": {"claims": 19_998, "evidence": 98_839},
}
#: Greatest number of pieces of evidence of a claim.
MOST_EVIDENCE = 5
#: Greatest size of a file in bytes, unpacked.
LARGEST_FILE = 4 << 30


def read(release, split, counts):
    """Yield the claims of a split, and count them."""
    for line, where in release.lines(NAMES[split], LARGEST_FILE):
        claim, retrieved = read_claim(line, where, labelled=split != "test")
        counts["claims"] += 1
        counts["evidence"] += min(retrieved, MOST_EVIDENCE)
        counts["without_evidence"] += not retrieved
        counts["cut"] += retrieved > MOST_EVIDENCE
        counts[claim.label or "without_label"] += 1
        yield claim
    refuse_empty(split, counts["claims"], "claim")


def read_claim(line, where, labelled=True):
    """Return the claim of a line, and how many pieces of evidence the line has."""
    fields = json_value(line, where)
    if not isinstance(fields, dict):
        raise DataError(where, shorten(fields), "a JSON object")
    for name in ("id", "claim", "evidence", "label"):
        if name not in fields and (name != "label" or labelled):
            raise DataError(where, f"no key {name!r}", "a line of KernelGAT's data")
    label = fields.get("label")
    if label is not None or labelled:
        check_label(label, where)
    pieces = fields["evidence"]
    if not isinstance(pieces, list):
        raise DataError(where, f"evidence is {shorten(pieces)}", "a list")
    evidence = [_evidence(piece, f"{where}, evidence {n}") for n, piece in enumerate(pieces, 1)]
    kept = tuple(evidence[:MOST_EVIDENCE]) or (NO_EVIDENCE,)
    claim = text_of(fields["claim"], "claim", where)
    if not claim.strip():
        raise DataError(where, "claim is empty", "text")
    return Claim(_id(fields["id"], where), claim, kept, label), len(evidence)


def _evidence(piece, where):
    if not isinstance(piece, list) or len(piece) < 3:
        raise DataError(where, shorten(piece), "a list of title, number, sentence")
    title, _, sentence = piece[:3]
    if not text_of(title, "title", where).strip():
        raise DataError(where, "title is empty", "text")
    return f"{title}. {text_of(sentence, 'sentence', where)}"


def _id(value, where):
    if type(value) is int:
        return str(value)
    if not text_of(value, "id", where).strip():
        raise DataError(where, "id is empty", "a number or text")
    return value


def figures(counts, split):
    """Return the counts of a split, beside the published ones."""
    labels = {label: counts[label] for label in (*LABELS, "without_label") if counts[label]}
    return {
        "claims": counts["claims"],
        "evidence": counts["evidence"],
        "evidence_per_claim": round(counts["evidence"] / counts["claims"], 2),
        "without_evidence": counts["without_evidence"],
        "labels": labels,
        "published": PUBLISHED[split],
    }


def write(archive, out):
    """Write the splits that the release has, and their counts, and return the counts."""
    stats = {}
    with Release(archive, "KernelGAT's data") as release:
        splits = [split for split, name in NAMES.items() if release.holds(name)]
        if not splits:
            raise DataError(
                archive, "holds none of " + ", ".join(NAMES.values()), "KernelGAT's data"
            )
        for split in splits:
            counts = collections.Counter()
            write_claims(out / f"{split}.jsonl", read(release, split, counts))
            note_cut(split, counts["cut"])
            stats[split] = figures(counts, split)
    write_counts(out, stats)
    return stats


def note_cut(split, count):
    """Print a note on the claims of a split that have too much evidence, if there are any."""
    if count:
        text = f"claims with more than {MOST_EVIDENCE} pieces of evidence, which keep the first"
        print(f"note: {split}: {count:,} {text}", file=sys.stderr)


def show(stats):
    """Print the counts of every split beside the published ones."""
    for split, counts in stats.items():
        parts = []
        for name in ("claims", "evidence"):
            parts.append(f"{counts[name]:,} {name} (Table 6: {counts['published'][name]:,})")
        parts.append(f"{counts['evidence_per_claim']} a claim")
        parts.append(f"{counts['without_evidence']:,} claims without evidence")
        parts += [f"{count:,} {label}" for label, count in counts["labels"].items()]
        print(f"{split:6} " + ", ".join(parts))


def fetch(folder):
    """Download the release and return its path."""
    download(URL, folder / "KernelGAT.zip")
    return folder / "KernelGAT.zip"


def main(arguments=None):
    """Run the command line."""
    options = make_parser(__doc__).parse_args(arguments)
    return run(lambda: from_archive(options, fetch, write), options.out, show)


if __name__ == "__main__":
    sys.exit(main())
