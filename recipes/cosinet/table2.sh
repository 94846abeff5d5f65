#!/usr/bin/env bash
# Table 2 (Bonadiman and Moschitti 2020): how large the corpora's test sets are, and how far word overlap and the original rank
# lead without training. The random row is the mean of five draws: on WikiQA's 243 questions two differ by up to four points.
if [ "${SMOKE:-0}" != 1 ]; then CORPORA=${CORPORA:-wikiqa squad nqla}; fi
. "$(dirname "$0")/settings.bash"
table=$RESULTS/table2.tsv

for corpus in $CORPORA; do
  random=() others=()
  for name in random:{0,1,2,3,4} wo rr wo+rr; do
    json=$(figures_of "$name" "$corpus")
    baseline "$name" "$corpus"
    case $name in random:*) random+=("$json") ;; *) others+=("${name^^}=$json") ;; esac
  done
  "$python" recipes/cosinet/table2.py "$table" "$corpus" "$(test_of "$corpus")" --random "${random[@]}" --baselines "${others[@]}"
done
cat "$table"
