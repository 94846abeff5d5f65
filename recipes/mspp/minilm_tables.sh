#!/usr/bin/env bash
# Tables 1, 2 and 7 in small: MiniLM is pre-trained with IE_k on fourteen of the sixteen articles of half of SQuAD 2.0's
# development set. Then, on WikiQA, three seeds of the pairwise model; of joint models without MSPP, with the new row of the
# question's token type from N(0, 0.02) and from N(0, 1), and with MSPP; and of two that re-rank the pairwise model's first
# five. Trains what is missing, two hours on two cores. Evaluates on WikiQA's test, on all candidates, beside a random order and
# MiniLM without further training (results/minilm_wikiqa.tsv), and behind the pairwise model on its first five
# (minilm_rerank.tsv: these alone, as the paper counts; minilm_rerank_full.tsv: all candidates). Tests of the paper's claims:
# minilm_claims.txt, minilm_rerank_claims.txt. What the pre-training reached on the held-out articles: minilm_pretraining.txt.
#
#   DATA=data recipes/mspp/minilm_tables.sh
. "$(dirname "$0")/minilm.bash"

table_of "$RESULTS/minilm_wikiqa.tsv" wikiqa "$RESULTS/minilm_claims.txt"
random=()
for seed in $SEEDS; do
  random+=("$RUNS/mspp/random_$seed.json")
  evaluate "${random[-1]}" wikiqa "random:$seed" --metrics "$METRICS"
done
evaluate "$RUNS/mspp/untrained.json" wikiqa "maxsim:$ENCODER" --metrics "$METRICS"
rows=(--row "random order" "${random[@]}" --row "minilm, not trained further" "$RUNS/mspp/untrained.json")
write_rows "$RESULTS/minilm_wikiqa.tsv" wikiqa

SYSTEMS="joint_ie mspp_ie"
rerank_tables "$RESULTS"/minilm_rerank{,_full}.tsv wikiqa "$RESULTS/minilm_rerank_claims.txt"
cat "$RESULTS"/minilm_{wikiqa.tsv,claims.txt,rerank.tsv,rerank_full.tsv,rerank_claims.txt}
keep_logs "$RUNS/mspp" minilm_
