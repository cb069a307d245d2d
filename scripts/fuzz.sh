#!/usr/bin/env bash
# Runs every fuzz target on its committed corpus for SECONDS each, five at a time:  scripts/fuzz.sh [SECONDS [TARGET…]]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
convert=(azure csv energon internvl kaldi lhotse llama-factory llava mooncake ms-swift nemo omnibal qwen-vl servegen)
targets=(trace toml tables plan media "${convert[@]/#/convert_}")
[ $# -eq 0 ] || targets=("$@")
scripts/build.sh fuzz

run() {
  work=build/fuzz/corpus-$1
  program=build/fuzz/bin/fuzz_${1%%_*}  # one program for all formats of `orch trace convert`
  mkdir -p "$work"
  ORCH_FUZZ_FORMAT=${1#convert_} "$program" -seed=1 -max_len=8192 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix=build/fuzz/ "$work" tests/fuzz/corpus/"$1"
}
export -f run
export seconds
printf '%s\n' "${targets[@]}" | xargs -P 5 -I{} bash -euo pipefail -c 'run {}'
