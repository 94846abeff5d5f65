#!/usr/bin/env bash
# Table 3 (Zhang et al. 2020) on Natural Questions Open: does a Transformer layer interact better than linear layers or an LSTM?
# Speedups are over BERT-base on the concatenation.
if [ "${SMOKE:-0}" != 1 ]; then CORPORA=${CORPORA:-nq}; fi
. "$(dirname "$0")/settings.bash"

for corpus in $CORPORA; do
  speed=$RUNS/dcbert/speed_table3_$corpus.json
  timed "$speed" "$corpus" bert linear lstm dcbert_1
  rows "$RESULTS/table3.tsv" "$corpus" p@10,speedup,em "$speed" linear lstm dcbert_1
done
cat "$RESULTS/table3.tsv"
