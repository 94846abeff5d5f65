#!/usr/bin/env bash
# recipes/cascade/minilm_train.sh at the papers' size, with all-mpnet-base-v2 (python data_scripts/mpnet.py).
SIZE=base exec "$(dirname "$0")/minilm_train.sh"
