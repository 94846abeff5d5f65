#!/usr/bin/env bash
# Tables 1, 2 and 7 in small: MiniLM is pre-trained with IE_k on fourteen of the sixteen articles of half of SQuAD 2.0's
# development set. Then, on WikiQA, three seeds of the pairwise model and of joint models with and without MSPP, on all candidates
# beside a random order and MiniLM without further training (results/minilm_wikiqa.tsv), and behind the pairwise model on its first
# five (minilm_rerank.tsv: these alone, as the paper counts; minilm_rerank_full.tsv: all candidates).
#   DATA=data recipes/mspp/minilm_tables.sh    two hours on two cores
. "$(dirname "$0")/minilm.bash"

table_of "$RESULTS/minilm_wikiqa.tsv" wikiqa "$RESULTS/minilm_claims.txt"
random=()
for seed in $SEEDS; do
  random+=("$RUNS/mspp/random_$seed.json")
  evaluate "${random[-1]}" wikiqa "random:$seed"
done
evaluate "$RUNS/mspp/untrained.json" wikiqa "maxsim:$ENCODER"
rows=(--row "random order" "${random[@]}" --row "minilm, not trained further" "$RUNS/mspp/untrained.json")
write_rows "$RESULTS/minilm_wikiqa.tsv" wikiqa

SYSTEMS="joint_ie mspp_ie"
rerank_tables "$RESULTS"/minilm_rerank{,_full}.tsv wikiqa "$RESULTS/minilm_rerank_claims.txt"
cat "$RESULTS"/minilm_{wikiqa.tsv,claims.txt,rerank.tsv,rerank_full.tsv,rerank_claims.txt}
keep_logs "$RUNS/mspp" minilm_
