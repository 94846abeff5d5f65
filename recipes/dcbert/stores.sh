#!/usr/bin/env bash
# What a document cache loses by its element type and by leaving out the end of documents: P@N and MAP of DC-BERT with one layer, and
# the bytes of a document. Trains what is missing; writes $RESULTS/stores_CORPUS.tsv.
#
#   recipes/dcbert/stores.sh         settings: recipes/dcbert/settings.bash
#   FIRST_TOKENS="96 48" recipes/dcbert/stores.sh
#   SMOKE=1 recipes/dcbert/stores.sh
. "$(dirname "$0")/settings.bash"
STORES=${STORES:-float32 float16 bfloat16 int8} FIRST_TOKENS=${FIRST_TOKENS:-128 64 32}
if [ "${SMOKE:-0}" = 1 ]; then STORES="float16 int8" FIRST_TOKENS=8; fi

for corpus in $CORPORA; do
  fit dcbert_1 "$corpus"
  documents=$(tested_documents "$corpus")
  "$python" recipes/dcbert/stores.py "$(run_of dcbert_1 "$corpus")" "$(test_of "$corpus")" "$documents" \
    "${TABLE:-$RESULTS/stores_$corpus.tsv}" --stores $STORES --first-tokens $FIRST_TOKENS --total "$(total_of "$corpus")" \
    --precision "$RANK_PRECISION" --ctx "$device"
done
