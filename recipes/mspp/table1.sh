#!/usr/bin/env bash
# Table 1 (Di Liello et al. 2022): the pairwise model, joint models from the plain encoder, and joint models that MSPP
# pre-trained, by both heads, on ASNQ, WikiQA and TREC-QA. All candidates of a question are ranked, k at a time. Tests of the claims
# go to table1_claims_CORPUS.txt. The pre-training (sections 3.4 and 4.2, appendix B.1) comes first, of MSPP and masked tokens on
# data/pretraining. Its examples are in memory, some 400 bytes each.
#   mkdir -p data/pretraining                  # archives: data_scripts/paragraphs.py --help
#   for corpus in wikipedia bookcorpus openwebtext ccnews; do
#     python data_scripts/paragraphs.py $corpus --archive ARCHIVE --out data/$corpus
#     ln -s "$PWD/data/$corpus/train.jsonl" "data/pretraining/$corpus.jsonl"
#   done
. "$(dirname "$0")/settings.bash"

for corpus in $CORPORA; do
  table_of "$RESULTS/table1.tsv" "$corpus" "$RESULTS/table1_claims_$corpus.txt"
  cat "$RESULTS/table1_claims_$corpus.txt"
done
cat "$RESULTS/table1.tsv"
