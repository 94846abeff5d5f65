#!/usr/bin/env bash
# Tables 2 and 3 in small, the trainings: MiniLM (6 layers) in place of RoBERTa-base, recipes/transfer_corpus.sh in place of ASNQ,
# exits 2, 4, 6, monolithic rankers of 2, 4 and 6 layers. One transfer of each ranker, five seeds of each adaptation. TREC-QA
# trains on its manually judged questions and is reported on its clean dev, as its test split is not at hand; so no dev set chooses
# an epoch there.
# The cascade trains all exits in each update and its last exit teaches the others, which recipes/cascade/last_exit.sh found on
# dev to bring its last exit to the monolithic ranker's; `_drawn` is the paper's rule, one exit an update. The trainings that
# tell most come first. Learning rates are those that recipes/cascade/logs/README.md found on WikiQA's dev.
#
#   DATA=data recipes/cascade/minilm_train.sh   five hours on two cores; then minilm_tables.sh
#   SMOKE=1 recipes/cascade/minilm_train.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" != 1 ]; then
  data=${DATA:-data}
  export ENCODER=minilm RUNS=${RUNS:-runs/cascade_transfer} EXITS=2,4,6
  export ASNQ_TRAIN=$RUNS/transfer.jsonl WIKIQA=$data/wikiqa TRECQA=$data/trecqa
  export TRECQA_TRAIN=$data/trecqa/train-clean.jsonl
  export ASNQ_DEV= TRECQA_DEV= TRANSFER_EPOCHS=1 ADAPT_EPOCHS=3 PATIENCE=0 WARMUP=100
  export UPDATE_TOKENS=0  # these corpora are small: an update has one mini-batch
  export LEARNING_RATE=3e-5 PRECISION=${PRECISION:-bfloat16}
  SEEDS=${SEEDS:-0 1 2 3 4} full=6 lower="4 2"
  DATA=$data recipes/transfer_corpus.sh "$ASNQ_TRAIN"
else
  SEEDS="0 1" full=3 lower=1
fi
export CASCADE_OPTIONS="--trained-exits all --distillation 0.5" SEEDS

for corpus in ${CORPORA:-wikiqa trecqa}; do
  export CORPORA=$corpus
  DEPTHS=$full recipes/tanda/adapt.sh
  recipes/cascade/adapt.sh
  DEPTHS=$lower recipes/tanda/adapt.sh
  SUFFIX=_drawn CASCADE_OPTIONS='' CASCADE_LEARNING_RATE=5e-5 recipes/cascade/adapt.sh
  DEPTHS=$full TRANSFER=0 recipes/tanda/adapt.sh
done
