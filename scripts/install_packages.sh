#!/usr/bin/env bash
# Installs the Debian packages that a target needs, only those missing.
#   scripts/install_packages.sh demo|test|bench|ci
#   scripts/install_packages.sh gpu build/gpu-packages     fetches instead into a folder of their own, for a GPU machine
#                                                          that reaches no network (scripts/gpu_check.sh unpacks them);
#                                                          apt's lists must be there (apt-get update)
set -euo pipefail

demo=(g++ make cmake ninja-build pkg-config libcli11-dev libfmt-dev libnlopt-cxx-dev libsimdjson-dev libtomlplusplus-dev
      libzstd-dev nlohmann-json3-dev zlib1g-dev)
# What `orch trace scan` reads with, and what makes the files that its tests read.
scan=(libarchive-dev libavformat-dev libexif-dev libjpeg-dev libpng-dev libstb-dev libtiff-dev libwebp-dev)
# clang++ builds the tests: with sanitizers it takes a quarter of g++'s time.
test=("${demo[@]}" "${scan[@]}" clang doctest-dev ffmpeg libclang-rt-dev iproute2 libeigen3-dev liblpsolve55-dev libopenmpi-dev
      librapidcheck-dev libsqlite3-dev libyaml-cpp-dev lp-solve openmpi-bin python3 python3-jsonschema python3-pil zstd)
bench=("${demo[@]}" libbenchmark-dev libboost-graph-dev liblpsolve55-dev libopenmpi-dev lp-solve openmpi-bin)
# Beside the CUDA Toolkit, NCCL, g++, CMake and Ninja.
gpu=(doctest-dev libcli11-dev libeigen3-dev libfmt-dev libnlopt-cxx-dev librapidcheck-dev libsimdjson-dev libtomlplusplus-dev
     libzstd-dev nlohmann-json3-dev zlib1g-dev)
ci=("${test[@]}" "${bench[@]}" clang-format git)

case "${1:-}" in
  demo) wanted=("${demo[@]}") ;;
  test) wanted=("${test[@]}") ;;
  bench) wanted=("${bench[@]}") ;;
  ci) wanted=("${ci[@]}") ;;
  gpu) wanted=("${gpu[@]}") ;;
  *) echo "usage: $0 demo|test|bench|ci|gpu [FOLDER]" >&2; exit 2 ;;
esac

if [ $# -eq 2 ]; then
  # With the libraries that they depend on, but for those that every machine with a compiler has.
  for ((i = 0; i < ${#wanted[@]}; ++i)); do
    for package in $(apt-cache depends "${wanted[i]}" | awk '$1 == "Depends:" && $2 !~ /^(<|libc6|libgcc|libstdc|pkg)/ {print $2}'); do
      [[ " ${wanted[*]} " == *" $package "* ]] || wanted+=("$package")
    done
  done
  mkdir -p "$2"
  if ls -A "$2" | grep -qv '\.deb$'; then
    echo "error: $2 holds other files than packages; name a folder of its own" >&2
    exit 2
  fi
  (cd "$2" && rm -f ./*.deb && apt-get download -qq -o APT::Sandbox::User=root "${wanted[@]}")
  echo "$2: $(ls "$2" | wc -l) packages, $(du -sh "$2" | cut -f1)"
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: these packages are missing and installing them needs root: ${missing[*]}" >&2
    echo "       ask an administrator for:  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
