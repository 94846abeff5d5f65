# Settings and functions of the recipes of DC-BERT (Zhang et al. 2020), which source this file; those of recipes/settings.sh
# hold as well. SMOKE=1 takes the built-in corpus as the collection of every corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
paper=dcbert
if [ "${SMOKE:-0}" = 1 ]; then
  CORPORA=${CORPORA:-squad} TOP=6 TRAIN_TOP=4 READ=3 PAIR_TOKENS=152 QUESTION_TOKENS=24 DOCUMENT_TOKENS=128
  STUDENT_DEPTH=2 INTERACTIONS="1 2" CUTOFFS="1 4" CALIBRATED=4
  export ROUNDS=1 QUESTIONS=2 OMP_NUM_THREADS=1  # of speed.py; one thread does not wait for another
  READER_ENCODER=${READER_ENCODER:-${ENCODER:-${OUT:-runs/smoke}/encoder}}
else
  ENCODER=${ENCODER:-encoders/bert-base}
fi
# Section 3: BERT-base ranks, whole-word-masking BERT reads, Adam with a peak of 4e-5, 80 documents of TF-IDF, of which the
# ranker's best 10 are read. The paper publishes no batch, epochs or lengths, nor the reader's rate. These are ours, not tuned.
LEARNING_RATE=${LEARNING_RATE:-4e-5} EPOCHS=${EPOCHS:-2} READER_RATE=${READER_RATE:-3e-5} READER_EPOCHS=${READER_EPOCHS:-2}
UPDATE_TOKENS=${UPDATE_TOKENS:-8192} TOKENS=${TOKENS:-8192} PATIENCE=${PATIENCE:-0}
. recipes/settings.sh
# Epochs, batch and rate of rankers that encode questions and documents apart; ENCODER_RATE is the encoders' share of the rate.
APART_EPOCHS=${APART_EPOCHS:-$EPOCHS} APART_TOKENS=${APART_TOKENS:-$TOKENS} APART_RATE=${APART_RATE:-$LEARNING_RATE}
ENCODER_RATE=${ENCODER_RATE:-1}

SQUAD=${SQUAD:-data/squad_open}         # python data_scripts/squad_open.py --collection wikipedia --archive ... --out ...
NQ=${NQ:-data/nq_open}                  # python data_scripts/nq_open.py
READER_ENCODER=${READER_ENCODER:-encoders/bert-wwm}
CORPORA=${CORPORA:-squad nq}
TOP=${TOP:-80}                          # documents that TF-IDF retrieves for a question
TRAIN_TOP=${TRAIN_TOP:-$TOP} DEV_TOP=${DEV_TOP:-$TOP}       # ... for a training question, for one that chooses the epoch
RANDOM_DOCUMENTS=${RANDOM_DOCUMENTS:-0} # that a training question has, beside the first retrieved one of each label; 0: all retrieved
READ=${READ:-10}                        # documents that are read
PAIR_TOKENS=${PAIR_TOKENS:-256}         # of a question and a document together
QUESTION_TOKENS=${QUESTION_TOKENS:-64} DOCUMENT_TOKENS=${DOCUMENT_TOKENS:-192}  # of each apart
STUDENT_DEPTH=${STUDENT_DEPTH:-2}       # layers of the distilled student (DistilBERT's row)
ALPHA=${ALPHA:-0.5} TAU=${TAU:-2}       # the student's: the paper takes an earlier release's, and does not name them
DOCUMENT_PAIRS=${DOCUMENT_PAIRS:-1}     # pairs of a document in a batch, which encodes it once
INTERACTIONS=${INTERACTIONS:-1 2 3 4 5 6}                   # K of Figure 2b
CUTOFFS=${CUTOFFS:-1 5 10 20 30 40 50}  # N of Figure 2a
RANK_PRECISION=${RANK_PRECISION:-float32}                   # of rankings and timings
export QUESTIONS=${QUESTIONS:-100}      # that speed.py times in each round
METRICS=map,mrr,pbt@10,ptb@10
for number in 1 5 10 $CUTOFFS; do case ,$METRICS, in *,hit@$number,*) ;; *) METRICS=$METRICS,hit@$number ;; esac; done
FIRST_SEED=${SEEDS%% *}
TEST_FILTER=all                         # a question without an answer among its documents counts as wrong
mkdir -p "$RUNS/dcbert"

