#!/usr/bin/env bash
# Tables 2 and 7 (Di Liello et al. 2022): joint models re-rank the pairwise model's first five. As in the paper they are
# trained and measured on such fives alone, where a question without a positive counts 0 and a positive beyond the five does
# not count: table2.tsv has P@1, table7.tsv all metrics. table7_full.tsv counts all positives of a question: the sequence of
# the two ranks all candidates, those beyond the five in the pairwise model's order. P@1 is the same in both. The joint model
# of a seed re-ranks the pairwise model of that seed. The tests (table2_claims_CORPUS.txt) are those of the sequences. Trains
# what is missing.
#
#   CTX=gpu:0-7 recipes/mspp/table2.sh       settings: recipes/mspp/settings.bash
#   SMOKE=1 recipes/mspp/table2.sh
if [ "${SMOKE:-0}" = 1 ]; then SEEDS=0 SYSTEMS="joint_ie mspp_ie"; fi
. "$(dirname "$0")/settings.bash"
table=$RESULTS/table7

for corpus in $CORPORA; do
  rerank_all "$corpus"
  rerank_tables "$table.tsv" "${table}_full.tsv" "$corpus"
  claims "$RESULTS/table2_claims_$corpus.txt" "$(figures_of pairwise "$corpus" "$FIRST_SEED").qrels"
  rows=() systems=()
  row_of pairwise "$corpus"
  for name in $SYSTEMS; do row_of "$name" "$corpus" first_figures_of; done
  write_rows "$RESULTS/table2.tsv" "$corpus" p@1
  cat "$RESULTS/table2_claims_$corpus.txt"
done
cat "$table.tsv" "${table}_full.tsv"
