#!/usr/bin/env bash
# The figures of what recipes/cascade/base_train.sh trained: recipes/cascade/minilm_tables.sh at the papers' size, into
# results/base_wikiqa.tsv, results/base_trecqa.tsv and their claims.
#
#   DATA=data recipes/cascade/base_tables.sh
SIZE=base exec "$(dirname "$0")/minilm_tables.sh"
