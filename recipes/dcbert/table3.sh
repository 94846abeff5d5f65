#!/usr/bin/env bash
# Table 3 (Zhang et al. 2020) on Natural Questions Open: does a Transformer layer interact better than linear layers or an LSTM?
# Speedups are over BERT-base on the concatenation. Trains what is missing; writes $RESULTS/table3.tsv.
#
#   recipes/dcbert/table3.sh         settings: recipes/dcbert/settings.bash
#   SMOKE=1 recipes/dcbert/table3.sh
if [ "${SMOKE:-0}" != 1 ]; then CORPORA=${CORPORA:-nq}; fi
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table3.tsv} columns=p@10,speedup,em

for corpus in $CORPORA; do
  for name in bert linear lstm dcbert_1; do fit "$name" "$corpus"; done
  speed=$RUNS/dcbert/speed_table3_$corpus.json
  timed "$speed" "$corpus" bert linear lstm dcbert_1
  row "$table" DC-BERT-Linear "$corpus" linear "$columns" "$speed"
  row "$table" DC-BERT-LSTM "$corpus" lstm "$columns" "$speed"
  row "$table" DC-BERT "$corpus" dcbert_1 "$columns" "$speed"
done
cat "$table"
