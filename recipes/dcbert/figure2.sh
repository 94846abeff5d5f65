#!/usr/bin/env bash
# Figure 2 (Zhang et al. 2020) on Natural Questions Open: (a) P@N over N of DC-BERT and its variants, $RESULTS/figure2a.tsv; (b)
# quality and speed over the number K of interaction layers, $RESULTS/figure2b.tsv.
if [ "${SMOKE:-0}" != 1 ]; then CORPORA=${CORPORA:-nq}; fi
. "$(dirname "$0")/settings.bash"
name=${NAME:-figure2}

columns=${CUTOFFS// /,p@} rankers="dcbert_${INTERACTIONS// / dcbert_}"

for corpus in $CORPORA; do
  rows "$RESULTS/${name}a.tsv" "$corpus" "p@$columns" "" linear lstm dcbert_1
done
title_of() { echo "K = ${1#dcbert_}"; }
for corpus in $CORPORA; do
  speed=$RUNS/dcbert/speed_${name}_$corpus.json
  timed "$speed" "$corpus" bert $rankers
  rows "$RESULTS/${name}b.tsv" "$corpus" p@10,em,speedup "$speed" $rankers
done
cat "$RESULTS/${name}a.tsv" "$RESULTS/${name}b.tsv"
