#!/usr/bin/env bash
# recipes/cascade/minilm_tables.sh at the papers' size: the figures of what base_train.sh trained.
SIZE=base exec "$(dirname "$0")/minilm_tables.sh"
