#!/usr/bin/env bash
# Rankers without training on the questions of DC-BERT's small tables: the similarity of a question and a paragraph by MiniLM,
# which its authors trained on a billion pairs of texts, SQuAD's training set among them.
. "$(dirname "$0")/minilm.bash"
table=$RESULTS/untrained.tsv columns=p@1,p@5,p@10,pbt@10,ptb@10,map

prepare squad
documents=$(tested_documents squad) cache=$RUNS/dcbert/untrained.cache  # both compare the same encodings
"$wqa" encode "maxsim:$ENCODER" --documents "$documents" --out "$cache" --precision "$RANK_PRECISION" --ctx "$CTX"
for similarity in maxsim cosine; do
  name=$similarity:$ENCODER figures=$RUNS/dcbert/untrained_$similarity.json
  evaluate "$figures" squad "$name" --cache "$cache" --total "$(total_of squad)" --long-questions truncate \
    --precision "$RANK_PRECISION"
  "$python" recipes/rows.py "$table" squad "$columns,seeds" --row "$name" "$figures"
done
cat "$table"
