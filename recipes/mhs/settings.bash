# Settings and functions of the recipes of Multiple-Heads Student (Matsubara et al. 2022), which source this file; those of
# recipes/settings.sh hold as well. SMOKE=1 takes a tiny encoder for every name.
paper=mhs
if [ "${SMOKE:-0}" = 1 ]; then
  LARGE="a b a" BASE="a b a" STUDENT=a BODY=${BODY:-2} ALPHAS=${ALPHAS:-0.5} TAUS=${TAUS:-1} CONFIGURATIONS="1 2"
  TRIALS=3
fi
# Ours, not tuned; the paper publishes none of these.
LEARNING_RATE=${LEARNING_RATE:-1e-5} TRANSFER_EPOCHS=${TRANSFER_EPOCHS:-2} ADAPT_EPOCHS=${ADAPT_EPOCHS:-10}
PATIENCE=${PATIENCE:-3}
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
if [ "${SMOKE:-0}" = 1 ]; then ONE_ENCODER=$ENCODER; fi

ENCODERS=${ENCODERS:-encoders}          # python data_scripts/encoders.py NAME
LARGE=${LARGE:-albert-xxlarge roberta-large electra-large}  # the teachers (section 3.1), in the order of the heads
BASE=${BASE:-albert-base roberta-base electra-base}         # their students of one family each (section 3.2)
STUDENT=${STUDENT:-electra-base}        # every other student (footnote 1)
BODY=${BODY:-11} HEADS=3                # B11_3H1 (section 5.3)
CONFIGURATIONS=${CONFIGURATIONS:-1 2 4 6}                   # h of Table 4; b is 12 - h
DEPTH=${DEPTH:-$((BODY + 1))}           # b + h
ALPHAS=${ALPHAS:-0 0.1 0.5 0.9} TAUS=${TAUS:-1 3 5}         # the grid of section 3.2, chosen on dev
CORPORA=${CORPORA:-wikiqa}              # IAS2, the paper's third corpus, is not public

encoder_of() { echo "${ONE_ENCODER:-$ENCODERS/$1}"; }  # NAME; ONE_ENCODER takes the place of all

# The store of ASNQ holds tokens, so each encoder has its own.
train_of() {
  if [ "$1" = asnq ]; then echo "$RUNS/mhs/asnq_$(basename "$(encoder_of "$encoder")").store"; else split_of "$1" train; fi
}
prepare() {  # ENCODER CORPUS: sets the encoder of the next trainings, and tokenizes ASNQ for it
  encoder=$1
  mkdir -p "$RUNS/mhs/logits"
  if [ "$2" = asnq ]; then tokenize_asnq "$(encoder_of "$encoder")" "$(train_of asnq)"; fi
}

ranker_of() { echo "$RUNS/mhs/$1_$2_seed${3:-$FIRST_SEED}"; }  # ENCODER CORPUS [SEED]: the run of fine_tune
start_of() {  # ENCODER CORPUS: what a student starts from (footnote 1)
  if [ "$2" = asnq ]; then echo "--encoder $(encoder_of "$1")"; else echo "--init $(ranker_of "$1" asnq)"; fi
}
schedule_of() {  # CORPUS
  if [ "$1" = asnq ]; then echo "--epochs $TRANSFER_EPOCHS --eval-every $TRANSFER_EVAL_EVERY"; else echo "--epochs $ADAPT_EPOCHS"; fi
}
fine_tune() {  # ENCODER CORPUS [SEED]: a monolithic ranker by TANDA
  local TOKENS=$TOKENS
  if [ "$2" != asnq ]; then fine_tune "$1" asnq; fi
  prepare "$1" "$2"
  if [[ $1 == *large ]]; then TOKENS=$((TOKENS / 2)); fi  # of a mini-batch, by its memory
  corpus=$2 system=pairwise train_student "mhs/$1_$2_seed${3:-$FIRST_SEED}" "${3:-$FIRST_SEED}"
}

