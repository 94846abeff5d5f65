#!/usr/bin/env bash
# Table 1 (Zhang et al. 2020): re-rank what TF-IDF retrieves, read the best ten. BERT-base on the concatenation, the same in 8
# bits, its student of two layers, and DC-BERT with a document cache. Trains what is missing; writes $RESULTS/table1.tsv, and
# the times to $RESULTS/speed_table1_CORPUS.txt. The student is `wqa train`'s own distillation in place of DistilBERT's release.
#
#   recipes/dcbert/table1.sh         SQuAD Open and Natural Questions Open; settings: recipes/dcbert/settings.bash
#   CORPORA=nq recipes/dcbert/table1.sh
#   SMOKE=1 recipes/dcbert/table1.sh
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table1.tsv} columns=p@10,speedup,em,em_drop

for corpus in $CORPORA; do
  rankers=(bert student dcbert_1)
  if has_int8; then rankers=(bert int8 student dcbert_1); else echo "note: no int8 here; its row is left out" >&2; fi
  for name in "${rankers[@]}"; do fit "$name" "$corpus"; done
  speed=$RUNS/dcbert/speed_table1_$corpus.json
  timed "$speed" "$corpus" "${rankers[@]}"
  row "$table" BERT-base "$corpus" bert "$columns" "$speed"
  if has_int8; then row "$table" "Quantized BERT" "$corpus" int8 "$columns" "$speed"; fi
  row "$table" DistilBERT "$corpus" student "$columns" "$speed"
  row "$table" DC-BERT "$corpus" dcbert_1 "$columns" "$speed"
done
cat "$table"
