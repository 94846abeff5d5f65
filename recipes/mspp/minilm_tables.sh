#!/usr/bin/env bash
# Tables 1, 2 and 7 in small: MiniLM is pre-trained with IE_k on fourteen of the sixteen articles of half of SQuAD 2.0's
# development set. Then, on WikiQA, three seeds of the pairwise model; of joint models without MSPP, with the new row of the
# question's token type from N(0, 0.02) and from N(0, 1), and with MSPP; and of two that re-rank the pairwise model's first
# five. Trains what is missing, two hours on two cores. Evaluates on WikiQA's test, on all candidates, beside a random order and
# MiniLM without further training (results/minilm_wikiqa.tsv), and behind the pairwise model on its first five (minilm_rerank.tsv: these alone, as the paper counts; minilm_rerank_full.tsv: all candidates). Tests
# of the paper's claims: minilm_claims.txt, minilm_rerank_claims.txt. What the pre-training reached on the held-out articles:
# minilm_pretraining.txt.
#
#   DATA=data recipes/mspp/minilm_tables.sh
#   SMOKE=1 recipes/mspp/minilm_tables.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/mspp/minilm.bash

for name in pairwise $SYSTEMS; do
  for seed in $SEEDS; do figures "$name" wikiqa "$seed"; done
  row_of "$name" wikiqa
done
random=()
for seed in $SEEDS; do
  random+=("$RUNS/mspp/random_$seed.json")
  evaluate "${random[-1]}" wikiqa "random:$seed" --metrics "$METRICS"
done
row "random order" "${random[@]}"
evaluate "$RUNS/mspp/untrained.json" wikiqa "maxsim:$ENCODER" --metrics "$METRICS"
row "minilm, not trained further" "$RUNS/mspp/untrained.json"
qrels=$(figures_of pairwise wikiqa "$FIRST_SEED").qrels
write_rows "$RESULTS/minilm_wikiqa.tsv" wikiqa
claims "$RESULTS/minilm_claims.txt" "$qrels"

SYSTEMS="joint_ie mspp_ie"
rerank_all wikiqa
rerank_tables "$RESULTS/minilm_rerank.tsv" "$RESULTS/minilm_rerank_full.tsv" wikiqa
claims "$RESULTS/minilm_rerank_claims.txt" "$qrels"
cat "$RESULTS"/minilm_{wikiqa.tsv,claims.txt,rerank.tsv,rerank_full.tsv,rerank_claims.txt}
keep_logs "$RUNS/mspp" minilm_
