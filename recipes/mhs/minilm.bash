# Settings of the recipes in small, which source this file.
if [ "${SMOKE:-0}" = 1 ]; then
  FULL=3
  export ROUNDS=1
else
  data=${DATA:-data}
  FULL=6 BODY=2 RUNS=${RUNS:-runs/mhs_minilm} ONE_ENCODER=minilm ASNQ_TRAIN=$data/squad/test.jsonl WIKIQA=$data/wikiqa
  ASNQ_DEV='' ADAPT_EPOCHS=3 PATIENCE=0 WARMUP=100 UPDATE_TOKENS=0 LEARNING_RATE=${LEARNING_RATE:-5e-5} SEEDS=${SEEDS:-0 1 2}
  PRECISION=${PRECISION:-bfloat16}
  ALPHAS=${ALPHAS:-0 0.5} TAUS=${TAUS:-3}  # two of the twelve points of the grid, so that all trains in two hours
fi
. recipes/mhs/settings.bash
start_of() { echo "--init $RUNS/mhs/minilm_start"; }  # of every student
# With an exit after the first layer an update trains one of two exits, so twice the epochs train each as often as without.
cascade_options() { echo "--exits 1 --epochs $((2 * ADAPT_EPOCHS))"; }
one_head=(--body "$BODY" --heads 1 --head-layers 1) three_heads=(--body "$BODY" --heads 3 --head-layers 1)
first=$(logits_of "$RUNS/mhs/minilm_teacher_1" wikiqa)
three=$first,$(logits_of "$RUNS/mhs/minilm_teacher_2" wikiqa),$(logits_of "$RUNS/mhs/minilm_teacher_3" wikiqa)
