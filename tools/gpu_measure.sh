#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures the OpenCL backend on a GPU, in one command: operations, speeds, times of launches.
#   tools/gpu_measure.sh BIN_DIRECTORY OUT_DIRECTORY [PART...]
# BIN_DIRECTORY has antigravity and test_backend, and the libraries that this machine lacks. PARTs are oracle, cold, table,
# launches; default: all. Each result is a file of OUT_DIRECTORY. One failure does not stop the rest.
# shellcheck disable=SC2317 # Parts are called by name.
set -uo pipefail
bin=$1 out=$2
shift 2
parts=${*:-oracle cold table launches}
mkdir -p "$out"
export LD_LIBRARY_PATH=$bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} AG_OPENCL_CACHE=${AG_OPENCL_CACHE:-$out/programs}
status=0

# NVIDIA's machines without an OpenCL loader have the driver all the same.
if [ ! -d /etc/OpenCL/vendors ] && [ "$(id -u)" = 0 ]; then
    mkdir -p /etc/OpenCL/vendors
    echo libnvidia-opencl.so.1 >/etc/OpenCL/vendors/nvidia.icd
fi

# record NAME COMMAND...: runs it for at most 5 minutes, prints and keeps what it says.
record() {
    local name=$1 start=$SECONDS
    shift
    timeout 300 "$@" >"$out/$name.txt" 2>&1 || status=1
    printf '== %s: %d s\n' "$name" $((SECONDS - start))
    tail -n 30 "$out/$name.txt"
}

# bench NAME OPTION...: of the shape of Llama 3.2 1B.
bench() { record "$1" "$bin/antigravity" bench -q -b opencl --shape "${SHAPE:-llama-3.2-1b}" "${@:2}"; }

part_oracle() {
    record oracle-products "$bin/test_backend" --backends opencl -f matmul_prepared,matmul_group_prepared -m 40000000
    record oracle-attention "$bin/test_backend" --backends opencl -f attention
}

# The first token of a process, with empty caches of ours and of the driver; then with what the first process has kept.
part_cold() {
    local n
    rm -rf "$AG_OPENCL_CACHE" "$out/driver"
    for n in first second; do
        record "cold-$n" env CUDA_CACHE_PATH="$out/driver" bash -c 'time "$0" generate -q -b opencl -p "Once upon a time" -n 1 --temperature 0' \
            "$bin/antigravity"
    done
}

part_table() {
    local n type
    bench speed -p 512,2048 -n 128 -r 5
    bench speed-chunk -p 2048 -n 0 --prefill-chunk 2048 -r 5
    bench depth -p 2048 -n 128 -d 4096,16384 -r 3
    for n in 2 4 8 32 64; do bench "parallel-$n" -p 0 -n 64 -d 128 --parallel "$n" -r 2; done
    bench parallel-mixed -p 0 -n 64 -d 200 --parallel 64 --first-depth 16384 -r 2
    for type in q4_k q8_0 bf16; do bench "type-$type" --weights "$type" -p 512 -n 64 -r 3; done
    SHAPE=llama-3.1-8b bench shape-8b -p 512 -n 64 -r 2
}

part_launches() {
    bench launches-512 -p 512 -n 0 -r 3 --launches
    bench launches-2048 -p 2048 -n 0 -d 16384 -r 2 --launches
    bench launches-32 -p 0 -n 16 -d 128 --parallel 32 -r 1 --launches
}

record device "$bin/antigravity" devices
for part in $parts; do "part_$part"; done
rm -rf "$out/programs" "$out/driver"
exit $status
