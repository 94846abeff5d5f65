#!/usr/bin/env bash
# Tables 2 and 3 in small, the trainings: MiniLM (6 layers) in place of RoBERTa-base, half of SQuAD 2.0's development set in
# place of ASNQ, exits 2, 4, 6, monolithic rankers of 2, 4 and 6 layers; each seed has a transfer of its own. TREC-QA trains on
# its manually judged questions and is reported on its clean dev, as its test split is not at hand; so no dev set chooses an
# epoch there.
# The cascade trains all exits in each update and its last exit teaches the others, which recipes/cascade/last_exit.sh found on
# dev to bring its last exit to the monolithic ranker's; `_drawn` is the paper's rule, one exit an update. The trainings that
# tell most come first. Learning rates are those that recipes/cascade/logs/README.md found on WikiQA's dev.
#
#   DATA=data recipes/cascade/minilm_train.sh   three hours on two cores; then minilm_tables.sh
#   SMOKE=1 recipes/cascade/minilm_train.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" != 1 ]; then
  data=${DATA:-data}
  export ENCODER=minilm RUNS=${RUNS:-runs/cascade_minilm} EXITS=2,4,6
  export ASNQ_TRAIN=$data/squad/test.jsonl WIKIQA=$data/wikiqa TRECQA=$data/trecqa
  export TRECQA_TRAIN=$data/trecqa/train-clean.jsonl
  export ASNQ_DEV= TRECQA_DEV= TRANSFER_EPOCHS=2 ADAPT_EPOCHS=4 PATIENCE=0 WARMUP=100
  export UPDATE_TOKENS=0  # these corpora are small: an update has one mini-batch
  export LEARNING_RATE=3e-5 PRECISION=${PRECISION:-bfloat16}
  export ALL_EXITS=1,2,3,4,5,6 PLACES=3 BUDGET=0.8 NAME=minilm_place_exits
  full=6 lower="4 2" all="0 1 2"
else
  full=3 lower=1 all="0 1"
fi
export SEEDED_TRANSFERS=1 CORPORA="wikiqa trecqa"
export CASCADE_OPTIONS="--trained-exits all --distillation 0.5"

for seed in $all; do
  SEEDS=$seed DEPTHS=$full recipes/tanda/adapt.sh
  SEEDS=$seed recipes/cascade/adapt.sh
done
SEEDS=0 DEPTHS=$lower recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=0 DEPTHS=$full TRANSFER=0 recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=0 TRANSFER=0 recipes/cascade/adapt.sh
CORPUS=wikiqa recipes/cascade/place_exits.sh
for seed in $all; do
  SEEDS=$seed SUFFIX=_drawn CASCADE_OPTIONS='' CASCADE_LEARNING_RATE=5e-5 recipes/cascade/adapt.sh
done
