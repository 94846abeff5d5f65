# Settings and functions of the recipes of DC-BERT (Zhang et al. 2020), beside those of recipes/settings.sh.
paper=dcbert
if [ "${SMOKE:-0}" = 1 ]; then
  CORPORA=${CORPORA:-squad} TOP=6 TRAIN_TOP=4 READ=3 PAIR_TOKENS=152 QUESTION_TOKENS=24 DOCUMENT_TOKENS=128
  STUDENT_DEPTH=2 INTERACTIONS="1 2" CUTOFFS="1 4" CALIBRATED=4
  export ROUNDS=1 QUESTIONS=2 OMP_NUM_THREADS=1  # of speed.py; one thread does not wait for another
  READER_ENCODER=${READER_ENCODER:-${ENCODER:-${OUT:-runs/smoke}/encoder}}
  SQUAD=${OUT:-runs/smoke}/dcbert/collection NQ=$SQUAD
else
  ENCODER=${ENCODER:-encoders/bert-base}
fi
# Section 3 has the ranker's rate; the paper publishes no batch, epochs or lengths, nor the reader's rate: ours, not tuned.
LEARNING_RATE=${LEARNING_RATE:-4e-5} EPOCHS=${EPOCHS:-2} READER_RATE=${READER_RATE:-3e-5} READER_EPOCHS=${READER_EPOCHS:-2}
UPDATE_TOKENS=${UPDATE_TOKENS:-8192} TOKENS=${TOKENS:-8192} PATIENCE=${PATIENCE:-0}
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
# Epochs, batch and rate of rankers that encode questions and documents apart; ENCODER_RATE is the encoders' share of the rate.
APART_EPOCHS=${APART_EPOCHS:-$EPOCHS} APART_TOKENS=${APART_TOKENS:-$TOKENS} APART_RATE=${APART_RATE:-$LEARNING_RATE}
ENCODER_RATE=${ENCODER_RATE:-1}

SQUAD=${SQUAD:-$DATA/squad_open}         # python data_scripts/squad_open.py --collection wikipedia --archive ... --out ...
NQ=${NQ:-$DATA/nq_open}                  # python data_scripts/nq_open.py
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
TEST_FILTER=all                         # a question without an answer among its documents counts as wrong

collection_of() { local folder=${1^^}; echo "${!folder}"; }   # CORPUS: the folder of documents and questions
split_of() {  # CORPUS SPLIT [METHOD]: questions with documents. Natural Questions Open comes with its own.
  local given; given=$(collection_of "$1")/$2.jsonl
  if [ -e "$given" ]; then echo "$given"; else echo "$RUNS/dcbert/$1_$2.${3:-tfidf}.jsonl"; fi
}
filter_of() { echo no-all-negative; }   # of the training: questions without an answer among their documents teach nothing

documents_of() {  # CORPUS [SPLIT]: those of the whole collection, unless the split has documents of its own
  local own; own=$(collection_of "$1")/${2:-}.documents.jsonl
  if [ -e "$own" ]; then echo "$own"; else echo "$(collection_of "$1")/documents.jsonl"; fi
}
index() {  # CORPUS METHOD [SPLIT]: prints where it is
  local documents out=$RUNS/dcbert/$1.$2; documents=$(documents_of "$1" "${3:-}")
  if [ "$documents" != "$(documents_of "$1")" ]; then out=$RUNS/dcbert/$1_$3.$2; fi
  [ -e "$out" ] || "$wqa" index "$documents" --method "$2" --out "$out" >&2 || return
  echo "$out"
}
retrieve() {  # CORPUS SPLIT TOP METHOD
  local index out retrieved; out=$(split_of "$1" "$2" "$4")
  if [ -e "$out" ]; then return; fi
  retrieved=$out
  if [ "$2" = train ] && [ "$RANDOM_DOCUMENTS" != 0 ]; then retrieved=${out%.jsonl}.retrieved.jsonl; fi
  index=$(index "$1" "$4" "$2")
  "$wqa" retrieve "$index" --data "$(collection_of "$1")/$2.questions.jsonl" --top "$3" --out "$retrieved"
  [ "$retrieved" = "$out" ] ||
    "$python" recipes/dcbert/random_documents.py "$retrieved" "$(documents_of "$1" "$2")" "$out" --random "$RANDOM_DOCUMENTS"
}
prepare() {  # CORPUS: its index, and its questions with the documents of TF-IDF
  if [ "${SMOKE:-0}" = 1 ] && [ ! -e "$(documents_of "$1")" ]; then
    "$python" recipes/dcbert/builtin_collection.py "$(collection_of "$1")"
  fi
  index "$1" tfidf > /dev/null
  retrieve "$1" train "$TRAIN_TOP" tfidf
  retrieve "$1" dev "$DEV_TOP" tfidf
  retrieve "$1" test "$TOP" tfidf
}
tested_documents() {  # CORPUS: those that test questions retrieve, which is all that a ranking reads of a cache
  local out=$RUNS/dcbert/$1_test.documents.jsonl
  [ "$out" -nt "$(test_of "$1")" ] ||
    "$python" recipes/dcbert/tested_documents.py "$(test_of "$1")" "$(documents_of "$1")" "$out" >&2 || return
  echo "$out"
}
total_of() {  # CORPUS: test questions, those that retrieve nothing included
  local all; all=$(collection_of "$1")/test.questions.jsonl
  if [ ! -e "$all" ]; then all=$(test_of "$1"); fi
  wc -l < "$all"
}

