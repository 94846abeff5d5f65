#!/usr/bin/env bash
# Table 4 (Matsubara et al. 2022), which the paper gives for IAS2, on WikiQA: how many layers a head should have. b + h is the
# encoder's depth.
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table4.tsv}
recipes/mhs/grid.sh

for corpus in $CORPORA; do
  for layers in $CONFIGURATIONS; do
    name=mhs_heads_of_$layers
    if [ "$layers" = 1 ]; then name=mhs; else student "$name" "$STUDENT" "$corpus" mhs $(mhs_options "$layers" "$corpus" $LARGE); fi
    row "$table" "MHS B$((DEPTH - layers))_${HEADS}H$layers" "$corpus" $(student_runs "$name" "$corpus")
  done
done
cat "$table"
