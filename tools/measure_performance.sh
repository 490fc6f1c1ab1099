#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures what docs/measured/speed.md shows, on a machine that does nothing else.
#   tools/measure_performance.sh OUT_DIR PROGRAM [MODEL_DIR]
# PROGRAM is the antigravity to measure; MODEL_DIR, if given, a model to time the loading of, as written by
# tools/make_bench_model.py. Nothing else is needed: no network, no other file. Each OUT_DIR/NAME.json holds the rows of
# one call; tools/plot_bench.py turns them into tables and plots. What does not begin before LIMIT_S seconds (500) have
# passed is left out, and this is said.
set -eu
[ $# -ge 2 ] || {
    sed -n '3,8s/^# //p' "$0"
    exit 2
}
out=$1
program=$2
model=${3:-}
limit_s=${LIMIT_S:-500}
cores=$(nproc)
mkdir -p "$out"
# A first core and a last one, of all those this process may use.
mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i}')

# run NAME THREADS ISA OPTION...: the rows of one call on that many cores; ISA "" is the best this machine has.
run() {
    local name=$1 threads=$2 isa=$3 pinned
    shift 3
    if [ $SECONDS -ge "$limit_s" ]; then
        echo "left out after $SECONDS s: $name" >&2
        return
    fi
    pinned=$(IFS=,; echo "${cpus[*]:0:$threads}")
    echo "$SECONDS s: $name" >&2
    if [ -n "$isa" ]; then export AG_CPU_ISA=$isa; else unset AG_CPU_ISA; fi
    taskset -c "$pinned" "$program" bench --shape llama-3.2-1b -t "$threads" -q -o json "$@" >"$out/$name.partial" ||
        echo "$name failed" >&2
    [ -s "$out/$name.partial" ] && mv "$out/$name.partial" "$out/$name.json"
}

{
    printf '{"date": "%s", "kernel": "%s", "cores": %s, "program": "%s",\n' \
        "$(date -u +%F)" "$(uname -sr)" "$cores" "$("$program" --version)"
    printf ' "processor": "%s",\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    printf ' "sets": "%s"}\n' "$("$program" devices | sed -n 's/.*(this machine: \(.*\))/\1/p')"
} >"$out/machine.json"

run best 2 "" -p 16,32,512 -n 128 -r 5
for isa in avx512 avx2; do run "isa-$isa" 2 "$isa" -p 512 -n 128 -r 5; done
run parallel 2 "" -p 0 -n 32 --parallel 8 -r 5
run depth 2 "" -p 0 -n 64 -d 1024,2048,4096,8192,16384 -r 5
run long-prompt 2 "" -p 4096 -n 0 -r 3
for type in q8_0 f16; do run "weights-$type" 2 "" -p 0 -n 64 --weights "$type" -r 5; done
for threads in 1 4 8 16; do
    [ "$threads" -gt "${#cpus[@]}" ] || run "threads-$threads" "$threads" "" -p 512 -n 128 -r 5
done

# Once for the page cache, then five times.
if [ -n "$model" ] && [ $SECONDS -lt "$limit_s" ]; then
    unset AG_CPU_ISA
    pinned=$(IFS=,; echo "${cpus[*]:0:2}")
    for _ in 0 1 2 3 4 5; do
        taskset -c "$pinned" "$program" generate -m "$model" --prompt-ids 1,2,3 -n 4 -t 2 -q --json
        echo
    done | sed 1,2d | { echo '['; sed '/^$/d; s/}$/},/' | sed '$s/,$//'; echo ']'; } >"$out/load.json"
fi
echo "measured in $SECONDS s" >&2
