#!/usr/bin/env bash
# Tables 1, 2 and 7 in small, the trainings: MiniLM is pre-trained with IE_k on fourteen of the sixteen articles of half of
# SQuAD 2.0's development set, two of them held out. Then, on WikiQA, the pairwise model; joint models without MSPP, with the
# new row of the question's token type from N(0, 0.02) and from N(0, 1), and with MSPP; and two joint models that re-rank the
# pairwise model's first five. Three seeds of each.
#
# By arithmetic, at 4,000 tokens a second on two cores, as pairwise MiniLM trains there in bfloat16:
#   pre-training   568 examples of 316 padded tokens, and a sixth more for masked tokens: 52 s a draw of each, 18 draws   16 minutes
#   pairwise       185 updates of 2,000 tokens: 93 s an epoch; 3 epochs of 3 runs                                    14
#   joint          2,087 groups of 134 tokens, with padding 300,000: 75 s an epoch; 3 epochs of 9 runs               34
#   re-ranking     873 groups of 160 tokens, with padding 148,000: 37 s an epoch; 3 epochs of 6 runs                 11
#   evaluation     1,130 pairs of dev, 5 s; 54 times                                                                  5
# together 80 minutes. Beside other work it took two hours, the pre-training half an hour.
#
#   DATA=data recipes/mspp/minilm_train.sh   then minilm_tables.sh
#   SMOKE=1 recipes/mspp/minilm_train.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/mspp/minilm.bash

for seed in $SEEDS; do
  for name in pairwise $SYSTEMS; do fit "$name" wikiqa "$seed"; done
  for name in joint_ie mspp_ie; do fit "$name" "wikiqa@$seed" "$seed"; done
done
