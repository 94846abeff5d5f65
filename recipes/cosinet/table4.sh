#!/usr/bin/env bash
# Table 4 (Bonadiman and Moschitti 2020), and with it Table 3's rule baselines, on WikiQA: Cosinet and Compare-Aggregate,
# pointwise and listwise, with each recurrent layer. Tests of the paper's claims go to $RESULTS/claims_wikiqa.txt.
#   RUNS=runs/cosinet_distilled RESULTS=runs/cosinet_distilled/results TABLE_KIND=distilled recipes/cosinet/table4.sh
. "$(dirname "$0")/settings.bash"
baseline_rows "$RESULTS/table3.tsv" wikiqa map,mrr,p@1
rows_and_claims "$RESULTS/table4.tsv" wikiqa map,mrr,p@1 "$RESULTS/claims_wikiqa.txt"
