#!/usr/bin/env bash
# Tables 3 and 4 with word vectors that are distilled from MiniLM, and MiniLM in place of BERT-base: results/minilm_wikiqa.tsv and
# minilm_claims.txt. Compare-Aggregate has three seeds.
#   DATA=data recipes/cosinet/wikiqa_minilm.sh   four hours on one core, three of them for Compare-Aggregate
if [ "${SMOKE:-0}" != 1 ]; then
  RUNS=${RUNS:-runs/cosinet_minilm} ENCODER=${ENCODER:-minilm} CA_SEEDS=${CA_SEEDS:-${SEEDS:-0 1 2}}
  # Rates that recipes/cascade/logs/README.md found on WikiQA's dev.
  BERT_RATE=${BERT_RATE:-3e-5} BERT_EPOCHS=${BERT_EPOCHS:-4} PRECISION=${PRECISION:-bfloat16}
fi
BERT_ROW=MiniLM TABLE_KIND=distilled
. "$(dirname "$0")/settings.bash"
rows_and_claims "$RESULTS/minilm_wikiqa.tsv" wikiqa map,mrr,p@1 "$RESULTS/minilm_claims.txt"
keep_logs "$RUNS/cosinet" minilm_
