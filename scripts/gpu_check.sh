#!/usr/bin/env bash
# Builds the runtime on GPUs and checks it on this machine's first GPU, in one call:  scripts/gpu_check.sh
#
# Kernels against the host's copies, compute-sanitizer on them, NCCL with one rank and with several on one GPU, bandwidth
# against cudaMemcpy, calibration. Writes bench/results/gpu-*, where a GPU is. Every step has a time limit
# (ORCHMLLM_GPU_LIMIT seconds, default 120; configuring 600, the build 1800). What cannot run here is skipped, loudly. Exits with 1 if
# anything failed. Settings of the GPU are left as they are.
#
# Needs nvcc, NCCL, g++, CMake and Ninja. Other packages (scripts/install_packages.sh gpu) may be installed, or lie in
# build/gpu-packages, fetched elsewhere by  scripts/install_packages.sh gpu build/gpu-packages.  Without them kernels are
# measured, and the rest is skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
limit=${ORCHMLLM_GPU_LIMIT:-120}
build=${ORCHMLLM_GPU_BUILD:-build/gpu}
passed=() failed=() skipped=()
mkdir -p "$build/out"
build=$(realpath "$build")

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
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
# Where CUDA's libraries come as Python packages, compilers and linkers must be told.
prefixes=$(python3 -c 'import glob, site, sys; print(";".join(p for s in site.getsitepackages() for p in
  sorted(glob.glob(s + "/nvidia/nccl") + glob.glob(s + "/nvidia/cu1*"))))' 2>/dev/null || true)
packages=no
if compgen -G "build/gpu-packages/*.deb" >/dev/null; then
  if command -v dpkg >/dev/null; then packages=yes; else skip "build/gpu-packages" "no dpkg to unpack them with"; fi
