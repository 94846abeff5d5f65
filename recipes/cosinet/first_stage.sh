#!/usr/bin/env bash
# A cheap ranker before a cascade (Bonadiman and Moschitti 2020, section 5.4): how many candidates, or which share of them, it must
# hand on so that no MAP is lost on WikiQA's dev, and what that costs on test, once: MAP, multiply-adds, and wall time in turn with
# the cascade alone. LOSSES are the losses that are allowed, none and a point. The first stages are Cosinet with a BiRNN and the rule
# WO+RR. Writes $RESULTS/first_stage.tsv and speed_first_stage.txt, and every configuration on dev to first_stage_dev/.
#
#   recipes/cosinet/first_stage.sh   settings: recipes/cosinet/settings.bash
#   SECOND=runs/cascade FIRSTS="cosinet_list_birnn cosinet" DROPS=0 recipes/cosinet/first_stage.sh     before a cascade of your own
#   SMOKE=1 recipes/cosinet/first_stage.sh
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/first_stage.tsv} name=$(basename "${TABLE:-first_stage}" .tsv)
FIRSTS=${FIRSTS:-cosinet_list_birnn wo+rr} DROPS=${DROPS:-0 0.3} LOSSES=${LOSSES:-0 0.01}
KEEPS=${KEEPS:-1,2,3,4,5,6,8,10,12,15,20,25} GRID=${GRID:-0.05,0.1,0.15,0.2,0.25,0.3,0.4,0.5,0.6,0.7,0.8}
precision=${RANK_PRECISION:-float32}  # of the cascade; Cosinet's is float32
folder=$RUNS/cosinet corpus=wikiqa
if [ -z "${SECOND:-}" ]; then fit cascade "$corpus"; fi
second=$(realpath "${SECOND:-$(run_of cascade "$corpus")}")
if [ "$precision" = int8 ] && [ ! "$second/int8.safetensors" -nt "$second/model.params" ]; then
  "$wqa" quantize "$second" --data "$(dev_of "$corpus")"
fi

stage_file() { echo "$folder/first_${1//+/_}_before_$2_loss_$3.json"; }  # MODEL DROP LOSS
alone_file() { echo "$folder/first_none_before_$1.json"; }      # DROP: the cascade by itself
entry_of() {  # MODEL: a first stage as a file of rankers has it
  if is_baseline "$1"; then echo "\"$1\""; return; fi
  echo "{\"run\": \"$(realpath "$(run_of "$1" "$corpus")")\", \"precision\": \"float32\"}"
}
write_once() {  # FILE CONTENT RUN...: not where it has been tuned with the same rankers by the same settings
  local file=$1 content=$2 settings run fresh=1; shift 2
  settings="$content $KEEPS $GRID $precision $(dev_of "$corpus")"
  for run in "$@"; do  # one that was trained again is another ranker
    if ! is_baseline "$run" && [ ! "$file.rankers" -nt "$run/model.params" ]; then fresh=0; fi
  done
  if [ $fresh = 0 ] || ! same_as "$file.rankers" "$settings"; then
    echo "$content" > "$file"
    echo "$settings" > "$file.rankers"
    rm -f "$file.tuned"
  fi
}
run_or_rule() { if is_baseline "$1"; then echo "$1"; else run_of "$1" "$corpus"; fi; }  # MODEL
tune() {  # FILE LOSS
  if [ ! -e "$1.tuned" ]; then
    echo "== $1"
    "$wqa" tune "$1" --data "$(dev_of "$corpus")" --filter "$(filter_of "$corpus")" --max-loss "$2" --ctx "$device" \
      --precision "$precision" --no-picture --keeps "$KEEPS" --grid "$GRID" | tee "$1.tuned.part"
    mv "$1.tuned.part" "$1.tuned"
  fi
}

rows=()
for drop in $DROPS; do
  entry="{\"run\": \"$second\", \"drop_ratio\": $drop}"
  alone=$(alone_file "$drop")
  write_once "$alone" "{\"rankers\": [$entry]}" "$second"
  rows+=("cascade at $drop=$alone")
  for first in $FIRSTS; do
    if ! is_baseline "$first"; then fit "$first" "$corpus"; fi
    for loss in $LOSSES; do
      file=$(stage_file "$first" "$drop" "$loss")
      write_once "$file" "{\"rankers\": [$(entry_of "$first"), $entry]}" "$(run_or_rule "$first")" "$second"
      tune "$file" "$loss"
      rows+=("$(title_of "${first/wo+rr/WO+RR}"), cascade at $drop, loss $loss=$file")
    done
    mkdir -p "$RESULTS/${name}_dev"
    cp "${file%.json}.tune/configurations.tsv" "$RESULTS/${name}_dev/${first//+/_}_before_$drop.tsv"
  done
done
for first in $FIRSTS; do
  if ! is_baseline "$first"; then
    alone=$folder/first_${first}_alone.json
    write_once "$alone" "{\"rankers\": [$(entry_of "$first")]}" "$(run_or_rule "$first")"
    rows+=("$(title_of "$first")=$alone")
  fi
done

speed=$folder/speed_$name.json
PRECISION=$precision CTX=$device "$python" recipes/dcbert/speed.py "$(test_of "$corpus")" "$speed" "${rows[@]}" |
  tee "$RESULTS/speed_$name.txt"
for row in "${rows[@]}"; do
  file=${row#*=} json=$folder/$(basename "${row#*=}" .json).test.json
  evaluate "$json" "$corpus" "$file" --metrics "$METRICS" --precision "$precision"
  "$python" recipes/cosinet/stages.py "$table" "${row%%=*}" "$corpus" "$json" "$speed" "$file"
done
cat "$table"