# A ranker is bert, the re-ranker of the concatenation; int8, the same in 8 bits; student, its distilled student; dcbert_K, with K
# interaction layers; linear or lstm, Table 3's. reader reads.
run_of() { echo "$RUNS/dcbert/${1/int8/bert}_$2_seed${3:-$FIRST_SEED}"; }  # RANKER CORPUS [SEED]
figures_of() { echo "$RUNS/dcbert/${1}_$2_seed$3.$4.json"; }               # RANKER CORPUS SEED KIND
title_of() { case $1 in  # RANKER: the row of the tables
  bert) echo BERT-base ;;
  int8) echo "Quantized BERT" ;;
  student) echo DistilBERT ;;
  dcbert_1) echo DC-BERT ;;
  linear) echo DC-BERT-Linear ;;
  lstm) echo DC-BERT-LSTM ;;
  esac; }
precision_of() { case ${1#apart_} in  # RANKER: of its rankings and timings
  int8) echo int8 ;;
  lstm) echo float32 ;;                 # MXNet runs the LSTM
  *) echo "$RANK_PRECISION" ;;
  esac; }
has_int8() {  # whether the device that ranks computes in int8
  [[ $device == cpu* ]] && "$python" -c 'from wqa.engines.onednn.library import check_precision; check_precision("int8")' 2> /dev/null
}
possible() {  # RANKER...: those whose precision the device has
  local name
  for name in "$@"; do
    if [ "$name" != int8 ] || has_int8; then echo "$name"; else echo "note: no int8 here; its row is left out" >&2; fi
  done
}

# RANKER CORPUS [SEED]: trains it where that was not done, and makes the cache of the documents that it ranks. That of all Wikipedia
# takes days and terabytes.
fit() {
  local name=$1 corpus=$2 seed=${3:-$FIRST_SEED} run
  prepare "$corpus"
  case $name in
    bert) fit_by bert "$corpus" "$seed" pairwise --max-length "$PAIR_TOKENS" ;;
    int8)
      fit bert "$corpus" "$seed"
      run=$(run_of bert "$corpus" "$seed")
      [ "$run/int8.safetensors" -nt "$run/model.params" ] ||
        "$wqa" quantize "$run" --data "$(dev_of "$corpus")" --questions "${CALIBRATED:-100}" --long-questions truncate ;;
    reader) fit_by reader "$corpus" "$seed" reader ;;
    student)
      fit bert "$corpus"
      run=$(run_of bert "$corpus")
      logits "$run" "$corpus" "$run.logits" --long-questions truncate
      fit_by student "$corpus" "$seed" pairwise --exits "$STUDENT_DEPTH" --max-length "$PAIR_TOKENS" --teachers "$run.logits" \
        --alpha "$ALPHA" --tau "$TAU" ;;
    *)
      fit_apart "$name" "$corpus" "$seed"
      encode "$name" "$corpus" "$seed" ;;
  esac
}
fit_apart() {  # RANKER CORPUS SEED: one that encodes questions and documents apart
  local name=${1##*apart_} options; name=${name#first_}
  case $name in
    dcbert_*) options=(--layers "${name#dcbert_}") ;;
    comparison) options=(--layers 1 --classifier comparison) ;;
    linear | lstm) options=(--interaction "$name") ;;
  esac
  TOKENS=$APART_TOKENS fit_by "$@" dcbert --question-length "$QUESTION_TOKENS" --max-length "$DOCUMENT_TOKENS" \
    --document-pairs "$DOCUMENT_PAIRS" "${options[@]}"
}
encode() {  # RANKER CORPUS SEED: its cache; encodings of a run that was trained again are of no use
  local run documents; run=$(run_of "$@")
  if [ ! "$run.encoded" -nt "$run/model.params" ]; then
    if [ -e "$run.encoded" ]; then rm -rf "$run.encoded" "$run.cache"; fi
    documents=$(tested_documents "$2")
    "$wqa" encode "$run" --documents "$documents" --out "$run.cache" --ctx "$CTX"
    touch "$run.encoded"
  fi
}
fit_by() {  # RANKER CORPUS SEED SYSTEM OPTIONS...: from the run START or from the encoder
  local name=$1 corpus=$2 seed=$3 system=$4 start=(--encoder "$ENCODER") rate=$LEARNING_RATE encoder_rate=1 epochs=$EPOCHS; shift 4
  case $system in
    reader) start=(--encoder "$READER_ENCODER") rate=$READER_RATE epochs=$READER_EPOCHS ;;
    dcbert) rate=$APART_RATE encoder_rate=$ENCODER_RATE epochs=$APART_EPOCHS ;;
  esac
  if [ -n "${START:-}" ]; then start=(--init "$START"); fi
  train "dcbert/${name}_${corpus}_seed$seed" "$system" "$corpus" "${start[@]}" --seed "$seed" \
    --learning-rate "$rate" --encoder-rate "$encoder_rate" --epochs "$epochs" --long-questions truncate "$@"
}

