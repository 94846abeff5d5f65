#!/usr/bin/env bash
# The transferred Cascade Transformer adapted to WikiQA and TREC-QA (Soldaini and Moschitti 2020, Table 2, rows "CT") or GPD
# (Table 3). The transfer is run first where it is missing.
#
#   recipes/cascade/adapt.sh                       WikiQA and TREC-QA, seed 0
#   CORPORA=gpd recipes/cascade/adapt.sh           a collection of one's own under data/gpd/
#   TRANSFER=0 recipes/cascade/adapt.sh            from the plain encoder, to see what the transfer brings
#   SUFFIX=_all CASCADE_OPTIONS="--trained-exits all" recipes/cascade/adapt.sh     another rule of training, under names of its own
. "$(dirname "$0")/../settings.sh"
[ "${TRANSFER:-1}" = 0 ] || recipes/cascade/transfer.sh

for corpus in ${CORPORA:-wikiqa trecqa}; do
  for seed in $SEEDS; do
    start=(--init "$RUNS/cascade/transfer${SUFFIX:-}")
    if [ "${TRANSFER:-1}" = 0 ]; then start=(--encoder "$ENCODER") SUFFIX=_untransferred; fi
    train "cascade/$corpus${SUFFIX:-}_seed$seed" cascade "$corpus" "${start[@]}" --exits "$EXITS" --seed "$seed" \
      $CASCADE_OPTIONS --learning-rate "$CASCADE_LEARNING_RATE" --epochs "$ADAPT_EPOCHS"
  done
done
