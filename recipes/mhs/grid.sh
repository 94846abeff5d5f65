#!/usr/bin/env bash
# The teachers (Matsubara et al. 2022, section 3.1; rows 1 to 3 of Table 2): RoBERTa-large, ELECTRA-large and ALBERT-xxlarge,
# fine-tuned by TANDA, and their logits of the training pairs. Then alpha and tau of the Multiple-Heads Student, B11_3H1 from
# three teachers, chosen on dev from the grid of section 3.2, and how often each of its heads agrees with each teacher on test
# (Figure 4: $RESULTS/figure4_CORPUS/). With other settings in the same folder it is refused.
#   CORPORA="asnq wikiqa" ALPHAS="0.1 0.5" TAUS=3 recipes/mhs/grid.sh
. "$(dirname "$0")/settings.bash"

for corpus in $CORPORA; do
  rankers=()
  for name in $LARGE; do
    fine_tune "$name" "$corpus"
    rankers+=("$(ranker_of "$name" "$corpus")")
    score "$(ranker_of "$name" "$corpus")" "$corpus"
  done
  fine_tune "$STUDENT" asnq
  student mhs "$STUDENT" "$corpus" mhs $(mhs_options 1 "$corpus" $LARGE)
  cat "$RUNS/mhs/mhs_$corpus/grid.tsv"
  run=$(SEEDS=$FIRST_SEED student_runs mhs "$corpus")
  [ "$RESULTS/figure4_$corpus/agreement.tsv" -nt "$run/model.params" ] || "$python" recipes/mhs/agreement.py "$run" "${rankers[@]}" \
    --data "$(test_of "$corpus")" --filter "$(filter_of "$corpus")" --ctx "$device" --out "$RESULTS/figure4_$corpus"
done
