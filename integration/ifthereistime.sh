#!/bin/bash
# ifthereistime.sh STARTED TARGET:MINUTES... — makes each target that can finish within its number of minutes before the
# 80th minute after STARTED (seconds since 1970), and lists the targets that it skips. CI ends runs after 90 minutes.
set -euo pipefail
readonly limit=80
started=$1
shift
for part in "$@"; do
  target=${part%:*} minutes=${part#*:}
  passed=$((($(date +%s) - started) / 60))
  if ((passed + minutes > limit)); then
    echo "==> LEFT OUT: make $target, which may take $minutes minutes: $passed of $limit have passed. Run it by itself."
    continue
  fi
  echo "==> make $target, $passed minutes after the beginning; it has $minutes"
  make --no-print-directory "$target" TEST_TIMEOUT="${minutes}m" E2E_TIMEOUT="${minutes}m" CHAOS_FOR="$((minutes * 2 / 3))m"
done
