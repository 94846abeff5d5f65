#!/usr/bin/env bash
# DC-BERT and the Cascade Transformer in one, in two ways that no paper has: DC-BERT ranks all documents and hands its best
# KEEPS to a cascade on the concatenation; and DC-BERT of three interaction layers with an exit after each drops documents
# between them. Writes cost, quality and speed to $RESULTS/stages.tsv. Trains what is missing.
#
#   recipes/dcbert/stages.sh         settings: recipes/dcbert/settings.bash
#   KEEPS="40 20 10" RATIOS="0.3 0.5" recipes/dcbert/stages.sh
#   SMOKE=1 recipes/dcbert/stages.sh
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/stages.tsv} ratios=${RATIOS:-0.3 0.5}
columns=map,p@1,p@5,p@10,cost_reduction,questions_per_second,speedup

sequence() {  # CORPUS KEEP: the file of DC-BERT before the cascade
  local file=$RUNS/dcbert/stages_$2_$1_seed$FIRST_SEED.json content
  local first=dcbert_1_$1_seed$FIRST_SEED then=cascade_$1_seed$FIRST_SEED
  content="{\"rankers\": [\"$first\", {\"run\": \"$then\", \"drop_ratio\": 0.3}], \"keep\": [$2]}"
  # Figures of the sequence are older than its file where a ranker was trained again.
  if ! same_as "$file" "$content" || [ ! "$file" -nt "$(run_of dcbert_1 "$1")/model.params" ] ||
    [ ! "$file" -nt "$(run_of cascade "$1")/model.params" ]; then
    echo "$content" > "$file"
  fi
  echo "$file"
}

for corpus in $CORPORA; do
  for name in bert cascade dcbert_1 exits; do fit "$name" "$corpus"; done
  rankers=(bert cascade "cascade_0.3=cascade;drop_ratio=0.3" dcbert_1 exits) drops=(--drop-ratio 0)
  for ratio in $ratios; do
    rankers+=("exits_$ratio=exits;drop_ratio=$ratio")
    drops+=(--drop-ratio "$ratio")
  done
  for keep in $KEEPS; do rankers+=("keep_$keep=$(sequence "$corpus" "$keep");cache=$(cache_of dcbert_1 "$corpus")"); done
  speed=$RUNS/dcbert/speed_$(basename "$table" .tsv)_$corpus.json
  timed "$speed" "$corpus" "${rankers[@]}"

  ROW_SEEDS=$FIRST_SEED
  row "$table" re-ranker "$corpus" bert "$columns" "$speed"
  RANK_OPTIONS="--drop-ratio 0 --drop-ratio 0.3"
  row "$table" cascade "$corpus" cascade "$columns" "$speed"
  LABEL=0.3 TIMED=cascade_0.3 row "$table" cascade "$corpus" cascade "$columns" "$speed"
  RANK_OPTIONS=
  row "$table" "DC-BERT, K = 1" "$corpus" dcbert_1 "$columns" "$speed"
  for keep in $KEEPS; do
    figures=$RUNS/dcbert/stages_${keep}_$corpus.ranked.json
    evaluate "$figures" "$corpus" "$(sequence "$corpus" "$keep")" --metrics "$METRICS" --total "$(total_of "$corpus")" \
      --long-questions truncate $(cache_options dcbert_1 "$corpus") --precision "$RANK_PRECISION"
    "$python" recipes/dcbert/row.py "$table" "DC-BERT, its best $keep to the cascade" "$corpus" "$columns" --label stored \
      --ranked "$figures" --speed "$speed" --timed "keep_$keep"
  done
  RANK_OPTIONS="${drops[*]}"
  for ratio in 0 $ratios; do
    timed_as=exits_$ratio
    if [ "$ratio" = 0 ]; then timed_as=exits; fi
    LABEL=$ratio TIMED=$timed_as row "$table" "DC-BERT, exits 1, 2, 3" "$corpus" exits "$columns" "$speed"
  done
  RANK_OPTIONS=
done
cat "$table"
