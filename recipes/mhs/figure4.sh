#!/usr/bin/env bash
# Figure 4 (Matsubara et al. 2022): how often each head of the Multiple-Heads Student agrees with each teacher, on test. Trains
# what is missing; writes $RESULTS/figure4_CORPUS/.
. "$(dirname "$0")/settings.bash"
recipes/mhs/grid.sh

for corpus in $CORPORA; do
  rankers=()
  for name in $LARGE; do rankers+=("$(ranker_of "$name" "$corpus")"); done
  "$python" recipes/mhs/agreement.py "$(SEEDS=$FIRST_SEED student_runs mhs "$corpus")" "${rankers[@]}" --data "$(test_of "$corpus")" \
    --filter "$(filter_of "$corpus")" --ctx "$device" --out "$RESULTS/figure4_$corpus"
done
