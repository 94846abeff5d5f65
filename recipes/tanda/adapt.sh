#!/usr/bin/env bash
# TANDA's second step (Soldaini and Moschitti 2020, Tables 2 and 3): monolithic rankers, transferred first where they are not yet.
#   CORPORA=gpd recipes/tanda/adapt.sh             a collection of one's own under data/gpd/
#   TRANSFER=0 recipes/tanda/adapt.sh              from the plain encoder, to see what the transfer brings
. "$(dirname "$0")/../settings.sh"
[ "${TRANSFER:-1}" = 0 ] || recipes/tanda/transfer.sh

for corpus in ${CORPORA:-wikiqa trecqa}; do
  for depth in $DEPTHS; do
    for seed in $SEEDS; do
      name=tanda/${corpus}_$depth start=(--init "$RUNS/tanda/transfer_$depth")
      if [ "${TRANSFER:-1}" = 0 ]; then name=${name}_untransferred start=(--encoder "$ENCODER"); fi
      train "${name}_seed$seed" pairwise "$corpus" "${start[@]}" --exits "$depth" --seed "$seed" \
        --learning-rate "$ADAPT_RATE" --epochs "$(epochs_of "$depth" "$ADAPT_EPOCHS")"
    done
  done
done
