#!/usr/bin/env bash
# Tables 2 and 3 with encoders that can be had, the trainings: MiniLM, or with SIZE=base all-mpnet-base-v2 (data_scripts/mpnet.py),
# in place of RoBERTa-base; recipes/transfer_corpus.sh in place of ASNQ. One transfer of each ranker, three seeds of each
# adaptation, rates as recipes/cascade/logs/README.md found them on dev. TREC-QA has its manually judged questions and clean splits.
# The cascade trains all exits in each update and its last exit teaches the others, as dev chose; `_drawn` is the paper's rule, one
# exit an update. `_mean_DEPTH` is a monolithic ranker of so many layers, whose head reads the mean over the tokens, as an exit's.
#   DATA=data recipes/cascade/minilm_train.sh              WikiQA: four hours of a core; base_train.sh: days without AMX
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/cascade/minilm.bash
if [ "${SMOKE:-0}" != 1 ]; then
  export TRECQA_TRAIN=${DATA:-data}/trecqa/train-clean.jsonl TRECQA_DEV=${DATA:-data}/trecqa/dev-clean.jsonl
  export ASNQ_TRAIN=$RUNS/transfer.jsonl ASNQ_DEV= SHALLOW_TIMES=1 PATIENCE=0
  export TRANSFER_EPOCHS=${TRANSFER_EPOCHS:-1} ADAPT_EPOCHS=${ADAPT_EPOCHS:-3} WARMUP=${WARMUP:-100}
  export UPDATE_TOKENS=${UPDATE_TOKENS:-0}  # these corpora are small: an update has one mini-batch
  export PRECISION=${PRECISION:-bfloat16}
  [ "${TRANSFER:-1}" = 0 ] || recipes/transfer_corpus.sh "$ASNQ_TRAIN"
fi
export CASCADE_OPTIONS="--trained-exits all --distillation 0.5"
transfers=${TRANSFER:-1 0}  # TRANSFER=0: without a transfer alone

for corpus in ${CORPORA:-wikiqa trecqa}; do
  export CORPORA=$corpus
  for transfer in $transfers; do
    export TRANSFER=$transfer
    DEPTHS=$full recipes/tanda/adapt.sh
    recipes/cascade/adapt.sh
    SUFFIX=_drawn CASCADE_OPTIONS='' CASCADE_LEARNING_RATE=${DRAWN_LEARNING_RATE:-5e-5} recipes/cascade/adapt.sh
  done
  for depth in $full $lower; do
    SUFFIX=_mean_$depth EXITS=$depth CASCADE_OPTIONS='' TRANSFER=0 recipes/cascade/adapt.sh
  done
  [ "$transfers" = 0 ] || DEPTHS="$lower $others" TRANSFER=1 recipes/tanda/adapt.sh
done
