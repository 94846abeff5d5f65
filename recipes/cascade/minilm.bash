# The sizes of the recipes in small, which source this file: MiniLM, or with SIZE=base all-mpnet-base-v2, 12 layers of 768, with
# the paper's exits. full, lower and others are the depths of the monolithic rankers.
size=${SIZE:-minilm}
if [ "${SMOKE:-0}" = 1 ]; then
  SEEDS="0 1" full=3 lower=1 others=
elif [ "$size" = base ]; then
  RUNS=${RUNS:-runs/cascade_base} full=12 lower=6 others="4 8 10" EXITS=4,6,8,10,12
  ENCODER=${ENCODER:-encoders/mpnet} LEARNING_RATE=${LEARNING_RATE:-2e-5}
else
  RUNS=${RUNS:-runs/cascade_transfer} full=6 lower=4 others=2 EXITS=2,4,6
  ENCODER=${ENCODER:-minilm} LEARNING_RATE=${LEARNING_RATE:-3e-5}
fi
SEEDS=${SEEDS:-0 1 2}
export RUNS SEEDS EXITS ENCODER LEARNING_RATE
