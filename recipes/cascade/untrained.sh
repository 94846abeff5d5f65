#!/usr/bin/env bash
# Rankers without training, on the questions of the small tables: the similarity of tokens and of means by MiniLM, which its authors
# trained on a billion pairs of texts, BM25, and word overlap. The files of TREC-QA list correct candidates first, so that the
# original order counts on WikiQA alone. Writes $RESULTS/untrained.tsv, and to $LOGS/untrained_dev.txt the figures on WikiQA's dev
# that MaxSim's constants are taken from.
#
#   DATA=data recipes/cascade/untrained.sh   a minute and a half on two cores
#   SMOKE=1 recipes/cascade/untrained.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" != 1 ]; then
  data=${DATA:-data}
  export ENCODER=${ENCODER:-minilm} RUNS=${RUNS:-runs/cascade_minilm} CORPORA=${CORPORA:-wikiqa trecqa}
  export WIKIQA=$data/wikiqa TRECQA=$data/trecqa TRECQA_TEST=$data/trecqa/dev-clean.jsonl
fi
. recipes/settings.sh
table=$RESULTS/untrained.tsv

for corpus in $CORPORA; do
  names=("maxsim:$ENCODER" "cosine:$ENCODER" bm25)
  if [ "$corpus" != trecqa ]; then names+=(wo+rr rr); fi
  for name in "${names[@]}"; do
    figures=$RUNS/untrained/${name%%:*}_$corpus.json
    mkdir -p "$RUNS/untrained"
    evaluate "$figures" "$corpus" "$name" --precision "$PRECISION"
    "$python" recipes/collect.py "$table" "$name" 0 "$corpus" "$figures"
  done
done
cat "$table"
mkdir -p "$LOGS"
"$python" recipes/cascade/untrained_dev.py "$(dev_of wikiqa)" "$ENCODER" | tee "$LOGS/untrained_dev.txt"
