#!/usr/bin/env bash
# Runs every fuzz target on its committed corpus for SECONDS each:  scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
scripts/build.sh fuzz
for target in trace toml plan media; do
  work=build/fuzz/corpus-$target
  mkdir -p "$work"
  build/fuzz/bin/fuzz_"$target" -seed=1 -max_len=8192 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix=build/fuzz/ "$work" tests/fuzz/corpus/"$target"
done
