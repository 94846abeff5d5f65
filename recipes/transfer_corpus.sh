#!/usr/bin/env bash
# A transfer corpus in place of ASNQ, of what can be downloaded as a whole: SQuAD's questions, each with its sentence, a retrieved
# sentence without the answer and its nearest neighbour in the article (data_scripts/squad_sentences.py), and SelQA's with all
# sentences of their section (data_scripts/selqa.py). Of ASNQ's negatives (Garg et al. 2020, section 4) these are those of the same
# document; SQuAD's file has one sentence an answer, so a sentence that holds an answer outside of its paragraph is not known.
#
#   DATA=data recipes/transfer_corpus.sh OUT.jsonl      SELQA= leaves SelQA out
set -euo pipefail
cd "$(dirname "$0")/.."
. recipes/settings.sh
out=$1 data=${DATA:-data} work=$(dirname "$1")
squad=${SQUAD:-$data/squad_sentences} selqa=${SELQA-$data/selqa}
if [ -e "$out" ]; then exit 0; fi
mkdir -p "$work"
if [ ! -e "$squad/stats.json" ]; then
  "$python" data_scripts/squad_sentences.py --out "$squad" ${ARCHIVE:+--archive "$ARCHIVE"}
fi
"$wqa" index "$squad/train.documents.jsonl" --out "$work/transfer.index"
"$wqa" retrieve "$work/transfer.index" --data "$squad/train.questions.jsonl" --top 20 --out "$work/transfer.retrieved.jsonl"
"$python" recipes/dcbert/random_documents.py "$work/transfer.retrieved.jsonl" "$squad/train.documents.jsonl" "$out.part" \
  --negatives 1 --near 1 --random 0
if [ -n "$selqa" ]; then
  for split in dev test; do sed "s/^{\"id\": \"/&selqa-/" "$selqa/$split.jsonl"; done >> "$out.part"
fi
mv "$out.part" "$out"