collection_of() {  # CORPUS: the folder of documents and questions
  if [ "${SMOKE:-0}" = 1 ]; then echo "$RUNS/dcbert/collection"; return; fi
  case $1 in squad) echo "$SQUAD" ;; nq) echo "$NQ" ;; esac
}
index_of() { echo "$RUNS/dcbert/$1.${2:-tfidf}"; }  # CORPUS [METHOD]
questions_of() {  # CORPUS SPLIT [METHOD]: with documents. Natural Questions Open comes with its own.
  local given; given=$(collection_of "$1")/$2.jsonl
  if [ -e "$given" ]; then echo "$given"; else echo "$RUNS/dcbert/$1_$2.${3:-tfidf}.jsonl"; fi
}
train_of() { questions_of "$1" train; }
dev_of() { questions_of "$1" dev; }
test_of() { questions_of "$1" test; }
filter_of() { echo no-all-negative; }   # of the training: questions without an answer among their documents teach nothing

index() {  # CORPUS [METHOD]
  local out; out=$(index_of "$1" "${2:-}")
  if [ ! -e "$out" ]; then
    "$wqa" index "$(collection_of "$1")/documents.jsonl" --method "${2:-tfidf}" --out "$out"
  fi
}
documents_of() {  # CORPUS SPLIT: those of the whole collection, unless the split has documents of its own
  local own; own=$(collection_of "$1")/$2.documents.jsonl
  if [ -e "$own" ]; then echo "$own"; else echo "$(collection_of "$1")/documents.jsonl"; fi
}
index_of_split() {  # CORPUS SPLIT [METHOD]
  local documents out; documents=$(documents_of "$1" "$2")
  if [ "$documents" = "$(collection_of "$1")/documents.jsonl" ]; then index_of "$1" "${3:-}"; return; fi
  out=$(index_of "$1_$2" "${3:-}")
  if [ ! -e "$out" ]; then "$wqa" index "$documents" --method "${3:-tfidf}" --out "$out" >&2 || return; fi
  echo "$out"
}
retrieve() {  # CORPUS SPLIT TOP [METHOD]
  local index out retrieved; out=$(questions_of "$1" "$2" "${4:-tfidf}")
  if [ -e "$out" ]; then return; fi
  retrieved=$out
  if [ "$2" = train ] && [ "$RANDOM_DOCUMENTS" != 0 ]; then retrieved=${out%.jsonl}.retrieved.jsonl; fi
  index=$(index_of_split "$1" "$2" "${4:-}")
  "$wqa" retrieve "$index" --data "$(collection_of "$1")/$2.questions.jsonl" --top "$3" --out "$retrieved"
  if [ "$retrieved" != "$out" ]; then
    "$python" recipes/dcbert/random_documents.py "$retrieved" "$(documents_of "$1" "$2")" "$out" --random "$RANDOM_DOCUMENTS"
  fi
}
prepare() {  # CORPUS: its index, and its questions with the documents of TF-IDF
  if [ "${SMOKE:-0}" = 1 ] && [ ! -e "$(collection_of "$1")/documents.jsonl" ]; then
    "$python" recipes/dcbert/builtin_collection.py "$(collection_of "$1")"
  fi
  index "$1"
  retrieve "$1" train "$TRAIN_TOP"
  retrieve "$1" dev "$DEV_TOP"
  retrieve "$1" test "$TOP"
}

run_of() { echo "$RUNS/dcbert/${1}_$2_seed${3:-$FIRST_SEED}"; }  # RANKER CORPUS [SEED]
cache_of() { echo "$(run_of "$@").cache"; }
runs_of() { local seed; for seed in $SEEDS; do run_of "$1" "$2" "$seed"; done; }  # RANKER CORPUS
logits_of() { echo "$(run_of bert "$1").logits"; }          # CORPUS: of the teacher

tested_documents() {  # CORPUS: those that test questions retrieve, which is all that a ranking reads of a cache
  local out=$RUNS/dcbert/$1_test.documents.jsonl
  if [ ! "$out" -nt "$(test_of "$1")" ]; then
    "$python" recipes/dcbert/tested_documents.py "$(test_of "$1")" "$(collection_of "$1")/documents.jsonl" "$out" >&2 || return
  fi
  echo "$out"
}

