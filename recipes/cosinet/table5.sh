#!/usr/bin/env bash
# Table 5 (Bonadiman and Moschitti 2020) on SQuAD-sent. Trains what is missing; writes $RESULTS/table5.tsv, and tests of the
# paper's claims over questions and seeds ($RESULTS/claims_squad.txt).
#
#   recipes/cosinet/table5.sh        settings: recipes/cosinet/settings.bash
#   SMOKE=1 recipes/cosinet/table5.sh
if [ "${SMOKE:-0}" = 1 ]; then MODELS=${MODELS:-cosinet_list_birnn}; fi
. "$(dirname "$0")/settings.bash"
tests=${CLAIMS:-$RESULTS/claims_squad.txt}
table=${TABLE:-$RESULTS/table5.tsv} columns=p@1,mrr,params,epoch_seconds,train_seconds
MODELS=${MODELS:-cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn bert}

baseline_rows "$table" squad p@1,mrr
model_rows "$table" squad "$columns" $MODELS
cat "$table"
claims squad | tee "$tests"
