#!/usr/bin/env bash
# Tables 2 and 3 with encoders that can be had, the trainings: MiniLM (6 layers of 384, exits 2, 4, 6), or with SIZE=base
# all-mpnet-base-v2 (12 layers of 768, the paper's exits), in place of RoBERTa-base; recipes/transfer_corpus.sh in place of
# ASNQ. One transfer of each ranker, five or three seeds of each adaptation. TREC-QA trains on its manually judged questions;
# its clean dev chooses the epoch and its clean test is reported.
# The cascade trains all exits in each update and its last exit teaches the others, which on dev brought its last exit to the
# monolithic ranker's; `_drawn` is the paper's rule, one exit an update. The trainings that tell most come first. Learning rates
# of MiniLM are those that recipes/cascade/logs/README.md found on WikiQA's dev; those of the base size were not searched yet.
#
#   DATA=data recipes/cascade/minilm_train.sh   five hours on two cores; then minilm_tables.sh
#   DATA=data recipes/cascade/base_train.sh     the base size: days without AMX; then base_tables.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" != 1 ]; then
  export TRECQA_TRAIN=${DATA:-data}/trecqa/train-clean.jsonl TRECQA_DEV=${DATA:-data}/trecqa/dev-clean.jsonl
  export ASNQ_DEV= TRANSFER_EPOCHS=1 ADAPT_EPOCHS=3 SHALLOW_TIMES=1 PATIENCE=0 WARMUP=100
  export UPDATE_TOKENS=${UPDATE_TOKENS:-0}  # these corpora are small: an update has one mini-batch
  export PRECISION=${PRECISION:-bfloat16}
  if [ "${SIZE:-minilm}" = base ]; then
    export ENCODER=${ENCODER:-encoders/mpnet} RUNS=${RUNS:-runs/cascade_base} EXITS=4,6,8,10,12 LEARNING_RATE=${LEARNING_RATE:-2e-5}
    SEEDS=${SEEDS:-0 1 2} full=12 lower=6 others="4 8 10"
  else
    export ENCODER=minilm RUNS=${RUNS:-runs/cascade_transfer} EXITS=2,4,6 LEARNING_RATE=3e-5
    SEEDS=${SEEDS:-0 1 2 3 4} full=6 lower=4 others=2
  fi
  export ASNQ_TRAIN=$RUNS/transfer.jsonl
  recipes/transfer_corpus.sh "$ASNQ_TRAIN"
else
  SEEDS="0 1" full=3 lower=1 others=
fi
export CASCADE_OPTIONS="--trained-exits all --distillation 0.5" SEEDS

for corpus in ${CORPORA:-wikiqa trecqa}; do
  export CORPORA=$corpus
  DEPTHS=$full recipes/tanda/adapt.sh
  recipes/cascade/adapt.sh
  SUFFIX=_drawn CASCADE_OPTIONS='' CASCADE_LEARNING_RATE=${DRAWN_LEARNING_RATE:-5e-5} recipes/cascade/adapt.sh
  DEPTHS=$lower recipes/tanda/adapt.sh
  DEPTHS=$full TRANSFER=0 recipes/tanda/adapt.sh
  DEPTHS=$others recipes/tanda/adapt.sh
done
