#!/usr/bin/env bash
# Tables 1 and 2 (Zhang et al. 2020): re-rank what TF-IDF retrieves, read the best ten. BERT-base on the concatenation, the same in
# 8 bits, its student of two layers, distilled here in place of DistilBERT's release, and DC-BERT with a document cache. PBT@10
# counts the questions where a ranker's best ten hold an answer and TF-IDF's best ten do not, PTB@10 the reverse.
. "$(dirname "$0")/settings.bash"
rankers=$(possible bert int8 student dcbert_1)

for corpus in $CORPORA; do
  speed=$RUNS/dcbert/speed_table1_$corpus.json
  timed "$speed" "$corpus" $rankers
  rows "$RESULTS/table1.tsv" "$corpus" p@10,speedup,em,em_drop "$speed" $rankers
  rows "$RESULTS/table2.tsv" "$corpus" pbt@10,ptb@10 "" $rankers
done
cat "$RESULTS"/table{1,2}.tsv
