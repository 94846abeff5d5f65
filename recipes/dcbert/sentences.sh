#!/usr/bin/env bash
# Table 3, and K of Figure 2b, in small over a collection on which TF-IDF is far from its limit: SQuAD's questions, and the
# sentences that answer them as the documents, with MiniLM for BERT-base (results/sentences.tsv, sentences_claims.txt). DC-BERT
# learns from random documents beside a retrieved one first, then from more retrieved ones: logs/README.md says why.
#   DATA=data ARCHIVE=FOLDER recipes/dcbert/sentences.sh    ARCHIVE is the folder of Du et al. 2017
#   RANKERS="bert dcbert_1 comparison" recipes/dcbert/sentences.sh
if [ "${SMOKE:-0}" != 1 ]; then
  export RUNS=${RUNS:-runs/dcbert_sentences} SQUAD=${SQUAD:-${DATA:-data}/squad_sentences}
  export QUESTION_TOKENS=${QUESTION_TOKENS:-32} DOCUMENT_TOKENS=${DOCUMENT_TOKENS:-96} PAIR_TOKENS=${PAIR_TOKENS:-128}
  export TRAIN_TOP=${TRAIN_TOP:-20} DEV_TOP=${DEV_TOP:-40} TOP=${TOP:-40}
  export EPOCHS=${EPOCHS:-1} APART_EPOCHS=${APART_EPOCHS:-1} APART_RATE=${APART_RATE:-3e-4} ENCODER_RATE=${ENCODER_RATE:-0.33}
  RANKERS=${RANKERS:-bert dcbert_1 comparison linear dcbert_2 dcbert_3 lstm}
  collection=(squad_sentences.py ${ARCHIVE:+--archive "$ARCHIVE"})
fi
. "$(dirname "$0")/minilm.bash"
RANKERS=${RANKERS:-bert dcbert_1 comparison}
table=$RESULTS/sentences.tsv columns=p@1,p@5,p@10,pbt@10,ptb@10,map,p@1_kept,p@10_kept

# CORPUS squad is the questions with three retrieved documents without the answer and two random ones, squad@first those with
# one and two. Two hundred questions of dev choose the epoch.
sampled() { echo "$RUNS/dcbert/${1/@/_}_train.jsonl"; }
train_of() { sampled "$1"; }
dev_of() { echo "$RUNS/dcbert/squad_dev_first.jsonl"; }
prepare squad
[ -e "$(dev_of squad)" ] || head -n 200 "$(split_of squad dev)" > "$(dev_of squad)"
retrieved=$(split_of squad train)
if [ -e "${retrieved%.jsonl}.retrieved.jsonl" ]; then retrieved=${retrieved%.jsonl}.retrieved.jsonl; fi
for entry in squad@first=1 squad=3; do
  [ -e "$(sampled "${entry%=*}")" ] || "$python" recipes/dcbert/random_documents.py "$retrieved" \
    "$(documents_of squad train)" "$(sampled "${entry%=*}")" --negatives "${entry#*=}" --random 2
done

# A ranker is bert or apart_NAME, which encodes texts apart and is trained on squad@first before squad.
rankers=" $RANKERS" rankers=${rankers// / apart_} rankers=${rankers/apart_bert/bert}
fit() {  # RANKER CORPUS SEED
  local first=apart_first_${1#apart_}
  if [ "$1" = bert ]; then
    fit_by bert squad "$3" pairwise --max-length "$PAIR_TOKENS"
    return
  fi
  fit_apart "$first" squad@first "$3"
  START=$(run_of "$first" squad@first "$3") fit_apart "$1" squad "$3"
  encode "$1" squad "$3"
}

rows "$table" squad "$columns" "" $rankers
for method in tfidf bm25; do retriever_row "$table" "$method" squad "$method" "$columns"; done
cat "$table"

claims() {
  for seed in $SEEDS; do
    for name in $rankers; do
      if [ "$name" != bert ]; then compare "the re-ranker, $(title_of "$name")" bert "$name" "$seed"; fi
    done
    for name in linear lstm dcbert_2 dcbert_3 comparison; do
      compare "$(title_of "$name"), DC-BERT with one layer" "apart_$name" apart_dcbert_1 "$seed"
    done
  done
}
keep_output "$RESULTS/sentences_claims.txt" claims
for name in bert apart_dcbert_1 apart_comparison; do  # three of the rankers, as a run has a megabyte
  run=$(figures_of "$name" squad "$FIRST_SEED" ranked).0.trec
  if [ -e "$run" ]; then keep_run "$run" "sentences_${name#apart_}"; fi
done
keep_logs "$RUNS/dcbert" sentences_
