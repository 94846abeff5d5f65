#!/usr/bin/env bash
# Pre-training of the joint model (Di Liello et al. 2022, sections 3.4 and 4.2, appendix B.1): MSPP and masked tokens from the
# plain encoder, 100,000 updates of 4,096 examples, once with each of the heads. The examples are in memory, some 400 bytes each.
#   mkdir -p data/pretraining
#   for corpus in wikipedia bookcorpus openwebtext ccnews; do       # archives: data_scripts/paragraphs.py --help
#     python data_scripts/paragraphs.py $corpus --archive ARCHIVE --out data/$corpus
#     ln -s "$PWD/data/$corpus/train.jsonl" "data/pretraining/$corpus.jsonl"
#   done
#   CTX=gpu:0-7 recipes/mspp/pretrain.sh     settings: recipes/mspp/settings.bash; HEADS=IE_k for one of the two
. "$(dirname "$0")/settings.bash"

for head in ${HEADS:-IE_k AE_k}; do pretrain "$head"; done
