#!/usr/bin/env bash
# Where exits should stand, which the paper leaves as future work (Soldaini and Moschitti 2020, section 6): a cascade with the
# exits ALL_EXITS, then the PLACES of them, and the drop ratio, that rank best on dev within BUDGET; figures on the test
# questions. The transfer is run first where it is missing.
#
#   recipes/cascade/place_exits.sh
#   CORPUS=wikiqa ALL_EXITS=1,2,3,4,5,6 PLACES=3 BUDGET=0.7 recipes/cascade/place_exits.sh
#   SMOKE=1 recipes/cascade/place_exits.sh
. "$(dirname "$0")/../settings.sh"
corpus=${CORPUS:-wikiqa} name=${NAME:-place_exits}
if [ "${SMOKE:-0}" = 1 ]; then ALL_EXITS=1,2,3 PLACES=2; fi
[ "${TRAIN:-1}" = 0 ] || recipes/cascade/transfer.sh

train "cascade/${corpus}_every_layer" cascade "$corpus" --init "$RUNS/cascade/transfer" --seed 0 \
  --exits "${ALL_EXITS:-2,3,4,5,6,7,8,9,10,11,12}" $CASCADE_OPTIONS --learning-rate "$CASCADE_LEARNING_RATE" --epochs "$ADAPT_EPOCHS"
run=$RUNS/cascade/${corpus}_every_layer
"$wqa" tune "$run" --data "$(dev_of "$corpus")" --filter "$(filter_of "$corpus")" --place-exits "${PLACES:-5}" \
  --grid 0.1,0.2,0.3,0.4,0.5,0.6,0.7 --max-cost "${BUDGET:-0.63}" --no-picture --out "$RUNS/$name" --ctx "$device" |
  sed "s|$RUNS/||g" | tee "$RESULTS/$name.txt"
"$wqa" evaluate "$run" --data "$(test_of "$corpus")" --filter "$(filter_of "$corpus")" --ctx "$device" --per-exit \
  --drop-ratio 0 --drop-ratio tuned | tee -a "$RESULTS/$name.txt"