# RANKER CORPUS [SEED]: trains it where that was not done, from the run START or from the encoder. bert is the re-ranker of the concatenation, int8 the same in 8 bits,
# student its distilled student; dcbert_K has K interaction layers, linear and lstm are
# Table 3's; reader reads.
fit() {
  local name=$1 corpus=$2 seed=${3:-$FIRST_SEED} apart
  apart=(dcbert --question-length "$QUESTION_TOKENS" --max-length "$DOCUMENT_TOKENS" --document-pairs "$DOCUMENT_PAIRS")
  prepare "$corpus"
  case $name in
    bert) fit_by "$@" -- pairwise --max-length "$PAIR_TOKENS" ;;
    int8) fit bert "$corpus" "$seed"; quantize "$corpus" "$seed" ;;
    reader) fit_by "$@" -- reader ;;
    student)
      fit bert "$corpus"
      teach "$corpus"
      fit_by "$@" -- pairwise --exits "$STUDENT_DEPTH" --max-length "$PAIR_TOKENS" --teachers "$(logits_of "$corpus")" \
        --alpha "$ALPHA" --tau "$TAU" ;;
    dcbert_*) fit_by "$@" -- "${apart[@]}" --layers "${name#dcbert_}"; encode "$corpus" "$name" "$seed" ;;
    linear | lstm) fit_by "$@" -- "${apart[@]}" --interaction "$name"; encode "$corpus" "$name" "$seed" ;;
  esac
}
fit_by() {  # RANKER CORPUS [SEED] -- SYSTEM OPTIONS...
  local name=$1 corpus=$2 seed=$FIRST_SEED system; shift 2
  if [ "$1" != -- ]; then seed=$1; shift; fi
  system=$2; shift 2
  local encoder=$ENCODER rate=$LEARNING_RATE encoder_rate=1 epochs=$EPOCHS TOKENS=$TOKENS start
  case $name in
    reader) encoder=$READER_ENCODER rate=$READER_RATE epochs=$READER_EPOCHS ;;
    dcbert_* | apart_* | linear | lstm)
      rate=$APART_RATE encoder_rate=$ENCODER_RATE epochs=$APART_EPOCHS TOKENS=$APART_TOKENS ;;
  esac
  start=(--encoder "$encoder")
  if [ -n "${START:-}" ]; then start=(--init "$START"); fi
  train "dcbert/${name}_${corpus}_seed$seed" "$system" "$corpus" "${start[@]}" --seed "$seed" \
    --learning-rate "$rate" --encoder-rate "$encoder_rate" --epochs "$epochs" --long-questions truncate "$@"
}
teach() {  # CORPUS: the teacher's logits of the training pairs; those of a run that was trained again are refused
  if [ ! "$(logits_of "$1")/meta.json" -nt "$(run_of bert "$1")/model.params" ]; then
    "$wqa" score "$(run_of bert "$1")" --data "$(train_of "$1")" --filter "$(filter_of "$1")" --out "$(logits_of "$1")" \
      --ctx "$device" --long-questions truncate
  fi
}
# CORPUS RANKER [SEED]: a cache of the documents that are ranked, once. Those of all Wikipedia take days and terabytes; the encodings
# of a run that was trained again are of no use.
encode() {
  local run documents; run=$(run_of "$2" "$1" "${3:-$FIRST_SEED}")
  if [ ! "$run.encoded" -nt "$run/model.params" ]; then
    if [ -e "$run.encoded" ]; then rm -rf "$run.encoded" "$run.cache"; fi
    documents=$(tested_documents "$1")
    "$wqa" encode "$run" --documents "$documents" --out "$run.cache" --ctx "$CTX"
    touch "$run.encoded"
  fi
}
quantize() {  # CORPUS [SEED]: the re-ranker's 8-bit weights, calibrated on dev
  local run; run=$(run_of bert "$@")
  if [ ! "$run/int8.safetensors" -nt "$run/model.params" ]; then
    "$wqa" quantize "$run" --data "$(dev_of "$1")" --questions "${CALIBRATED:-100}" --long-questions truncate
  fi
}
has_int8() {  # whether the device that ranks computes in int8
  [[ $device == cpu* ]] && "$python" -c 'from wqa.engines.onednn import check_precision; check_precision("int8")' 2> /dev/null
}

# What rankings, readings and speed.py need of a ranker beside its run. int8 is the re-ranker in 8 bits.
ranker_of() { if [ "$1" = int8 ]; then run_of bert "$2" "${3:-}"; else run_of "$@"; fi; }  # RANKER CORPUS [SEED]
figures_of() { echo "$RUNS/dcbert/${1}_$2_seed${3:-$FIRST_SEED}.$4.json"; }  # RANKER CORPUS SEED KIND
cache_options() {  # RANKER CORPUS [SEED]
  if [ -e "$(cache_of "$@")" ]; then echo "--cache $(cache_of "$@")"; fi
}
precision_of() {  # RANKER: of its rankings and timings
  case $1 in
    int8) echo int8 ;;
    lstm) echo float32 ;;               # MXNet runs the LSTM
    *) echo "$RANK_PRECISION" ;;
  esac
}

