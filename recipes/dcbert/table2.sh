#!/usr/bin/env bash
# Table 2 (Zhang et al. 2020): PBT@10, questions for which a ranker's best ten hold a document with an answer that TF-IDF's best
# ten lack, and PTB@10, the reverse. Trains what is missing; writes $RESULTS/table2.tsv.
#
#   recipes/dcbert/table2.sh         settings: recipes/dcbert/settings.bash
#   SMOKE=1 recipes/dcbert/table2.sh
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table2.tsv} columns=pbt@10,ptb@10

for corpus in $CORPORA; do
  row "$table" BERT-base "$corpus" bert "$columns"
  if has_int8; then row "$table" "Quantized BERT" "$corpus" int8 "$columns"; fi
  row "$table" DistilBERT "$corpus" student "$columns"
  row "$table" DC-BERT "$corpus" dcbert_1 "$columns"
done
cat "$table"
