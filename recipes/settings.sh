# Settings and functions of all recipes, which source this file. A variable of the environment overrides a setting:
#   ENCODER=encoders/bert CTX=gpu:0-7 SEEDS="0 1 2" recipes/tanda/transfer.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
paper=${paper:-cascade}                      # the folder of the recipes, set by the file that sources this one

# The programs of the environment that is active, or else of the repository's own.
if [ -z "${WQA:-}" ] && [ -x .venv/bin/wqa ] && ! command -v wqa > /dev/null; then PATH=$PWD/.venv/bin:$PATH; fi
wqa=${WQA:-wqa} python=${PYTHON:-python}
fail() { echo "error: $1" >&2; exit 2; }
has_module() { "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' "$1" 2> /dev/null; }
needs() {  # EXTRA MODULE: what a recipe needs beside the package; called before it trains anything
  has_module "$2" || fail "$2 is not installed; expected the extra $1: pip install -e '.[$1]'"
}
if ! command -v "$wqa" > /dev/null || ! has_module mxnet; then
  fail "wqa is not installed here; expected an active environment with it, or .venv, which \`make quickstart\` makes"
fi

if [ "${SMOKE:-0}" = 1 ]; then
  RUNS=${OUT:-runs/smoke} ENCODER=${ENCODER:-${OUT:-runs/smoke}/encoder}
  RESULTS=$RUNS/results/$paper LOGS=$RUNS/results/$paper/logs KEPT=$RUNS/results/$paper/runs
  DEPTHS=${DEPTHS-1 3} EXITS=${EXITS:-1,3} CORPORA=${CORPORA:-wikiqa} BUDGET=0.9
  ASNQ=wqa/data/builtin WIKIQA=wqa/data/builtin TRECQA=wqa/data/builtin GPD=wqa/data/builtin
  TRECQA_TRAIN=$TRECQA/train.jsonl TRECQA_DEV=$TRECQA/dev.jsonl TRECQA_TEST=$TRECQA/test.jsonl
  limits=(--max-updates 3 --checkpoint-every 2) WARMUP=1 UPDATE_TOKENS=4000 LEARNING_RATE=1e-3
  [ -e "$ENCODER/config.json" ] || "$python" recipes/tiny_encoder.py "$ENCODER"
else
  RUNS=${RUNS:-runs/${paper}_paper} RESULTS=${RESULTS:-recipes/$paper/results} LOGS=${LOGS:-recipes/$paper/logs}
  KEPT=${KEPT:-recipes/$paper/runs} limits=()
fi

ENCODER=${ENCODER:-encoders/roberta-base}    # python data_scripts/encoders.py roberta-base
DATA=${DATA:-data} ASNQ=${ASNQ:-$DATA/asnq}  # the transfer corpus: train.jsonl, dev.jsonl, test.jsonl
WIKIQA=${WIKIQA:-$DATA/wikiqa} TRECQA=${TRECQA:-$DATA/trecqa} GPD=${GPD:-$DATA/gpd}
DEPTHS=${DEPTHS-4 6 8 10 12}                 # of the monolithic rankers (section 4.2)
EXITS=${EXITS:-4,6,8,10,12}                  # rho(i) = 4 + 2 (i - 1)
SEEDS=${SEEDS:-0} FIRST_SEED=${SEEDS%% *} CTX=${CTX:-cpu} PRECISION=${PRECISION:-float32}
# Section 5.2: a peak of 1e-6 after 4,000 updates, up to 2,000 tokens a mini-batch, 8 GPUs. Footnote 9: on ASNQ an update has 237
# pairs, at 67 padded tokens a pair the 16,000 tokens of eight mini-batches. Adaptations, of 1,440 such updates at most on WikiQA,
# warm up for WARMUP_SHARE of theirs; WARMUP sets a number of updates for both. The paper names no number of epochs: training ends
# when the dev MAP has not risen for PATIENCE evaluations after the peak.
LEARNING_RATE=${LEARNING_RATE:-1e-6} CASCADE_LEARNING_RATE=${CASCADE_LEARNING_RATE:-$LEARNING_RATE}
ADAPT_RATE=${ADAPT_RATE:-$LEARNING_RATE}     # of TANDA's second step
CASCADE_OPTIONS=${CASCADE_OPTIONS:-}         # how a cascade trains beyond the paper, such as --trained-exits all
TOKENS=${TOKENS:-2000} UPDATE_TOKENS=${UPDATE_TOKENS:-16000} WARMUP_SHARE=${WARMUP_SHARE:-0.1} PATIENCE=${PATIENCE:-5}
TRANSFER_EPOCHS=${TRANSFER_EPOCHS:-3} TRANSFER_EVAL_EVERY=${TRANSFER_EVAL_EVERY:-20000} ADAPT_EPOCHS=${ADAPT_EPOCHS:-60}
SHALLOW_TIMES=${SHALLOW_TIMES:-4}            # section 5.3: a monolithic ranker of 4 layers takes so many times the iterations
device=${CTX%%[-,]*}  # the first one ranks
if [[ "$RUNS$DATA" == *[[:space:]]* ]]; then fail "white space in RUNS or DATA; expected paths without"; fi
mkdir -p "$RUNS/$paper" "$RESULTS"

# CORPUS SPLIT: its file, by the variable CORPUS_SPLIT or in the folder CORPUS. Table 1 counts 65 dev questions of TREC-QA: those of
# dev-40, without sentences of more than 40 tokens. dev-clean.jsonl has MSPP's 69.
: "${TRECQA_TRAIN:=$TRECQA/train-all.jsonl}" "${TRECQA_DEV=$TRECQA/dev-40-clean.jsonl}" "${TRECQA_TEST:=$TRECQA/test-clean.jsonl}"
split_of() {
  local folder=${1^^} file=${1^^}_${2^^}
  echo "${!file-${!folder}/$2.jsonl}"
}
train_of() { if [ "$1" = asnq ]; then echo "$RUNS/asnq.store"; else split_of "$1" train; fi; }
dev_of() { split_of "$1" dev; }
test_of() { split_of "$1" test; }
# Table 1 counts 873, 126 and 243 questions of WikiQA: those with an answer.
filter_of() { if [ "$1" = wikiqa ]; then echo no-all-negative; else echo all; fi; }

tokenize_asnq() {  # [ENCODER STORE]: once for all transfers: 23.7 million pairs are too many to hold in memory
  local store=${2:-$RUNS/asnq.store}
  [ -e "$store" ] || "$wqa" tokenize --encoder "${1:-$ENCODER}" --data "$(split_of asnq train)" --out "$store"
}

warmup_of() {  # CORPUS
  if [ "$1" = asnq ] || [ -n "${WARMUP:-}" ]; then
    echo "--warmup-updates ${WARMUP:-4000}"
  else
    echo "--warmup-share $WARMUP_SHARE"
  fi
}

train() {  # NAME SYSTEM CORPUS OPTIONS... With COMPARE=1 a complete run of other options is refused.
  local name=$1 system=$2 corpus=$3 dev; shift 3
  if [ -e "$RUNS/$name/model.params" ] && [ -z "${COMPARE:-}" ]; then return; fi
  dev=$(dev_of "$corpus")
  echo "== $name"
  "$wqa" train "$system" --out "$RUNS/$name" --resume --train "$(train_of "$corpus")" \
    ${dev:+--dev "$dev" --patience "$PATIENCE"} --train-filter "$(filter_of "$corpus")" \
    $(warmup_of "$corpus") --tokens-per-batch "$TOKENS" --tokens-per-update "$UPDATE_TOKENS" --ctx "$CTX" \
    --precision "$PRECISION" "$@" ${limits[@]+"${limits[@]}"}
}

same_as() { [ "$(cat "$1" 2> /dev/null)" = "$2" ]; }  # FILE TEXT: whether the file holds the text
once() {  # FILE SOURCE... -- COMMAND...: unless FILE is newer than its sources and of the same command, which FILE.options has
  local out=$1 is_old=; shift
  [ -e "$out" ] || is_old=1
  until [ "$1" = -- ]; do
    [ "$out" -nt "$1" ] || is_old=1
    shift
  done
  shift
  if [ -z "$is_old" ] && same_as "$out.options" "$*"; then return; fi
  echo "== $out"
  rm -f "$out.options"  # until all that the command writes is whole
  "$@"
  echo "$*" > "$out.options"
}

systems=()
system() {  # NAME RUN.trec: adds a system to the next claims; % in the name of its rankings stands for a seed
  local seed
  systems+=(--system "$1")
  for seed in $SEEDS; do systems+=("${2//%/$seed}"); done
}

logits() {  # RUN CORPUS OUT OPTIONS...: a teacher's logits of training pairs; those of a run that was trained again are refused
  [ "$3/meta.json" -nt "$1/model.params" ] ||
    "$wqa" score "$1" --data "$(split_of "$2" train)" --filter "$(filter_of "$2")" --out "$3" --ctx "$CTX" "${@:4}"
}

json_of() { if [ -d "$1" ]; then echo "$1/test.json"; else echo "${1%.json}.test.json"; fi; }  # RUN: its figures
evaluate() {  # JSON CORPUS RUN OPTIONS... on the test questions; rankings go to JSON.RATIO.trec, judgements to JSON.qrels
  local json=$1 corpus=$2 run=$3 weights=$3; shift 3
  if [ -d "$run" ]; then weights=$run/model.params; fi
  if [ -d "$run" ] && [[ "$*" == *"--precision int8"* ]]; then weights=$run/int8.safetensors; fi
  once "$json" "$weights" "$(test_of "$corpus")" -- "$wqa" evaluate "$run" --data "$(test_of "$corpus")" \
    --filter "${TEST_FILTER:-$(filter_of "$corpus")}" --ctx "$device" ${METRICS:+--metrics "$METRICS"} "$@" --json "$json" \
    --trec-run "$json.{}.trec" --run-metadata --write-qrels "$json.qrels"
}

keep_output() { "${@:2}" | tee "$1.part"; mv "$1.part" "$1"; }  # FILE COMMAND...: its output, whole or not at all
keep_run() {  # RUN.trec NAME: puts a TREC run beside the recipe, compressed, without the folders of runs and data
  mkdir -p "$KEPT"
  sed "s|$RUNS/||g; s|$DATA/|data/|g" "$1" | gzip -9n > "$KEPT/$2.trec.gz"
}
copy_log() {  # RUN NAME: puts the log of a run beside the recipe, without the folder of the runs
  mkdir -p "$LOGS"
  sed "s|$RUNS/||g" "$1/metrics.jsonl" > "$LOGS/$2.metrics.jsonl"
}
keep_logs() {  # FOLDER PREFIX: of all runs in a folder, and their rows in a table
  local log
  for log in "$1"/*/metrics.jsonl; do [ ! -e "$log" ] || copy_log "${log%/*}" "$2$(basename "${log%/*}")"; done
  "$python" recipes/trainings.py "$LOGS"
}

epochs_of() { if [ "$1" = 4 ]; then echo $(($2 * SHALLOW_TIMES)); else echo "$2"; fi; }  # DEPTH EPOCHS: of a monolithic ranker

# On ASNQ the transferred ranker itself is the run, whatever the seed.
mono_run() {  # CORPUS DEPTH SEED
  if [ "$1" = asnq ]; then echo "$RUNS/tanda/transfer_$2"; else echo "$RUNS/tanda/$1_$2${SUFFIX:-}_seed$3"; fi
}
cascade_run() {  # CORPUS SEED
  if [ "$1" = asnq ]; then echo "$RUNS/cascade/transfer${SUFFIX:-}"; else echo "$RUNS/cascade/$1${SUFFIX:-}_seed$2"; fi
}
seeds_of() { if [ "$1" = asnq ]; then echo "${SEEDS%% *}"; else echo "$SEEDS"; fi; }  # CORPUS
sequence_of() { echo "$RUNS/sr_$1_seed$2.json"; }  # CORPUS SEED: the sequence of monolithic rankers
trained() {  # FUNCTION CORPUS ARGUMENTS...: the runs that the function names, with a seed behind, and that are trained
  local seed run
  for seed in $(seeds_of "$2"); do
    run=$("$@" "$seed")
    if [ -e "$run/model.params" ]; then echo "$run"; fi
  done
}

collect() {  # TABLE ROW LABEL CORPUS FILE.json...: figures of the seeds of a system as a row of a table
  local table=$1 row=$2 label=$3 corpus=$4; shift 4
  "$python" recipes/rows.py "$table" "$corpus" map,mrr,p@1,ndcg@10,seeds,cost_reduction --row "$row" "$@" --label "$label"
}

row() {  # TABLE ROW CORPUS RUN...: figures on test over the seeds
  local run files=()
  for run in "${@:4}"; do
    files+=("$(json_of "$run")")
    evaluate "${files[-1]}" "$3" "$run"
  done
  [ ${#files[@]} = 0 ] || collect "$1" "$2" 0 "$3" "${files[@]}"
}

cascade_rows() {  # TABLE CORPUS RATIO...: each exit, then the whole cascade; with POOL=batch it drops from batches of candidates
  local table=$1 corpus=$2 files=() run ratio exit; shift 2
  for run in $(trained cascade_run "$corpus"); do
    files+=("$run/test${POOL:+_$POOL}.json")
    evaluate "${files[-1]}" "$corpus" "$run" --per-exit --drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.4 --drop-ratio 0.5 \
      ${POOL:+--pool "$POOL"}
  done
  [ ${#files[@]} = 0 ] && return
  for exit in ${EXITS//,/ }; do
    collect "$table" "CT $exit layers${NOTE:-}" "exit $exit" "$corpus" "${files[@]}"
  done
  for ratio in "$@"; do
    collect "$table" "CT $exit layers${NOTE:-}" "$ratio" "$corpus" "${files[@]}"
  done
}
