#!/bin/bash
# progress.sh TEXT COMMAND... — runs the command and says every ten seconds how long it has taken. Its status is the
# command's.
set -euo pipefail
readonly text=$1
shift
"$@" &
readonly command=$!
trap 'kill "$command" 2>/dev/null || true' INT TERM
said=0
while kill -0 "$command" 2>/dev/null; do
  sleep 1
  if ((SECONDS >= said + 10)) && kill -0 "$command" 2>/dev/null; then
    said=$SECONDS
    echo "==> $text: ${said}s so far"
  fi
done
wait "$command"
