#!/usr/bin/env bash
# The Cascade Transformer on ASNQ (Soldaini and Moschitti 2020, section 5.2): rows "Cascade transformer" of Table 3 for ASNQ,
# and the start of every adaptation.
. "$(dirname "$0")/../settings.sh"

tokenize_asnq
train "cascade/transfer${SUFFIX:-}" cascade asnq --encoder "$ENCODER" --exits "$EXITS" --seed 0 $CASCADE_OPTIONS \
  --learning-rate "$CASCADE_LEARNING_RATE" --epochs "$TRANSFER_EPOCHS" --eval-every "$TRANSFER_EVAL_EVERY"
