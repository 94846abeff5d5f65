#!/usr/bin/env bash
# Tables 1 and 2 (Zhang et al. 2020): re-rank what TF-IDF retrieves, read the best ten. BERT-base on the concatenation, the same in
# 8 bits, its student of two layers, and DC-BERT with a document cache. The student is `wqa train`'s own distillation in place of
# DistilBERT's release. Table 2 has PBT@10, questions for which a ranker's best ten hold a document with an answer that TF-IDF's
# best ten lack, and PTB@10, the reverse.
. "$(dirname "$0")/settings.bash"
rankers=$(possible bert int8 student dcbert_1)

for corpus in $CORPORA; do
  speed=$RUNS/dcbert/speed_table1_$corpus.json
  timed "$speed" "$corpus" $rankers
  rows "$RESULTS/table1.tsv" "$corpus" p@10,speedup,em,em_drop "$speed" $rankers
  rows "$RESULTS/table2.tsv" "$corpus" pbt@10,ptb@10 "" $rankers
done
cat "$RESULTS"/table{1,2}.tsv
