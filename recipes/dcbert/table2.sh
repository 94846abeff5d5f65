#!/usr/bin/env bash
# Table 2 (Zhang et al. 2020): PBT@10, questions for which a ranker's best ten hold a document with an answer that TF-IDF's best
# ten lack, and PTB@10, the reverse.
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table2.tsv}

for corpus in $CORPORA; do
  rows "$table" "$corpus" pbt@10,ptb@10 "" $(possible bert int8 student dcbert_1)
done
cat "$table"
