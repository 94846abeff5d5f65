#!/usr/bin/env bash
# Table 5 (Bonadiman and Moschitti 2020) on SQuAD-sent, with tests of the paper's claims ($RESULTS/claims_squad.txt).
if [ "${SMOKE:-0}" = 1 ]; then MODELS=${MODELS:-cosinet_list_birnn}; fi
. "$(dirname "$0")/settings.bash"
MODELS=${MODELS:-cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn bert}
rows_and_claims "$RESULTS/table5.tsv" squad p@1,mrr "$RESULTS/claims_squad.txt"
