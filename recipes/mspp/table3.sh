#!/usr/bin/env bash
# Tables 3 and 8 (Di Liello et al. 2022): fact verification on FEVER, by a joint model from the plain encoder and by those that
# MSPP pre-trained, with the heads IE_1 and AE_1. Labels of FEVER's test split are not public: $RUNS/mspp/RUN/test.labels.jsonl is
# what its scorer takes, and the figures are those of dev.
if [ "${SMOKE:-0}" = 1 ]; then SEEDS=0 MODELS="joint_IE_1 mspp_IE_k_AE_1" CLAIMS_RATE=1e-3 CLAIMS_WARMUP=1; fi
. "$(dirname "$0")/settings.bash"
FEVER=${FEVER:-$DATA/fever}              # python data_scripts/fever.py
MODELS=${MODELS:-joint_IE_1 mspp_IE_k_IE_1 mspp_IE_k_AE_1 mspp_AE_k_IE_1 mspp_AE_k_AE_1}
# Section B.1: batches of 64. The paper names no number of epochs; that of ASNQ is ours.
CLAIMS_BATCH=${CLAIMS_BATCH:-64} CLAIMS_RATE=${CLAIMS_RATE:-1e-5} CLAIMS_WARMUP=${CLAIMS_WARMUP:-1000}
CLAIMS_EPOCHS=${CLAIMS_EPOCHS:-6}
if [ "${SMOKE:-0}" = 1 ]; then FEVER=$RUNS/mspp/fever; prepare_documents; fi
warmup_of() { echo "--warmup-updates $CLAIMS_WARMUP"; }

rows=() systems=() pairs=(--pair) runs=()
for model in $MODELS; do
  head=${model: -4} pretrained=${model#*_} pretrained=${pretrained%_*_*}
  case $model in
    joint_*) start="--encoder $ENCODER $(joint_options)" title="Joint RoBERTa-Base, FT $head" ;;
    *)  # what is pre-trained keeps its row of token types
      pretrain "$pretrained"
      start="--init $RUNS/mspp/pretrained_$pretrained $(joint_options 0)" title="Joint MSPP $pretrained, FT $head" ;;
  esac
  files=() labels=()
  for seed in $SEEDS; do
    run=$RUNS/mspp/claims_${model}_seed$seed
    UPDATE_TOKENS=$((CLAIMS_BATCH * LENGTH * (K + 1))) train "${run#"$RUNS"/}" mspp_claims fever \
      $start --head "$head" --aggregation "$AGGREGATION" --seed "$seed" --learning-rate "$CLAIMS_RATE" \
      --epochs "$CLAIMS_EPOCHS" --long-questions truncate
    [ "$run/dev.json" -nt "$run/model.params" ] ||
      "$wqa" evaluate "$run" --data "$(dev_of fever)" --ctx "$device" --long-questions truncate --json "$run/dev.json"
    files+=("$run/dev.json") labels+=("$run/dev.labels.jsonl") runs+=("$run")
  done
  rows+=(--row "$title" "${files[@]}")
  systems+=(--system "$title" "${labels[@]}")
  pairs+=("$title")
done
"$python" recipes/mspp/labels.py "$FEVER/dev.jsonl" dev.labels.jsonl "$FEVER/test.jsonl" test.labels.jsonl --ctx "$device" --runs "${runs[@]}"
"$python" recipes/rows.py "$RESULTS/table3.tsv" fever_dev accuracy,questions,seeds "${rows[@]}"
cp "$RESULTS/table3.tsv" "$RESULTS/table8.tsv"
cat "$RESULTS/table3.tsv"
keep_output "$RESULTS/table3_claims.txt" "$python" recipes/claims.py "$(dev_of fever)" accuracy "${systems[@]}" "${pairs[@]}"
