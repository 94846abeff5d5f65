#!/usr/bin/env bash
# What a newcomer does, in a fresh clone: the first minute, the README's commands and Python, the tutorials. The commands are those
# of the pages. It ends with an error after so many minutes, ten by default.
set -euo pipefail
limit=$((60 * ${1:-10}))
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
step=clone
ended() {
  status=$?
  rm -rf "$folder"
  [ "$status" = 0 ] || echo "error: a newcomer's step \"$step\" ends with status $status after $SECONDS seconds" >&2
}
trap ended EXIT

# No variable of this environment reaches the commands.
unset PYTHONPATH VIRTUAL_ENV PIP_CONSTRAINT
git clone --quiet "$root" "$folder/wqa"
cd "$folder/wqa"
mkdir "$folder/scripts"
begin() {
  step=$1
  echo "== $step, after $SECONDS seconds"
  if [ "$SECONDS" -ge "$limit" ]; then
    echo "error: $SECONDS seconds; expected at most $limit" >&2
    exit 1
  fi
}
pages() { "$PWD/.venv/bin/python" tests/pages.py "$@"; }
in_time() { timeout --foreground "$((limit - SECONDS))" "$@"; }

begin "README: make quickstart"
in_time make quickstart
. .venv/bin/activate

begin "the first minute: wqa rank minilm"
pages docs/installation.md --title "first ranking" | sed '/^pip /d' > "$folder/scripts/first"
in_time bash -euo pipefail "$folder/scripts/first" | tee "$folder/ranking"
grep -q "^ *1 .*A kettle whistles" "$folder/ranking"

begin "README: Python"
pages README.md python > "$folder/scripts/readme.py"
pages README.md text > "$folder/expected"
in_time python "$folder/scripts/readme.py" | tee "$folder/printed"
diff "$folder/expected" "$folder/printed"

port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for page in docs/tutorials/*.md; do
  begin "$page"
  pages "$page" --files .
  pages "$page" python > "$folder/scripts/page.py"
  # The service is ended where another command fails.
  { echo "trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT" && pages "$page" sh && echo 'wait ${!:-}'; } > "$folder/scripts/page"
  if [ -f ask.py ]; then sed -i "s/8080/$port/g" ask.py; fi
  sed -i "s/8080/$port/g" "$folder/scripts/page"
  in_time bash -euo pipefail "$folder/scripts/page"
  in_time python "$folder/scripts/page.py"
done

begin "the end"
echo "a newcomer is through in $SECONDS seconds"
