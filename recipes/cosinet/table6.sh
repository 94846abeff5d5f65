#!/usr/bin/env bash
# Table 6 (Bonadiman and Moschitti 2020) on NQ-LA, paragraphs of Natural Questions' pages, with tests of the paper's claims.
if [ "${SMOKE:-0}" = 1 ]; then SEEDS=0 MODELS=${MODELS:-ca cosinet_list_birnn}; fi
. "$(dirname "$0")/settings.bash"
MODELS=${MODELS:-cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn}
rows_and_claims "$RESULTS/table6.tsv" nqla map,mrr,p@1 "$RESULTS/claims_nqla.txt"
