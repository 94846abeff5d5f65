#!/usr/bin/env bash
# Table 1 (Zhang et al. 2020): re-rank what TF-IDF retrieves, read the best ten. BERT-base on the concatenation, the same in 8
# bits, its student of two layers, and DC-BERT with a document cache. The student is `wqa train`'s own distillation in place of
# DistilBERT's release.
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table1.tsv} rankers=$(possible bert int8 student dcbert_1)

for corpus in $CORPORA; do
  speed=$RUNS/dcbert/speed_table1_$corpus.json
  timed "$speed" "$corpus" $rankers
  rows "$table" "$corpus" p@10,speedup,em,em_drop "$speed" $rankers
done
cat "$table"