rank() {  # RANKER CORPUS SEED OPTIONS...: figures on test, and the rankings beside them
  local name=$1 corpus=$2 seed=$3; shift 3
  evaluate "$(figures_of "$name" "$corpus" "$seed" ranked)" "$corpus" "$(ranker_of "$name" "$corpus" "$seed")" \
    --metrics "$METRICS" --total "$(total_of "$corpus")" --long-questions truncate --precision "$(precision_of "$name")" \
    $(cache_options "$name" "$corpus" "$seed") "$@"
}
answer() {  # RANKER CORPUS SEED: what the reader answers from the ranker's best documents
  read_first "$2" "$(test_of "$2")" "$(figures_of "$@" answered)" "$(figures_of "$@" ranked).0.trec"
}
read_first() {  # CORPUS QUESTIONS OUT [RUN.trec]: figures of the same reader and documents by the same options stay
  local corpus=$1 questions=$2 out=$3 ranking=${4:-$2} reader arguments
  reader=$(run_of reader "$corpus")
  arguments=("$questions" "$reader" "$out" --read "$READ" --ctx "$device" --total "$(total_of "$corpus")")
  arguments+=(--precision "$RANK_PRECISION" ${4:+--run "$4"})
  if [ "$out" -nt "$reader/model.params" ] && [ "$out" -nt "$ranking" ] && same_as "$out.options" "${arguments[*]}"; then
    return
  fi
  "$python" recipes/dcbert/read.py "${arguments[@]}"
  echo "${arguments[*]}" > "$out.options"
}
total_of() {  # CORPUS: test questions, those that retrieve nothing included
  local all; all=$(collection_of "$1")/test.questions.jsonl
  if [ ! -e "$all" ]; then all=$(test_of "$1"); fi
  wc -l < "$all"
}

row() {  # TABLE ROW CORPUS RANKER COLUMNS [SPEED]: figures of a ranker over its seeds; speed.py's are of the first seed
  local table=$1 row=$2 corpus=$3 name=$4 columns=$5 speed=${6:-} seed ranked=() answered=()
  for seed in ${ROW_SEEDS:-$SEEDS}; do
    fit "$name" "$corpus" "$seed"
    rank "$name" "$corpus" "$seed"
    ranked+=("$(figures_of "$name" "$corpus" "$seed" ranked)")
    case ,$columns, in *,em,*)
      fit reader "$corpus"
      answer "$name" "$corpus" "$seed"
      answered+=("$(figures_of "$name" "$corpus" "$seed" answered)")
    esac
  done
  "$python" recipes/rows.py "$table" "$corpus" "$columns,seeds" --row "$row" "${ranked[@]}" --label 0 \
    --beside ${answered[@]+"${answered[@]}"} ${speed:+--timed "$speed" "$name"}
}
retriever_row() {  # TABLE ROW CORPUS METHOD COLUMNS [SPEED]: a retriever alone, beside TF-IDF, and answers from its best documents
  local table=$1 row=$2 corpus=$3 method=$4 columns=$5 speed=${6:-} out=$RUNS/dcbert/$4_$3 questions
  questions=$(questions_of "$corpus" test "$method")
  index "$corpus" "$method"
  retrieve "$corpus" test "$TOP" "$method"
  "$python" recipes/dcbert/retrievers.py "$(test_of "$corpus")" "$questions" "$METRICS" "$out.ranked.json" \
    --total "$(total_of "$corpus")"
  fit reader "$corpus"
  read_first "$corpus" "$questions" "$out.answered.json"
  "$python" recipes/rows.py "$table" "$corpus" "$columns,seeds" --row "$row" "$out.ranked.json" \
    --beside "$out.answered.json" ${speed:+--timed "$speed" "$method"}
}
compare() {  # TITLE RANKER RANKER SEED: tests of a difference, the second's less the first's, where both are ranked
  local first second
  first=$(figures_of "$2" squad "$4" ranked) second=$(figures_of "$3" squad "$4" ranked)
  if [ ! -e "$first" ] || [ ! -e "$second" ]; then return; fi
  echo "# $1, seed $4"
  (cd "$RUNS/dcbert" && "$wqa" evaluate --run "$(basename "$first").0.trec" --run "$(basename "$second").0.trec" \
    --qrels "$(basename "$first").qrels" --filter all --metrics map,hit@1,hit@10)
  echo
}
# JSON CORPUS RANKER...: questions a second, in turn; speedups are over the first. tfidf and bm25 retrieve.
timed() {
  local json=$1 corpus=$2 name cache arguments=() settings; shift 2
  for name in "$@"; do
    case $name in tfidf | bm25)
      index "$corpus" "$name"
      arguments+=("$name=$(index_of "$corpus" "$name");top=$TOP")
      continue
    esac
    cache=$(cache_of "$name" "$corpus")
    if [ -e "$cache" ]; then cache=";cache=$cache"; else cache=; fi
    arguments+=("$name=$(ranker_of "$name" "$corpus")$cache;precision=$(precision_of "$name")")
  done
  settings="$QUESTIONS questions, ${ROUNDS:-5} rounds, $device: ${arguments[*]}"
  if [ ! -e "$json" ] || ! same_as "$json.options" "$settings"; then
    CTX=$device "$python" recipes/dcbert/speed.py "$(test_of "$corpus")" "$json" "${arguments[@]}" |
      tee "$RESULTS/$(basename "$json" .json).txt"
    echo "$settings" > "$json.options"
  fi
}
