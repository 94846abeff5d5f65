#!/usr/bin/env bash
# Tables 2 and 3 in small, the trainings: MiniLM (6 layers) in place of RoBERTa-base, half of SQuAD 2.0's development set in
# place of ASNQ, exits 2, 4, 6, monolithic rankers of 2, 4 and 6 layers. TREC-QA trains on its manually judged questions and
# is reported on its clean dev, as its test split is not at hand; so no dev set chooses an epoch there.
# The trainings that tell most come first. Learning rates are those that recipes/cascade/logs/README.md found on WikiQA's dev.
#
#   DATA=data recipes/cascade/minilm_train.sh   two to three hours on two cores; then minilm_tables.sh
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
  export LEARNING_RATE=3e-5 CASCADE_LEARNING_RATE=5e-5 PRECISION=${PRECISION:-bfloat16}
  export ALL_EXITS=1,2,3,4,5,6 PLACES=3 BUDGET=0.8 NAME=minilm_place_exits
  full=6 lower="4 2" more="1 2"
else
  full=3 lower=1 more=0
fi

CORPORA=wikiqa SEEDS=0 DEPTHS=$full recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=0 recipes/cascade/adapt.sh
CORPORA=wikiqa SEEDS=0 DEPTHS=$lower recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=0 DEPTHS=$full TRANSFER=0 recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=0 TRANSFER=0 recipes/cascade/adapt.sh
CORPORA=trecqa SEEDS=0 DEPTHS=$full recipes/tanda/adapt.sh
CORPORA=trecqa SEEDS=0 recipes/cascade/adapt.sh
CORPORA=trecqa SEEDS=0 DEPTHS=$lower recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=$more recipes/cascade/adapt.sh
CORPORA=wikiqa SEEDS=$more DEPTHS=$full recipes/tanda/adapt.sh
CORPORA=wikiqa SEEDS=$more TRANSFER=0 recipes/cascade/adapt.sh
CORPUS=wikiqa recipes/cascade/place_exits.sh
# An exit is drawn for one update in three: as many updates an exit as the monolithic ranker had.
CORPORA=trecqa SEEDS=0 SUFFIX=_12_epochs ADAPT_EPOCHS=12 recipes/cascade/adapt.sh
CORPORA=wikiqa SEEDS=$more DEPTHS=$full TRANSFER=0 recipes/tanda/adapt.sh
