#!/usr/bin/env bash
# Tables 1 to 3 and Figure 2 in small, the trainings: MiniLM, and 16 of the 35 articles of SQuAD 2.0's development set as an open
# collection (articles.txt), 646 paragraphs; questions of ten articles to train, three to tune, three to report. The
# trainings that tell most come first; the re-ranker and DC-BERT have three seeds.
#
#   DATA=data ARCHIVE=dev-v2.0.json.gz recipes/dcbert/minilm_train.sh    nearly three hours on two cores; then minilm_tables.sh
#   SMOKE=1 recipes/dcbert/minilm_train.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/dcbert/minilm.bash

for name in dcbert_1 bert linear dcbert_3 lstm dcbert_2 reader; do fit "$name" squad; done
for seed in $SEEDS; do
  for name in bert dcbert_1; do fit "$name" squad "$seed"; done
done
for name in exits cascade student; do fit "$name" squad; done
