#!/usr/bin/env bash
# Table 2 (Soldaini and Moschitti 2020): monolithic rankers and every exit of the cascade, nothing dropped.
if [ "${SMOKE:-0}" != 1 ]; then export CORPORA=${CORPORA:-wikiqa trecqa}; fi
NAME=table2 RATIOS='' exec "$(dirname "$0")/table3.sh"
