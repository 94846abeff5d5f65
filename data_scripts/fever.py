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

import collections
import sys

from corpus import make_main, refuse_empty
from releases import expecting, id_of, lines_of, note

from wqa.data import parse_json
from wqa.data.documents import LABELS, NO_EVIDENCE, Claim, label_of, write_claims
from wqa.io.lines import filled_text, text_of

URL = "https://thunlp.oss-cn-qingdao.aliyuncs.com/KernelGAT/FEVER/KernelGAT.zip"
DOWNLOADS = {"KernelGAT.zip": (URL, "")}
NAMES = {split: f"bert_{split}.json" for split in ("train", "dev", "test")}
#: MSPP's Table 6.
PUBLISHED = {
    "train": {"claims": 145_406, "evidence": 722_473},
    "dev": {"claims": 19_998, "evidence": 98_915},
    "test": {"claims": 19_998, "evidence": 98_839},
}
#: Greatest number of pieces of evidence of a claim.
MOST_EVIDENCE = 5


def read(archive, split, counts):
    """Yield the claims of a split, and count them."""
    for where, line in lines_of(archive, NAMES[split]):
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
    with expecting(where, "id, claim, evidence and label, as in KernelGAT's data"):
        fields = parse_json(line)
        label = fields["label"] if labelled else fields.get("label")
        if label is not None or labelled:
            label_of(label, "label", where)
        evidence = []
        for number, (title, _, sentence, *_) in enumerate(fields["evidence"], 1):
            place = f"{where}, evidence {number}"
            title, sentence = filled_text(title, "title", place), text_of(sentence, "text", place)
            evidence.append(f"{title}. {sentence}")
        key, claim = id_of(fields["id"], where), filled_text(fields["claim"], "claim", where)
    kept = tuple(evidence[:MOST_EVIDENCE]) or (NO_EVIDENCE,)
    return Claim(key, claim, kept, label), len(evidence)


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


def convert(archive, out):
    """Write the splits, and return the counts."""
    stats = {}
    for split in NAMES:
        counts = collections.Counter()
        write_claims(out / f"{split}.jsonl", read(archive, split, counts))
        stats[split] = figures(counts, split)
        if counts["cut"]:
            text = f"claims with more than {MOST_EVIDENCE} pieces of evidence, which keep the first"
            note(f"{split}: {counts['cut']:,} {text}")
    return stats


main = make_main(__doc__, convert, DOWNLOADS)

if __name__ == "__main__":
    sys.exit(main())
