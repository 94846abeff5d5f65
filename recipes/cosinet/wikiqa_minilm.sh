#!/usr/bin/env bash
# Tables 3 and 4 with the word vectors that a machine without internet can make, and MiniLM in place of BERT-base: trains every
# row with five seeds, Compare-Aggregate with three (results/minilm_wikiqa.tsv), holds the paper's claims to tests over
# questions and seeds (results/minilm_claims.txt).
#
#   DATA=data recipes/cosinet/wikiqa_minilm.sh   four hours on one core, three of them for Compare-Aggregate
if [ "${SMOKE:-0}" != 1 ]; then
  export RUNS=${RUNS:-runs/cosinet_minilm} ENCODER=${ENCODER:-minilm}
  # Rates that recipes/cascade/logs/README.md found on WikiQA's dev.
  export BERT_RATE=${BERT_RATE:-3e-5} BERT_EPOCHS=${BERT_EPOCHS:-4} PRECISION=${PRECISION:-bfloat16}
  export CA_SEEDS=${CA_SEEDS:-${SEEDS:-0 1 2}}
fi
. "$(dirname "$0")/settings.bash"
export BERT_ROW=${BERT_ROW:-MiniLM} TABLE_KIND=distilled
TABLE=$RESULTS/minilm_wikiqa.tsv TABLE3=$RUNS/cosinet/table3.tsv CLAIMS=$RESULTS/minilm_claims.txt recipes/cosinet/table4.sh
keep_logs "$RUNS/cosinet" minilm_
