#!/usr/bin/env bash
# A transfer corpus in place of ASNQ: SQuAD's questions, each with the sentence that answers it, a sentence that was retrieved from
# the whole collection and the nearest sentence in the order of the articles that was not, and SelQA's questions with all sentences
# of their section. One in six of SQuAD's questions does not retrieve its sentence, and has one negative and no positive.
#   DATA=data recipes/transfer_corpus.sh OUT.jsonl
. "$(dirname "$0")/settings.sh"
out=$1 work=$(dirname "$1") squad=${SQUAD:-$DATA/squad_sentences} selqa=${SELQA:-$DATA/selqa}
if [ -e "$out" ]; then exit 0; fi
mkdir -p "$work"
[ -e "$selqa/stats.json" ] || "$python" data_scripts/selqa.py --out "$selqa" ${SELQA_ARCHIVE:+--archive "$SELQA_ARCHIVE"}
[ -e "$squad/stats.json" ] || "$python" data_scripts/squad_sentences.py --out "$squad" ${ARCHIVE:+--archive "$ARCHIVE"}
"$wqa" index "$squad/train.documents.jsonl" --method tfidf --out "$work/transfer.index"
"$wqa" retrieve "$work/transfer.index" --data "$squad/train.questions.jsonl" --top 20 --out "$work/transfer.retrieved.jsonl"
"$python" recipes/dcbert/random_documents.py "$work/transfer.retrieved.jsonl" "$squad/train.documents.jsonl" "$out.part" \
  --negatives 1 --near 1 --random 0
for split in dev test; do sed "s/^{\"id\": \"/&selqa-/" "$selqa/$split.jsonl"; done >> "$out.part"
mv "$out.part" "$out"
