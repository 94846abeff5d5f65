#!/usr/bin/env bash
# Table 3, and K of Figure 2b, in small over a collection on which TF-IDF is far from its limit: SQuAD's questions, and the
# sentences that answer them as the documents (data_scripts/squad_sentences.py), with MiniLM for BERT-base. DC-BERT learns
# from random documents beside a retrieved one first, then from more retrieved ones: logs/README.md says why. Trains what is missing, and writes
# results/sentences.tsv and paired tests of the claims with their intervals, results/sentences_claims.txt.
#
#   DATA=data ARCHIVE=FOLDER recipes/dcbert/sentences.sh    ARCHIVE is the folder of Du et al. 2017
#   RANKERS="bert dcbert_1 comparison" recipes/dcbert/sentences.sh
#   SMOKE=1 recipes/dcbert/sentences.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" != 1 ]; then
  data=${DATA:-data}
  export RUNS=${RUNS:-runs/dcbert_sentences} SQUAD=${SQUAD:-$data/squad_sentences}
  export QUESTION_TOKENS=${QUESTION_TOKENS:-32} DOCUMENT_TOKENS=${DOCUMENT_TOKENS:-96} PAIR_TOKENS=${PAIR_TOKENS:-128}
  export TRAIN_TOP=${TRAIN_TOP:-20} DEV_TOP=${DEV_TOP:-40} TOP=${TOP:-40}
  export EPOCHS=${EPOCHS:-1} APART_EPOCHS=${APART_EPOCHS:-1} APART_RATE=${APART_RATE:-3e-4} ENCODER_RATE=${ENCODER_RATE:-0.33}
  RANKERS=${RANKERS:-bert dcbert_1 comparison linear dcbert_2 dcbert_3 lstm}
  if [ ! -e "$SQUAD/stats.json" ]; then
    "${PYTHON:-python}" data_scripts/squad_sentences.py --out "$SQUAD" ${ARCHIVE:+--archive "$ARCHIVE"}
  fi
fi
. recipes/dcbert/minilm.bash
RANKERS=${RANKERS:-bert dcbert_1 comparison}
table=$RESULTS/sentences.tsv columns=p@1,p@5,p@10,pbt@10,ptb@10,map,p@1_kept,p@10_kept

# CORPUS squad is the questions with three retrieved documents without the answer and two random ones, squad@first those with
# one and two. Two hundred questions of dev choose the epoch.
sampled() { echo "$RUNS/dcbert/${1/@/_}_train.jsonl"; }
train_of() { sampled "$1"; }
dev_of() { echo "$RUNS/dcbert/squad_dev_first.jsonl"; }
prepare squad
[ -e "$(dev_of squad)" ] || head -n 200 "$(questions_of squad dev)" > "$(dev_of squad)"
retrieved=$(questions_of squad train)
if [ -e "${retrieved%.jsonl}.retrieved.jsonl" ]; then retrieved=${retrieved%.jsonl}.retrieved.jsonl; fi
for entry in squad@first=1 squad=3; do
  [ -e "$(sampled "${entry%=*}")" ] || "$python" recipes/dcbert/random_documents.py "$retrieved" \
    "$(documents_of squad train)" "$(sampled "${entry%=*}")" --negatives "${entry#*=}" --random 2
done

# A ranker that encodes texts apart. It is trained on squad@first before squad.
apart=(dcbert --question-length "$QUESTION_TOKENS" --max-length "$DOCUMENT_TOKENS" --document-pairs "$DOCUMENT_PAIRS")
fit_apart() {  # RANKER SEED OPTIONS...
  local name=$1 seed=$2; shift 2
  fit_by "apart_first_$name" squad@first "$seed" -- "${apart[@]}" "$@"
  START=$(run_of "apart_first_$name" squad@first "$seed") fit_by "apart_$name" squad "$seed" -- "${apart[@]}" "$@"
  encode squad "apart_$name" "$seed"
}
train_ranker() {  # RANKER SEED
  case $1 in
    bert) fit_by bert squad "$2" -- pairwise --max-length "$PAIR_TOKENS" ;;
    dcbert_*) fit_apart "$1" "$2" --layers "${1#dcbert_}" ;;
    comparison) fit_apart "$1" "$2" --layers 1 --classifier comparison ;;
    linear | lstm) fit_apart "$1" "$2" --interaction "$1" ;;
  esac
}
run_name() { if [ "$1" = bert ]; then echo bert; else echo "apart_$1"; fi; }
title_of() { case $1 in
  bert) echo "re-ranker" ;;
  dcbert_*) echo "DC-BERT, K = ${1#dcbert_}" ;;
  comparison) echo "DC-BERT, K = 1, comparing classifier" ;;
  linear) echo "DC-BERT-Linear" ;;
  lstm) echo "DC-BERT-LSTM" ;;
  esac; }

for name in $RANKERS; do
  ranked=()
  for seed in $SEEDS; do
    train_ranker "$name" "$seed"
    rank "$(run_name "$name")" squad "$seed"
    ranked+=("$(figures_of "$(run_name "$name")" squad "$seed" ranked)")
  done
  "$python" recipes/rows.py "$table" squad "$columns,seeds" --row "$(title_of "$name")" "${ranked[@]}"
done
for method in tfidf bm25; do
  out=$RUNS/dcbert/${method}_squad.ranked.json
  index squad "$method"
  retrieve squad test "$TOP" "$method"
  "$python" recipes/dcbert/retrievers.py "$(test_of squad)" "$(questions_of squad test "$method")" "$METRICS" "$out" \
    --total "$(total_of squad)"
  "$python" recipes/rows.py "$table" squad "$columns,seeds" --row "$method" "$out"
done
cat "$table"

{
  for seed in $SEEDS; do
    for name in $RANKERS; do
      if [ "$name" != bert ]; then compare "the re-ranker, $(title_of "$name")" bert "$(run_name "$name")" "$seed"; fi
    done
    for name in linear lstm dcbert_2 dcbert_3 comparison; do
      compare "$(title_of "$name"), DC-BERT with one layer" "apart_$name" apart_dcbert_1 "$seed"
    done
  done
} > "$RESULTS/sentences_claims.txt"
cat "$RESULTS/sentences_claims.txt"
for name in bert dcbert_1 comparison; do  # three of the rankers, as a run has a megabyte
  run=$(figures_of "$(run_name "$name")" squad "$FIRST_SEED" ranked).0.trec
  if [ -e "$run" ]; then keep_run "$run" "sentences_$name"; fi
done
keep_logs "$RUNS/dcbert" sentences_
