#!/usr/bin/env bash
# Table 1 (Di Liello et al. 2022): the pairwise model, joint models from the plain encoder, and joint models that MSPP
# pre-trained, by both heads, on ASNQ, WikiQA and TREC-QA. All candidates of a question are ranked, k at a time.
# $RESULTS/table1.tsv has means and deviations over the seeds, and Student's t-tests over seeds and over questions
# (table1_claims_CORPUS.txt).
#
#   CTX=gpu:0-7 recipes/mspp/table1.sh       settings: recipes/mspp/settings.bash; CORPORA=wikiqa for one of the three
. "$(dirname "$0")/settings.bash"

for corpus in $CORPORA; do
  table_of "$RESULTS/table1.tsv" "$corpus" "$RESULTS/table1_claims_$corpus.txt"
  cat "$RESULTS/table1_claims_$corpus.txt"
done
cat "$RESULTS/table1.tsv"
