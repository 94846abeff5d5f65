#!/usr/bin/env bash
# The transferred Cascade Transformer adapted to WikiQA and TREC-QA (Soldaini and Moschitti 2020, Table 2, rows "CT") or GPD
# (Table 3). The transfer is run first where it is missing. CORPORA and TRANSFER are those of recipes/tanda/adapt.sh.
#   SUFFIX=_all CASCADE_OPTIONS="--trained-exits all" recipes/cascade/adapt.sh     another rule of training, under names of its own
. "$(dirname "$0")/../settings.sh"
[ "${TRANSFER:-1}" = 0 ] || recipes/cascade/transfer.sh

for corpus in ${CORPORA:-wikiqa trecqa}; do
  for seed in $SEEDS; do
    suffix=${SUFFIX:-} start=(--init "$RUNS/cascade/transfer${SUFFIX:-}")
    if [ "${TRANSFER:-1}" = 0 ]; then suffix=${suffix}_untransferred start=(--encoder "$ENCODER"); fi
    train "cascade/$corpus${suffix}_seed$seed" cascade "$corpus" "${start[@]}" --exits "$EXITS" --seed "$seed" \
      $CASCADE_OPTIONS --learning-rate "$CASCADE_LEARNING_RATE" --epochs "$ADAPT_EPOCHS"
  done
done
