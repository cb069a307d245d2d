#!/usr/bin/env bash
# Runs the benchmarks and writes bench/results:  scripts/bench.sh [balance|microbatch|movement|placement|split|step|trace|solvers ...]
# Medians of repetitions; ratios are computed between benchmarks of one run (scripts/bench_report.py).
set -euo pipefail
cd "$(dirname "$0")/.."
what=("$@")
[ ${#what[@]} -gt 0 ] || what=(balance microbatch movement placement split step trace solvers)
scripts/build.sh bench >/dev/null
for name in "${what[@]}"; do
  if [ "$name" = solvers ]; then
    build/bench/bin/solver_table "${ORCHMLLM_SHARED:-../shared}/traces" >bench/results/solvers.json
  else
    build/bench/bin/bench_"$name" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true \
      --benchmark_out=bench/results/"$name".json --benchmark_out_format=json >/dev/null
    # The machine's name says nothing about the figures.
    sed -i '/"host_name"/d' bench/results/"$name".json
  fi
done
python3 scripts/bench_report.py
