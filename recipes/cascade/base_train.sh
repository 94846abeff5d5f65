#!/usr/bin/env bash
# Tables 2 and 3 at the papers' size: recipes/cascade/minilm_train.sh with all-mpnet-base-v2 (python data_scripts/mpnet.py).
#
#   DATA=data recipes/cascade/base_train.sh    then base_tables.sh
SIZE=base exec "$(dirname "$0")/minilm_train.sh"
