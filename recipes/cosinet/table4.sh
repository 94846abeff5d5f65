#!/usr/bin/env bash
# Table 4 (Bonadiman and Moschitti 2020), and with it Table 3's rule baselines, on WikiQA: Cosinet and Compare-Aggregate, pointwise
# and listwise, with each recurrent layer. Trains what is missing; writes $RESULTS/table4.tsv with means and deviations over the
# seeds, trained parameters and seconds of training, $RESULTS/table3.tsv, and tests of the paper's claims over questions and seeds
# ($RESULTS/claims_wikiqa.txt).
#
#   recipes/cosinet/table4.sh        settings: recipes/cosinet/settings.bash
#   RUNS=runs/cosinet_distilled MODELS="cosinet cosinet_list_birnn" TABLE_KIND=distilled recipes/cosinet/table4.sh
#   SMOKE=1 recipes/cosinet/table4.sh
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table4.tsv} columns=map,mrr,p@1,params,epoch_seconds,train_seconds
MODELS=${MODELS:-$(all_models cosinet) $(all_models ca) bert}

baseline_rows "${TABLE3:-$RESULTS/table3.tsv}" wikiqa map,mrr,p@1
baseline_rows "$table" wikiqa map,mrr,p@1
model_rows "$table" wikiqa "$columns" $MODELS
cat "$table"
claims wikiqa > "${CLAIMS:-$RESULTS/claims_wikiqa.txt}"
cat "${CLAIMS:-$RESULTS/claims_wikiqa.txt}"