logits_of() { echo "$RUNS/mhs/logits/$(basename "$1")_on_$2"; }  # RUN CORPUS
score() { logits "$1" "$2" "$(logits_of "$1" "$2")"; }  # RUN CORPUS
teachers() {  # CORPUS ENCODER...: the logits of fine-tuned rankers, separated by commas
  local corpus=$1 names= name; shift
  for name in "$@"; do names=$names${names:+,}$(logits_of "$(ranker_of "$name" "$corpus")" "$corpus"); done
  echo "$names"
}

# NAME ENCODER CORPUS SYSTEM OPTIONS...: trains a student for each alpha and tau with the first seed, the chosen pair with others.
student() {
  local encoder=$2 corpus=$3 system=$4 folder=mhs/$1_$3 alpha tau seed number=0 total; shift 4
  total=$(($(wc -w <<< "$ALPHAS") * $(wc -w <<< "$TAUS")))
  prepare "$encoder" "$corpus"
  for alpha in $ALPHAS; do
    for tau in $TAUS; do
      number=$((number + 1))
      echo "== $folder, $number of $total: alpha $alpha, tau $tau"
      COMPARE=1 train_student "$folder/alpha_${alpha}_tau_$tau" "$FIRST_SEED" --alpha "$alpha" --tau "$tau" "$@"
    done
  done
  "$python" recipes/mhs/choose.py "$RUNS/$folder"
  read -r alpha tau < "$RUNS/$folder/chosen.txt"
  for seed in $SEEDS; do
    [ "$seed" = "$FIRST_SEED" ] || COMPARE=1 train_student "$folder/seed_$seed" "$seed" --alpha "$alpha" --tau "$tau" "$@"
  done
}
train_student() {  # RUN SEED OPTIONS...: of the system, corpus and encoder that are set
  train "$1" "$system" "$corpus" $(start_of "$encoder" "$corpus") --seed "$2" --learning-rate "$LEARNING_RATE" \
    $(schedule_of "$corpus") "${@:3}"
}
student_runs() {  # NAME CORPUS: the runs of the seeds that were trained
  local folder=$RUNS/mhs/$1_$2 alpha tau seed run
  read -r alpha tau < "$folder/chosen.txt"
  for seed in $SEEDS; do
    if [ "$seed" = "$FIRST_SEED" ]; then run=$folder/alpha_${alpha}_tau_$tau; else run=$folder/seed_$seed; fi
    if [ -e "$run/model.params" ]; then echo "$run"; fi
  done
}

distill() {  # STUDENT TEACHER CORPUS: a monolithic student of one teacher
  student "kd_$1_from_$2" "$1" "$3" pairwise --teachers "$(teachers "$3" "$2")"
}
distilled_runs() { student_runs "kd_$1_from_$2" "$3"; }
mhs_options() {  # LAYERS-OF-A-HEAD CORPUS ENCODER...: B_kH_h of DEPTH layers from teachers
  echo "--body $((DEPTH - $1)) --heads $HEADS --head-layers $1 --teachers $(teachers "${@:2}")"
}
ensemble() {  # NAME CORPUS RUN...: weights tuned on dev (section 3.2), again where other runs are chosen
  local file=$RUNS/mhs/$1_$2.json corpus=$2 run paths=; shift 2
  for run in "$@"; do paths="$paths${paths:+, }\"${run#"$RUNS/mhs/"}\""; done
  once "$file" "${@/%//model.params}" -- weigh "$file" "$corpus" "{\"ensemble\": [$paths]}"
}
weigh() {  # FILE CORPUS ENSEMBLE
  echo "$3" > "$1.untuned.json"
  "$wqa" tune "$1.untuned.json" --data "$(dev_of "$2")" --filter "$(filter_of "$2")" --seed 0 --trials "${TRIALS:-200}" \
    --ctx "$device"
  mv "$1.untuned.json" "$1"
}
