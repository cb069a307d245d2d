#!/usr/bin/env bash
# Builds the runtime on GPUs and checks it on this machine's first GPU, in one call:  scripts/gpu_check.sh
#
# Kernels against the host's copies, compute-sanitizer on them, NCCL with one rank and with several on one GPU, bandwidth
# against cudaMemcpy. Writes bench/results/gpu-kernels.json and gpu-run.json, where a GPU is. Every step has a time limit
# (ORCHMLLM_GPU_LIMIT seconds, default 120; the build 1800). What cannot run here is skipped, loudly. Exits with 1 if
# anything failed. Settings of the GPU are left as they are.
set -uo pipefail
cd "$(dirname "$0")/.."
limit=${ORCHMLLM_GPU_LIMIT:-120}
build=${ORCHMLLM_GPU_BUILD:-build/gpu}
passed=() failed=() skipped=()
mkdir -p "$build/out"

step() {  # step NAME SECONDS COMMAND...: runs it, its output in a file, its end of it shown where it fails
  local name=$1 seconds=$2 status=0
  shift 2
  printf '=== %4d s: %s\n' "$SECONDS" "$name"
  timeout --kill-after=10 "$seconds" "$@" >"$build/out/$name.txt" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    passed+=("$name")
    return 0
  fi
  [ "$status" -eq 124 ] && echo "    time-out after $seconds s"
  tail -n 25 "$build/out/$name.txt" | sed 's/^/    /'
  failed+=("$name (exit $status)")
  return 1
}

skip() {
  echo "=== SKIPPED: $1: $2"
  skipped+=("$1: $2")
}

summary() {
  printf '\n%d passed: %s\n' "${#passed[@]}" "${passed[*]:-none}"
  printf '%d skipped\n' "${#skipped[@]}"
  for text in "${skipped[@]}"; do echo "  SKIPPED $text"; done
  printf '%d failed\n' "${#failed[@]}"
  for text in "${failed[@]}"; do echo "  FAILED $text"; done
  [ ${#failed[@]} -eq 0 ]
  exit
}

if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  skip "everything" "no CUDA compiler (nvcc); the CUDA Toolkit and NCCL come from NVIDIA"
  summary
fi
step configure 600 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" \
  -DORCHMLLM_CUDA=ON -DORCHMLLM_BUILD_TESTS=ON -DORCHMLLM_BUILD_BENCH=ON || summary
targets=(test_kernels test_rows test_tcp_control test_nccl_transport)
apps=$(cmake --build "$build" --target help | grep -oE '^(orch-run|bench_kernels):' | tr -d ':' | sort -u)
for name in $apps; do targets+=("$name"); done
step build 1800 cmake --build "$build" --parallel "${ORCHMLLM_JOBS:-$(nproc)}" --target "${targets[@]}" || summary
bin=$build/bin
for name in rows tcp_control nccl_transport; do
  step "$name" "$limit" env RC_PARAMS="seed=1 max_success=60" "$bin/test_$name"
done

run=("$bin/orch-run" --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster mpi-localhost --batch 2)
if [[ $apps != *orch-run* ]]; then
  skip "orch-run" "not in this build: MPI, fmt, CLI11, toml++ or NLopt is missing"
fi

has_gpu=no
if command -v nvidia-smi >/dev/null && timeout 30 nvidia-smi --list-gpus 2>/dev/null | grep -q GPU; then has_gpu=yes; fi
if [ "$has_gpu" = no ]; then
  for name in kernels compute-sanitizer bench-kernels nccl-one-rank nccl-two-ranks; do
    skip "$name" "no GPU on this machine"
  done
  if [[ $apps == *orch-run* ]]; then
    step refuses-without-gpu "$limit" bash -c '"$@" --transport nccl; [ $? -eq 2 ]' - "${run[@]}"
  fi
  summary
fi

step kernels "$limit" env ORCHMLLM_KERNEL_INSTANCES=300 "$bin/test_kernels"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck initcheck; do
    step "sanitizer-$tool" "$limit" env ORCHMLLM_KERNEL_INSTANCES=6 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      "$bin/test_kernels"
  done
else
  skip "compute-sanitizer" "not installed"
fi

if step bench-kernels "$limit" bash -c '"$1" >"$2.part" && mv "$2.part" "$2"' - "$bin/bench_kernels" \
  bench/results/gpu-kernels.json; then
  python3 - bench/results/gpu-kernels.json <<'PY'
import json, sys
for row in json.load(open(sys.argv[1]))["rows"]:
    print(f'    rows of {row["row_bytes"]:>8} bytes: pack {row["pack_ratio"]:.2f}, unpack {row["unpack_ratio"]:.2f} of the copy')
PY
fi

if [[ $apps == *orch-run* ]]; then
  step nccl-one-rank "$limit" "${run[@]}" --transport nccl --steps 3 --compute-scale 1e-3 --strategy orchmllm
  # Ranks that say they are of different hosts may share a GPU; they speak through sockets.
  ranks() {
    local number=$1 command=()
    shift
    for ((rank = 0; rank < number; ++rank)); do
      [ "$rank" -gt 0 ] && command+=(:)
      command+=(-np 1 -x "NCCL_HOSTID=rank$rank" -x NCCL_P2P_DISABLE=1 -x NCCL_SHM_DISABLE=1 -x NCCL_NET=Socket -x NCCL_DEBUG=WARN
                -x NCCL_SOCKET_IFNAME=lo "${run[@]}" --transport nccl --timeout 30 "$@")
    done
    timeout --kill-after=10 "$limit" mpirun --allow-run-as-root --oversubscribe "${command[@]}"
  }
  if ! command -v mpirun >/dev/null; then
    skip "nccl-two-ranks" "no mpirun"
  elif ranks 2 --verify off >"$build/out/nccl-try.txt" 2>&1; then
    for exchange in direct hierarchical; do
      printf '=== %4d s: nccl-four-ranks-%s\n' "$SECONDS" "$exchange"
      if ranks 4 --steps 3 --strategy orchmllm --exchange "$exchange" --ranks-per-node 2 \
        --json bench/results/gpu-run.json >"$build/out/nccl-four-ranks-$exchange.txt" 2>&1; then
        passed+=("nccl-four-ranks-$exchange")
      else
        tail -n 25 "$build/out/nccl-four-ranks-$exchange.txt" | sed 's/^/    /'
        failed+=("nccl-four-ranks-$exchange")
      fi
    done
  elif grep -qiE 'duplicate gpu|have one GPU' "$build/out/nccl-try.txt"; then
    skip "nccl-two-ranks" "this NCCL refuses several ranks on one GPU: $(grep -iE 'NCCL' "$build/out/nccl-try.txt" | head -1)"
  else
    tail -n 25 "$build/out/nccl-try.txt" | sed 's/^/    /'
    failed+=("nccl-two-ranks")
  fi
fi
summary
