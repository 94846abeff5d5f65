#!/usr/bin/env bash
# Tables 3 and 8 (Di Liello et al. 2022): fact verification on FEVER, by a joint model from the plain encoder and by those that
# MSPP pre-trained, with the heads IE_1 and AE_1. The rows of other authors are not reproduced. Labels of FEVER's test split are
# not public: $RUNS/mspp/RUN/test.labels.jsonl is what its scorer takes, and the figures are those of dev. Trains what is
# missing; writes $RESULTS/table3.tsv and table8.tsv with means and deviations over the seeds, and Student's t-tests over seeds
# and over claims (table3_claims.txt).
#
#   CTX=gpu:0-7 recipes/mspp/table3.sh       settings: recipes/mspp/settings.bash
#   SMOKE=1 recipes/mspp/table3.sh
if [ "${SMOKE:-0}" = 1 ]; then SEEDS=0 MODELS="joint_IE_1 mspp_IE_k_AE_1" CLAIMS_RATE=1e-3 CLAIMS_WARMUP=1; fi
. "$(dirname "$0")/settings.bash"
FEVER=${FEVER:-data/fever}              # python data_scripts/fever.py
MODELS=${MODELS:-joint_IE_1 mspp_IE_k_IE_1 mspp_IE_k_AE_1 mspp_AE_k_IE_1 mspp_AE_k_AE_1}
# Section B.1: batches of 64. The paper names no number of epochs; that of ASNQ is ours.
CLAIMS_BATCH=${CLAIMS_BATCH:-64} CLAIMS_RATE=${CLAIMS_RATE:-1e-5} CLAIMS_WARMUP=${CLAIMS_WARMUP:-1000}
CLAIMS_EPOCHS=${CLAIMS_EPOCHS:-6}
if [ "${SMOKE:-0}" = 1 ]; then
  FEVER=$RUNS/mspp/fever
  prepare_documents
fi
train_of() { echo "$FEVER/train.jsonl"; }
dev_of() { echo "$FEVER/dev.jsonl"; }
warmup_of() { echo "--warmup-updates $CLAIMS_WARMUP"; }

head_in() { echo "${1: -4}"; }            # MODEL: that of fine-tuning
start_of() {  # MODEL: with the options of the inputs; what is pre-trained keeps its row of token types
  local head=${1#*_}
  case $1 in
    joint_*) echo "--encoder $ENCODER $(joint_options)" ;;
    *) echo "--init $(pretrained_of "${head%_*_*}") $(joint_options 0)" ;;
  esac
}
model_title() {  # MODEL: the row of the tables
  local head=${1#*_}
  case $1 in
    joint_*) echo "Joint RoBERTa-Base, FT $(head_in "$1")" ;;
    *) echo "Joint MSPP ${head%_*_*}, FT $(head_in "$1")" ;;
  esac
}
verifier_of() { echo "$RUNS/mspp/claims_$1_seed$2"; }       # MODEL SEED

rows=() systems=() pairs=() runs=()
first=${MODELS%% *}
for model in $MODELS; do
  case $model in mspp_*) head=${model#mspp_}; pretrain "${head%_*_*}" ;; esac
  files=() labels=()
  for seed in $SEEDS; do
    run=$(verifier_of "$model" "$seed")
    UPDATE_TOKENS=$((CLAIMS_BATCH * LENGTH * (K + 1))) train "mspp/claims_${model}_seed$seed" mspp_claims fever \
      $(start_of "$model") --head "$(head_in "$model")" --seed "$seed" --learning-rate "$CLAIMS_RATE" \
      --epochs "$CLAIMS_EPOCHS" --long-questions truncate
    if [ ! "$run/dev.json" -nt "$run/model.params" ]; then
      "$wqa" evaluate "$run" --data "$(dev_of fever)" --ctx "$device" --long-questions truncate --json "$run/dev.json"
    fi
    files+=("$run/dev.json") labels+=("$run/dev.labels.jsonl") runs+=("$run")
  done
  rows+=(--row "$(model_title "$model")" "${files[@]}")
  systems+=(--system "$(model_title "$model")" "${labels[@]}")
  if [ "$model" != "$first" ]; then pairs+=(--pair "$(model_title "$first")" "$(model_title "$model")"); fi
done
"$python" recipes/mspp/labels.py "$FEVER/dev.jsonl" dev.labels.jsonl "$FEVER/test.jsonl" test.labels.jsonl --ctx "$device" --runs "${runs[@]}"
"$python" recipes/rows.py "$RESULTS/table3.tsv" fever_dev accuracy,questions,seeds "${rows[@]}"
cp "$RESULTS/table3.tsv" "$RESULTS/table8.tsv"
"$python" recipes/claims.py "$(dev_of fever)" accuracy "${systems[@]}" "${pairs[@]}" \
  > "$RESULTS/table3_claims.txt"
cat "$RESULTS/table3.tsv" "$RESULTS/table3_claims.txt"
