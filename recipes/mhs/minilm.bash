# Settings of the recipes in small, which source this file.
if [ "${SMOKE:-0}" = 1 ]; then
  export ROUNDS=1
  FULL=3 TEACHER_EXITS=1,3 SEEDS="0 1"
else
  FULL=6 RUNS=${RUNS:-runs/mhs_transfer} ONE_ENCODER=minilm TEACHER_EXITS=2,4,6
  ASNQ_TRAIN=$RUNS/transfer.jsonl ASNQ_DEV='' PATIENCE=0 WARMUP=100 UPDATE_TOKENS=0
  TRANSFER_EPOCHS=${TRANSFER_EPOCHS:-1} ADAPT_EPOCHS=${ADAPT_EPOCHS:-3}
  LEARNING_RATE=${LEARNING_RATE:-3e-5} PRECISION=${PRECISION:-bfloat16} SEEDS=${SEEDS:-0 1 2 3 4}
  # Of the paper's grid the point that dev preferred for every student of an earlier form of this recipe, beside alpha 0.
  ALPHAS=${ALPHAS:-0.5} TAUS=${TAUS:-3}
fi
LAYERS=${LAYERS:-$FULL}  # of a student, one of them a head's
BODY=$((LAYERS - 1))
. "$(dirname "${BASH_SOURCE[0]}")/settings.bash"
if ((LAYERS < 2 || LAYERS > FULL)); then fail "LAYERS is $LAYERS; expected 2 to $FULL, the layers of a student"; fi
# Names of the students' runs and rows, what every student starts from, and options of those of one head.
students=minilm note='' start=$RUNS/mhs/minilm_transferred depth=()
if [ "$LAYERS" != "$FULL" ]; then
  students=minilm_${LAYERS}_layers note=", $LAYERS layers" start=${start}_$LAYERS depth=(--exits "$LAYERS")
fi
start_of() { echo "--init $start"; }
alone_run() {  # CORPUS SEED: the student that is fine-tuned alone; of all layers and with these seeds it is a teacher
  case $students/$2 in
    minilm/0) echo "$RUNS/mhs/minilm_teacher_1" ;;
    minilm/2) echo "$RUNS/mhs/minilm_teacher_3" ;;
    *) echo "$RUNS/mhs/${students}_alone/seed_$2" ;;
  esac
}
first=$(logits_of minilm_teacher_1 wikiqa) three=$first,$(logits_of minilm_teacher_2 wikiqa),$(logits_of minilm_teacher_3 wikiqa)
