# Settings and functions of the recipes of Cosinet (Bonadiman and Moschitti 2020), beside those of recipes/settings.sh.
paper=cosinet
if [ "${SMOKE:-0}" = 1 ]; then
  SEEDS=${SEEDS:-0 1} MODELS=${MODELS:-cosinet cosinet_list_birnn bert} UNITS=${UNITS:-12}
  TABLE_KIND=${TABLE_KIND:-distilled} WORD_ENCODER=${WORD_ENCODER:-${ENCODER:-${OUT:-runs/smoke}/encoder}}
  SQUAD=${SQUAD:-wqa/data/builtin} NQLA=wqa/data/builtin
  export OMP_NUM_THREADS=1  # which does not wait for another
else
  ENCODER=${ENCODER:-encoders/bert-base}
  SEEDS=${SEEDS:-0 1 2 3 4}  # the paper does not say how many
fi
CA_SEEDS=${CA_SEEDS:-$SEEDS}  # of Compare-Aggregate, which takes ten times as long
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"

SQUAD=${SQUAD:-$DATA/squad_sent}         # python data_scripts/squad.py --unanswered --out data/squad_sent
NQLA=${NQLA:-$DATA/nq_la}                # python data_scripts/nq_la.py --out data/nq_la
TABLE_KIND=${TABLE_KIND:-numberbatch}   # of word vectors: numberbatch, distilled
UNITS=${UNITS:-300}                     # section 5.2
WORD_FILE=${WORD_FILE:-vectors/numberbatch-en-19.08.txt.gz}  # python data_scripts/word_vectors.py numberbatch --out vectors
WORD_ENCODER=${WORD_ENCODER:-minilm}    # whose words are distilled
# To which the word vectors of Compare-Aggregate are scaled, as words of length 1 leave its attention nearly uniform; chosen on
# WikiQA's dev (recipes/cosinet/logs/README.md).
CA_LENGTH=${CA_LENGTH:-10}
# Ours, not tuned. Section 5.2's settings of the other networks are the defaults of `wqa train`.
BERT_RATE=${BERT_RATE:-2e-5} BERT_EPOCHS=${BERT_EPOCHS:-3}
METRICS=map,mrr,p@1

filter_of() { echo no-all-negative; }   # "for all datasets, we remove the questions without answers" (section 5.1)
# Section 5.4 says that the pointwise networks are "trained on all the data", and left-out training questions prefer that.
train_filter_of() { case $1 in  # MODEL
  cosinet | ca) echo all ;;
  *) echo no-all-negative ;;
  esac; }

words_of() {  # MODEL CORPUS
  local length=
  if [[ $1 == ca* ]]; then length=_length_$CA_LENGTH; fi
  echo "$RUNS/cosinet/words_$2_$TABLE_KIND$length"
}
embed() {  # MODEL CORPUS: the table of word vectors, of the words of all splits; no label is read
  local out options file texts=()
  out=$(words_of "$1" "$2")
  if [ -e "$out/meta.json" ]; then return; fi
  for file in "$(train_of "$2")" "$(dev_of "$2")" "$(test_of "$2")"; do
    if [ -e "$file" ]; then texts+=("$file"); fi
  done
  case $TABLE_KIND in
    distilled) options=(--encoder "$WORD_ENCODER" --units "$UNITS") ;;
    numberbatch) options=(--vectors "$WORD_FILE") ;;
    *) fail "TABLE_KIND is $TABLE_KIND; expected numberbatch or distilled" ;;
  esac
  if [[ $1 == ca* ]]; then options+=(--length "$CA_LENGTH"); fi
  echo "== $out"
  "$wqa" embed-words --data "${texts[@]}" "${options[@]}" --out "$out"
}

# A model is cosinet or ca, _list where the loss is listwise, and its recurrent layer; bert is a fine-tuned encoder.
run_of() { echo "$RUNS/cosinet/${1}_$2_$3"; }  # MODEL CORPUS SEED
seeds_of() { case $1 in  # MODEL or baseline
  rr | wo* | bert) echo "$FIRST_SEED" ;;
  ca | ca_*) echo "$CA_SEEDS" ;;
  *) echo "$SEEDS" ;;
  esac; }
