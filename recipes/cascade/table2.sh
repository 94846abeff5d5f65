#!/usr/bin/env bash
# Table 2 (Soldaini and Moschitti 2020): monolithic rankers and every exit of the cascade on WikiQA and TREC-QA, nothing
# dropped.
#
#   recipes/cascade/table2.sh        RoBERTa-base; settings: recipes/settings.sh
. "$(dirname "$0")/../settings.sh"
table=${TABLE:-$RESULTS/table2.tsv}
if [ "${TRAIN:-1}" = 1 ]; then
  recipes/tanda/adapt.sh
  recipes/cascade/adapt.sh
fi

for corpus in ${CORPORA:-wikiqa trecqa}; do
  for depth in $DEPTHS; do
    mono_row "$table" "$corpus" "$depth"
  done
  cascade_rows "$table" "$corpus"
done
cat "$table"
