#!/usr/bin/env bash
# Table 1 (Di Liello et al. 2022): the pairwise model, joint models from the plain encoder, and joint models that MSPP
# pre-trained, by both heads, on ASNQ, WikiQA and TREC-QA. All candidates of a question are ranked, k at a time. Trains what
# is missing; writes $RESULTS/table1.tsv with means and deviations over the seeds, and Student's t-tests over seeds and over
# questions (table1_claims_CORPUS.txt).
#
#   CTX=gpu:0-7 recipes/mspp/table1.sh       settings: recipes/mspp/settings.bash; CORPORA=wikiqa for one of the three
#   SMOKE=1 recipes/mspp/table1.sh
. "$(dirname "$0")/settings.bash"
table=$RESULTS/table1.tsv

for corpus in $CORPORA; do
  rows=() systems=()
  for name in pairwise $SYSTEMS; do
    for seed in $SEEDS; do figures "$name" "$corpus" "$seed"; done
    row_of "$name" "$corpus"
  done
  write_rows "$table" "$corpus"
  claims "$RESULTS/table1_claims_$corpus.txt" "$(figures_of pairwise "$corpus" "$FIRST_SEED").qrels"
  cat "$RESULTS/table1_claims_$corpus.txt"
done
cat "$table"
