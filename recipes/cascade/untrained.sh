#!/usr/bin/env bash
# Rankers without training, on the test questions of both corpora: the similarity of tokens and of means by MiniLM and
# all-mpnet-base-v2 (python data_scripts/mpnet.py), BM25, and word overlap. The files of TREC-QA list correct candidates first, so
# that the original order counts on WikiQA alone.
if [ "${SMOKE:-0}" != 1 ]; then
  export RUNS=${RUNS:-runs/cascade_minilm} CORPORA=${CORPORA:-wikiqa trecqa} ENCODER="minilm ${BASE:-encoders/mpnet}"
fi
. "$(dirname "$0")/../settings.sh"
table=$RESULTS/untrained.tsv

mkdir -p "$RUNS/untrained"
for corpus in $CORPORA; do
  names=()
  for encoder in $ENCODER; do names+=("maxsim:$encoder" "cosine:$encoder"); done
  names+=(bm25)
  if [ "$corpus" != trecqa ]; then names+=(wo+rr rr); fi
  for name in "${names[@]}"; do
    row=$name
    if [[ $name == *:* ]]; then row=${name%%:*}:${name##*[:/]}; fi
    figures=$RUNS/untrained/${row/:/_}_$corpus.json
    evaluate "$figures" "$corpus" "$name" --precision "$PRECISION"
    collect "$table" "$row" 0 "$corpus" "$figures"
  done
done
cat "$table"