fi
if [ $packages = yes ]; then
  for package in build/gpu-packages/*.deb; do dpkg -x "$package" "$build/packages"; done
  prefixes="$build/packages/usr;$prefixes"
  export CPLUS_INCLUDE_PATH=$build/packages/usr/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
fi
step configure 600 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" \
  "-DCMAKE_PREFIX_PATH=$prefixes" -DORCHMLLM_CUDA=ON -DORCHMLLM_BUILD_TESTS=ON -DORCHMLLM_BUILD_BENCH=ON || summary
wanted=(test_rows test_kernels test_tcp_control test_nccl_transport bench_kernels orch-run)
mapfile -t targets < <(cmake --build "$build" --target help | grep -oE '^[a-z_-]+' | grep -xF "$(printf '%s\n' "${wanted[@]}")" | sort -u)
has() { [[ " ${targets[*]} " == *" $1 "* ]]; }
for name in "${wanted[@]}"; do
  has "$name" || skip "$name" "packages are missing (scripts/install_packages.sh gpu)"
done
step build 1800 cmake --build "$build" --parallel "${ORCHMLLM_JOBS:-$(nproc)}" --target "${targets[@]}" || summary
bin=$build/bin
for name in test_rows test_tcp_control test_nccl_transport; do
  has $name && step "$name" "$limit" env RC_PARAMS="seed=1 max_success=60" "$bin/$name"
done

run=("$bin/orch-run" --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster mpi-localhost --batch 2)

has_gpu=no
if [ -e /dev/nvidiactl ] || timeout 30 nvidia-smi --list-gpus 2>/dev/null | grep -q GPU; then has_gpu=yes; fi
if [ "$has_gpu" = no ]; then
  for name in kernels compute-sanitizer bench-kernels nccl-one-rank calibrate compute nccl-two-ranks nccl-four-ranks; do
    skip "$name" "no GPU on this machine"
  done
  if has orch-run; then
    step refuses-without-gpu "$limit" bash -c '"$@" --transport nccl; [ $? -eq 2 ]' - "${run[@]}"
  fi
  summary
fi

export ORCHMLLM_REQUIRE_GPU=1
rm -f bench/results/gpu-*  # of another run
table() {  # table FILE...: a Python program on standard input prints of those that are there
  local files=()
  for file in "$@"; do [ -e "$file" ] && files+=("$file"); done
  if [ ${#files[@]} -gt 0 ] && command -v python3 >/dev/null; then python3 - "${files[@]}"; fi
}
if has test_kernels; then
  step kernels "$limit" env ORCHMLLM_KERNEL_INSTANCES=300 "$bin/test_kernels"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
      step "sanitizer-$tool" "$limit" env ORCHMLLM_KERNEL_INSTANCES=6 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$bin/test_kernels"
    done
  else
    skip "compute-sanitizer" "not installed"
  fi
fi

step bench-kernels "$limit" bash -c '"$1" >"$2.part" && mv "$2.part" "$2"' - "$bin/bench_kernels" bench/results/gpu-kernels.json
table bench/results/gpu-kernels.json <<'PY'
import json, sys
for row in json.load(open(sys.argv[1]))["rows"]:
    print(f'    rows of {row["row_bytes"]:>8} bytes: pack {row["pack_ratio"]:.2f}, unpack {row["unpack_ratio"]:.2f} of the copy')
PY

if has orch-run; then
  step nccl-one-rank "$limit" "${run[@]}" --transport nccl --steps 3 --compute-scale 1e-3 --strategy orchmllm
  cluster=bench/results/gpu-cluster.toml
  if step calibrate "$limit" "$bin/orch-run" calibrate --transport nccl --seconds 40 --out "$cluster"; then
    # All of the model's operations, beside what the simulator says of them on the file just measured.
    step compute "$limit" "$bin/orch-run" --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster "$cluster" --batch 2 --steps 3 \
      --transport nccl --compute-scale 1 --json bench/results/gpu-compute.json
  fi
  # Ranks that say they are of different hosts may share a GPU; they speak through sockets, and meet as torchrun's do.
  ranks() {  # ranks NUMBER OPTIONS...
    local number=$1 port=$((20000 + RANDOM % 10000)) status=0 processes=()
    shift
    for ((rank = 0; rank < number; ++rank)); do
      env RANK=$rank WORLD_SIZE="$number" LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NCCL_HOSTID="rank$rank" \
        NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=WARN \
        "${run[@]}" --transport nccl --timeout 30 "$@" &
      processes+=($!)
    done
    for process in "${processes[@]}"; do wait "$process" || status=1; done
    return $status
  }
  export -f ranks
  quoted_run=$(declare -p run)
  step_of_ranks() {  # step_of_ranks NAME NUMBER OPTIONS...
    local name=$1
    shift
    step "$name" "$limit" bash -c "$quoted_run; ranks \"\$@\"" - "$@"
  }
  if step_of_ranks nccl-two-ranks 2 --verify off; then
    four=(4 --steps 3 --strategy orchmllm --ranks-per-node 2)
    for exchange in direct hierarchical; do
      step_of_ranks "nccl-four-ranks-$exchange" "${four[@]}" --exchange "$exchange" --json "bench/results/gpu-run-$exchange.json"
    done
    # Channels bound what NCCL's buffers for peers take of the GPU's memory.
    step_of_ranks nccl-four-ranks-one-channel "${four[@]}" --nccl-channels 1 --json bench/results/gpu-run-one-channel.json
    table bench/results/gpu-run-{direct,hierarchical,one-channel}.json <<'PY'
import json, sys
for name in sys.argv[1:]:
    device = json.load(open(name))["devices"][0]
    print(f'    {name}: rank 0: {device["peers"]} peers, {device["peer_bytes"] / 2**20:.1f} MiB for them')
PY
  else
    refusal=$(grep -iE 'duplicate gpu|multiple ranks are using the same' "$build/out/nccl-two-ranks.txt" | head -1)
    if [ -n "$refusal" ]; then
      unset 'failed[-1]'
      skip "nccl-two-ranks" "this NCCL refuses several ranks on one GPU: $refusal"
    fi
    skip "nccl-four-ranks" "two did not run"
  fi
fi
summary
