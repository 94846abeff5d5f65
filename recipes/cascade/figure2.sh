#!/usr/bin/env bash
# Figure 2 (Soldaini and Moschitti 2020, section 5.5): all 6^4 drop ratios of the cascade on GPD's development questions,
# against their cost; and, on the test questions, the best that costs no more than drop ratio 0.3 everywhere (BUDGET).
#   CORPUS=wikiqa BUDGET=0.7 recipes/cascade/figure2.sh
. "$(dirname "$0")/../settings.sh"
needs plots matplotlib
corpus=${CORPUS:-gpd} name=${NAME:-figure2} run=$(cascade_run "${CORPUS:-gpd}" "${SEEDS%% *}")
[ "${TRAIN:-1}" = 0 ] || CORPORA=$corpus recipes/cascade/adapt.sh

figures() {
  "$wqa" tune "$run" --data "$(dev_of "$corpus")" --filter "$(filter_of "$corpus")" --max-cost "${BUDGET:-0.63}" \
    --out "$RUNS/$name" --ctx "$device" | sed "s|$RUNS/||g"
  "$wqa" evaluate "$run" --data "$(test_of "$corpus")" --filter "$(filter_of "$corpus")" --ctx "$device" \
    --drop-ratio 0 --drop-ratio 0.3 --drop-ratio tuned
}
keep_output "$RESULTS/$name.txt" figures
cp "$RUNS/$name/pareto.tsv" "$RESULTS/$name.pareto.txt"
"$python" recipes/pictures.py tuned "$RUNS/$name" "$RESULTS/$name.png"