rank() {  # RANKER CORPUS SEED: figures on test, and the rankings beside them
  local run; run=$(run_of "$@")
  if [ -e "$run.cache" ]; then set -- "$@" --cache "$run.cache"; fi
  evaluate "$(figures_of "$1" "$2" "$3" ranked)" "$2" "$run" --total "$(total_of "$2")" \
    --long-questions truncate --precision "$(precision_of "$1")" "${@:4}"
}
read_first() {  # CORPUS QUESTIONS OUT [RUN.trec]
  local reader
  fit reader "$1"
  reader=$(run_of reader "$1")
  once "$3" "$reader/model.params" "${4:-$2}" -- "$python" recipes/dcbert/read.py "$2" "$reader" "$3" --read "$READ" \
    --ctx "$device" --total "$(total_of "$1")" --precision "$RANK_PRECISION" ${4:+--run "$4"}
}
rows() {  # TABLE CORPUS COLUMNS SPEED RANKER...: figures over the seeds; speed.py's, if any, are of the first seed
  local table=$1 corpus=$2 columns=$3 speed=$4 name seed ranked answered; shift 4
  for name in "$@"; do
    ranked=() answered=()
    for seed in ${ROW_SEEDS:-$SEEDS}; do
      fit "$name" "$corpus" "$seed"
      rank "$name" "$corpus" "$seed"
      ranked+=("$(figures_of "$name" "$corpus" "$seed" ranked)")
      if [[ ,$columns, == *,em,* ]]; then
        answered+=("$(figures_of "$name" "$corpus" "$seed" answered)")
        read_first "$corpus" "$(test_of "$corpus")" "${answered[-1]}" "${ranked[-1]}.0.trec"
      fi
    done
    "$python" recipes/rows.py "$table" "$corpus" "$columns,seeds" --row "$(title_of "$name")" "${ranked[@]}" --label 0 \
      --beside ${answered[@]+"${answered[@]}"} ${speed:+--timed "$speed" "$name"}
  done
}
retriever_row() {  # TABLE ROW CORPUS METHOD COLUMNS [SPEED]: a retriever alone, beside TF-IDF, and answers from its best documents
  local corpus=$3 method=$4 columns=$5 out=$RUNS/dcbert/$4_$3 questions answered=()
  questions=$(split_of "$corpus" test "$method")
  retrieve "$corpus" test "$TOP" "$method"
  "$python" recipes/dcbert/retrievers.py "$(test_of "$corpus")" "$questions" "$METRICS" "$out.ranked.json" \
    --total "$(total_of "$corpus")"
  if [[ ,$columns, == *,em,* ]]; then
    answered=("$out.answered.json")
    read_first "$corpus" "$questions" "${answered[0]}"
  fi
  "$python" recipes/rows.py "$1" "$corpus" "$columns,seeds" --row "$2" "$out.ranked.json" \
    --beside ${answered[@]+"${answered[@]}"} ${6:+--timed "$6" "$method"}
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
  local json=$1 corpus=$2 name run arguments=(); shift 2
  for name in "$@"; do
    if [[ $name == tfidf || $name == bm25 ]]; then
      run=$(index "$corpus" "$name")
      arguments+=("$name=$run;top=$TOP")
    else
      fit "$name" "$corpus"
      run=$(run_of "$name" "$corpus")
      if [ -e "$run.cache" ]; then run="$run;cache=$run.cache"; fi
      arguments+=("$name=$run;precision=$(precision_of "$name")")
    fi
  done
  once "$json" -- keep_output "$RESULTS/$(basename "$json" .json).txt" env CTX="$device" QUESTIONS="$QUESTIONS" ROUNDS="${ROUNDS:-5}" \
    "$python" recipes/dcbert/speed.py "$(test_of "$corpus")" "$json" "${arguments[@]}"
}
