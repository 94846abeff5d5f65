#!/usr/bin/env bash
# Table 6 (Bonadiman and Moschitti 2020) on NQ-LA, the paragraphs of Natural Questions' pages. Trains what is missing; writes
# $RESULTS/table6.tsv, and tests of the paper's claims over questions and seeds ($RESULTS/claims_nqla.txt).
#
#   recipes/cosinet/table6.sh        settings: recipes/cosinet/settings.bash
#   SMOKE=1 recipes/cosinet/table6.sh
if [ "${SMOKE:-0}" = 1 ]; then SEEDS=0 MODELS=${MODELS:-ca cosinet_list_birnn}; fi
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table6.tsv} columns=map,mrr,p@1,params,epoch_seconds,train_seconds
MODELS=${MODELS:-cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn}

baseline_rows "$table" nqla map,mrr,p@1
model_rows "$table" nqla "$columns" $MODELS
cat "$table"
claims nqla > "$RESULTS/claims_nqla.txt"
cat "$RESULTS/claims_nqla.txt"