fit() {  # MODEL CORPUS SEED: trains it where that was not done; with COMPARE=1 a complete run of other options is refused
  local model=$1 corpus=$2 run options
  run=$(run_of "$@")
  if [ -e "$run/model.params" ] && [ -z "${COMPARE:-}" ]; then return; fi
  case $model in
    bert) options=(pairwise --encoder "$ENCODER" --learning-rate "$BERT_RATE" --epochs "$BERT_EPOCHS" --warmup-share 0.1
      --precision "$PRECISION") ;;
    *)
      embed "$model" "$corpus"
      options=(cosinet)
      if [[ $model == ca* ]]; then options=(compare_aggregate); fi
      options+=(--words "$(words_of "$model" "$corpus")")
      case $model in
        cosinet | ca) options+=(--loss pointwise) ;;
        *_list) options+=(--loss listwise) ;;
        *) options+=(--loss listwise --recurrent "${model##*_}") ;;
      esac ;;
  esac
  echo "== $run"
  "$wqa" train "${options[@]}" --train "$(train_of "$corpus")" --train-filter "$(train_filter_of "$model")" --seed "$3" \
    --out "$run" --resume --ctx "$CTX" ${limits[@]+"${limits[@]}"}
}
title_of() {  # MODEL: the row of the tables
  local title=$1
  title=${title/cosinet/Cosinet} title=${title/#ca/CA} title=${title/_list/ list} title=${title/bert/${BERT_ROW:-BERT-base}}
  title=${title/_birnn/ BiRNN} title=${title/_bilstm/ BiLSTM} title=${title/_rnn/ RNN} title=${title/_lstm/ LSTM}
  case $1 in rr | wo*) echo "${1^^}" ;; *) echo "$title" ;; esac
}
all_models() {  # KIND: cosinet or ca, in the order of Table 4
  echo "$1 ${1}_list ${1}_list_rnn ${1}_list_birnn ${1}_list_lstm ${1}_list_bilstm"
}
figures_of() {  # MODEL CORPUS SEED; a baseline has one file
  case $1 in rr | wo* | random*) echo "$RUNS/cosinet/${1//:/_}_$2.json" ;; *) echo "$(run_of "$@")/test.json" ;; esac
}

baseline() {  # NAME CORPUS: its figures; WO's ties count against the correct candidates, which no TREC run can say
  local json; json=$(figures_of "$1" "$2")
  case $1 in
    wo) once "$json" "$(test_of "$2")" -- "$wqa" evaluate wo --data "$(test_of "$2")" --filter "$(filter_of "$2")" --metrics "$METRICS" --json "$json" ;;
    *) evaluate "$json" "$2" "$1" ;;
  esac
}
baseline_rows() {  # TABLE CORPUS COLUMNS
  local name
  for name in rr wo wo+rr; do
    baseline "$name" "$2"
    "$python" recipes/rows.py "$1" "$2" "$3,seeds" --row "$(title_of "$name")" "$(figures_of "$name" "$2")"
  done
}
row() {  # TABLE CORPUS COLUMNS MODEL: figures over the seeds
  local table=$1 corpus=$2 columns=$3 model=$4 seed run runs=()
  for seed in $(seeds_of "$model"); do
    fit "$model" "$corpus" "$seed"
    run=$(run_of "$model" "$corpus" "$seed")
    evaluate "$run/test.json" "$corpus" "$run"
    keep_run "$run/test.json.0.trec" "${TABLE_KIND}_${run##*/}"
    runs+=("$run")
  done
  "$python" recipes/rows.py "$table" "$corpus" "$columns,params,epoch_seconds,train_seconds,seeds" --row "$(title_of "$model")" \
    "${runs[@]/%//test.json}" \
    --cells $("$python" recipes/cosinet/costs.py "$(train_of "$corpus")" "$(train_filter_of "$model")" "${runs[@]}")
}
rows_and_claims() {  # TABLE CORPUS COLUMNS CLAIMS: rows of the baselines and of MODELS, those of Table 4 by default, and tests
  local model
  baseline_rows "$1" "$2" "$3"
  for model in ${MODELS:-$(all_models cosinet) $(all_models ca) bert}; do row "$1" "$2" "$3" "$model"; done
  cat "$1"
  keep_output "$4" claims "$2"
}
claims() {  # CORPUS: tests over questions and seeds; a difference is the second's less the first's
  local corpus=$1 pair model birnn=cosinet_list_birnn systems=() pairs=()
  for model in wo+rr $(all_models cosinet) ca ca_list_birnn; do
    SEEDS=$(seeds_of "$model") system "$(title_of "$model")" "$(figures_of "$model" "$corpus" %).0.trec"
  done
  for pair in "wo+rr $birnn" "wo+rr cosinet_list_bilstm" "wo+rr cosinet_list_rnn" "wo+rr cosinet_list_lstm" "cosinet $birnn" \
    "cosinet cosinet_list" "cosinet_list $birnn" "cosinet_list_lstm $birnn" "ca cosinet" "ca_list_birnn $birnn"; do
    pairs+=(--pair "$(title_of "${pair% *}")" "$(title_of "${pair#* }")")
  done
  "$python" recipes/claims.py "$(figures_of wo+rr "$corpus").qrels" "$METRICS" "${systems[@]}" "${pairs[@]}"
}
