#!/usr/bin/env bash
# TANDA's first step (Garg et al. 2020; Soldaini and Moschitti 2020, section 5.2): monolithic rankers of 4 to 12 layers, cut
# from one pretrained encoder, fine-tuned on ASNQ. On ASNQ they are themselves rows of Table 3, "Monolithic transformer".
. "$(dirname "$0")/../settings.sh"

tokenize_asnq
for depth in $DEPTHS; do
  train "tanda/transfer_$depth" pairwise asnq --encoder "$ENCODER" --exits "$depth" --seed 0 \
    --learning-rate "$LEARNING_RATE" --epochs "$(epochs_of "$depth" "$TRANSFER_EPOCHS")" --eval-every "$TRANSFER_EVAL_EVERY"
done
