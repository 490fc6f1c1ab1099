#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds and tests.
#   scripts/test.sh              the native suite
#   scripts/test.sh --all        everything, warnings being errors; what continuous integration runs
#   scripts/test.sh STAGE...     some of: native asan tsan clang fuzz static shared aarch64 haswell oclgrind
#                                ptx site
#   scripts/test.sh --random [SEED] [--all | STAGE...]   the tests of a stage in random order; the seed is printed
#   scripts/test.sh musl         golden tests of the static program, with zig from PyPI: --all leaves it out
#   scripts/test.sh suites       tests of other projects against the server, with packages from PyPI: minutes, so --all
#                                leaves them out. Models as docs/measured/server-suites.md says
#   scripts/test.sh hostile      hostile clients against the native build and that with address sanitizer: ten minutes for
#                                each row of tests/hostile/README.md, about 3.5 hours. HOSTILE_OPTIONS are passed on, such
#                                as --quick, or --row 2 --seconds 60
#   scripts/test.sh drivers      tests of OpenCL on two more drivers for processors, Intel's and Mesa's rusticl
#   scripts/test.sh deb          Debian packages, built twice and checked, and the wheel; both used in fresh trees of Debian 12
#                                and 13 and of Ubuntu 24.04
#   scripts/test.sh long         what takes longest, natively and under sanitizers and the emulator; --all leaves it out
# A stage whose tools are absent and cannot be installed is skipped, and this is said.
# shellcheck disable=SC2317 # Stages are called by name.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The native one first: an OpenCL driver compiles kernels for all of them there, without sanitizers.
all_stages=(native asan tsan clang fuzz static shared aarch64 haswell oclgrind ptx site)
by_hand=(musl suites long hostile drivers deb)
native_preset=release
SKIPPED=77

# Presets that differ in what they link compile the same: a compiler cache does it once. Paths as the compiler sees them
# are relative then, so that they are alike in each build folder.
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi

# wait_all PID...: fails if one of them has.
wait_all() {
    local pid status=0
    for pid in "$@"; do wait "$pid" || status=1; done
    return "$status"
}

# run_tests PRESET CTEST-OPTION...: build/log/failed names those that fail.
run_tests() { list_failed "$1" in_order command "$@"; }

# in_order LAUNCHER PRESET CTEST-OPTION...: the tests as ctest orders them, the longest first; with a seed, in a random
# order of groups that fill the machine.
in_order() {
    local launcher=$1 preset=$2 list=build/$2/Testing/Temporary/LastTestsFailed.log names i status=0
    shift 2
    if [ -z "$seed" ]; then
        "$launcher" ctest --preset "$preset" -j "$jobs" "$@"
        return
    fi
    mapfile -t names < <(test_names "$preset" "$@" | awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand(), $0 }' |
        LC_ALL=C sort | cut -d' ' -f2)
    : >build/log/failed-in-order
    for ((i = 0; i < ${#names[@]}; i += 4 * jobs)); do
        rm -f "$list"
        "$launcher" ctest --preset "$preset" -j "$jobs" "$@" \
            -R "^($(IFS='|' && printf '%s' "${names[*]:i:4*jobs}"))\$" || status=1
        [ ! -e "$list" ] || cat "$list" >>build/log/failed-in-order
    done
    [ ! -s build/log/failed-in-order ] || cp build/log/failed-in-order "$list"
    return "$status"
}

# test_names PRESET CTEST-OPTION...
test_names() { ctest --preset "$1" -N "${@:2}" | sed -nE 's/^ *Test +#[0-9]+: ([^ ]+).*/\1/p'; }

# build_tests PRESET CTEST-OPTION...: the program and what the preset's tests run.
build_tests() {
    local targets
    quietly "configure-$1" cmake --preset "$1" || return 1
    mapfile -t targets < <(find "build/$1" -name CTestTestfile.cmake -exec cat {} + |
        sed -nE 's|^add_test\((\[=\[)?([^] ]+)(\]=\])? .*"[^"]*/build/'"$1"'/bin/([A-Za-z0-9_]+)".*|\2 \4|p' |
        awk 'NR == FNR { wanted[$1] = 1; next } $1 in wanted && $2 != "antigravity" { print $2 }' \
            <(test_names "$@") - | sort -u)
    quietly "build-$1" cmake --build --preset "$1" -j "$jobs" --target antigravity_program "${targets[@]}"
}

# list_failed BUILD-PRESET CTEST...
list_failed() {
    local list=build/$1/Testing/Temporary/LastTestsFailed.log status=0
    rm -f "$list"
    "${@:2}" || status=$?
    [ ! -e "$list" ] || printf '%s\n' "$list" >>build/log/failed
    return "$status"
}

# Sanitizers of older compilers cannot live with as much address randomisation as newer kernels use.
without_randomisation() {
    if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

run_sanitized() { list_failed "$1" in_order without_randomisation "$1"; }

require() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null && continue
        say "skipped: no $tool here"
        exit "$SKIPPED"
    done
}

stage_asan() { build_tests asan && run_sanitized asan; }

stage_tsan() {
    build_tests tsan
    run_sanitized tsan
    # More threads than cores, from the file to the last token: what the preset leaves out as too slow.
    quietly tsan-generate without_randomisation build/tsan/bin/antigravity generate -q -t 4 -n 8 -p "Once upon a time"
}

stage_clang() {
    require clang
    build_preset clang
    run_tests clang
}

# The targets must build and find nothing in some seconds; the suite replays their corpora. The seed is fixed, so that what
# is found depends on the code, not on the day. Long runs, with seeds of their own, are done by hand.
stage_fuzz() {
    require clang
    build_preset fuzz
    local target running=()
    for target in build/fuzz/bin/fuzz_*; do
        case "$target" in */fuzz_replay_*) continue ;; esac
        fuzz_for_a_while "$target" &
        running+=($!)
        [ ${#running[@]} -lt "$jobs" ] && continue
        wait_all "${running[@]}"
        running=()
    done
    wait_all "${running[@]}"
}

fuzz_for_a_while() {
    local name=${1##*/fuzz_} words=()
    local found=build/fuzz/found/$name
    mkdir -p "$found"
    [ ! -e "fuzz/$name.dict" ] || words=("-dict=fuzz/$name.dict")
    quietly "${1##*/}" "$1" -seed=1 -max_total_time=10 "${words[@]}" -artifact_prefix="$found/" "$found" "fuzz/corpus/$name" || return 1
    say "${1##*/}: $(grep -c . < <(ls "$found")) new inputs, nothing found"
}

# The program must load nothing but what every glibc machine has.
stage_static() {
    build_preset static antigravity_program cli_tests
    local libraries
    libraries=$(ldd build/static/bin/antigravity)
    if grep -vE 'linux-vdso|ld-linux|/lib(c|m)\.so' <<<"$libraries"; then
        die "build/static/bin/antigravity loads more than libc"
    fi
    run_tests static -L 'cli|install' -E '^(page|cli_guides)$'
}

stage_shared() {
    build_preset shared antigravity_program ag_internal cli_tests
    run_tests shared -L 'cli|meta|install' -E '^(page|cli_(chat|conversation|eval|guides|measure|ruler|speculate|streams|terminal))$'
}

stage_aarch64() {
    require aarch64-linux-gnu-gcc dpkg-source
    command -v qemu-aarch64-static >/dev/null || require qemu-aarch64
    scripts/deps-cross.sh aarch64-linux-gnu
    build_tests aarch64
    run_tests aarch64
}

stage_musl() {
    require dpkg-source python3
    scripts/static.sh --golden x86_64 aarch64
}

# The tests that the native presets and asan, tsan and aarch64 leave out for their time.
stage_long() {
    local status=0
    build_preset "$native_preset"
    list_failed "$native_preset" ctest --preset "$native_preset-long" -j "$jobs" || status=1
    build_preset asan
    list_failed asan without_randomisation ctest --preset asan-long -j "$jobs" || status=1
    build_preset tsan
    list_failed tsan without_randomisation ctest --preset tsan-long -j "$jobs" || status=1
    command -v aarch64-linux-gnu-gcc >/dev/null || return "$status"
    scripts/deps-cross.sh aarch64-linux-gnu
    build_preset aarch64
    list_failed aarch64 ctest --preset aarch64-long -j "$jobs" || status=1
    return "$status"
}

# What computes, on a processor that ends with AVX2; the emulator is too slow for the whole suite.
stage_haswell() {
    [ "$(uname -m)" = x86_64 ] || exit "$SKIPPED"
    if ! grep -q -w avx512f /proc/cpuinfo; then
        say "skipped: this processor has no AVX-512, and the native suite was of the same"
        exit "$SKIPPED"
    fi
    require qemu-x86_64-static
    build_preset "$native_preset"
    local emulator=(qemu-x86_64-static -cpu Haswell) bin=build/$native_preset/bin running=()
    quietly haswell-backend "${emulator[@]}" "$bin/test_backend" -m 20000 & running+=($!)
    quietly haswell-kernels "${emulator[@]}" "$bin/test_cpu_kernels" & running+=($!)
    quietly haswell-quant "${emulator[@]}" "$bin/test_quant" & running+=($!)
    quietly haswell-generate "${emulator[@]}" "$bin/antigravity" generate -q -n 4 --weights bf16 -p "Once upon a time" &
    wait_all "${running[@]}" $!
}

# simulated LANES COMMAND...: on a simulated GPU that reports races and accesses out of bounds. LANES as in
# docs/design/opencl.md.
simulated() {
    local lanes=$1
    local found=$PWD/build/log/oclgrind-found-$lanes.log
    shift
    rm -f "$found"
    quietly "oclgrind-$lanes" env AG_OPENCL_LIBRARY="$(dirname "$(command -v oclgrind)")/../lib/oclgrind/liboclgrind-rt.so" \
        AG_OPENCL_CACHE=0 AG_OPENCL_LANES="$lanes" OCLGRIND_DATA_RACES=1 OCLGRIND_CHECK_API=1 OCLGRIND_LOG="$found" \
        "$@" || return 1
    if [ -s "$found" ]; then
        head -n 40 "$found" >&2
        die "oclgrind found errors in: $*"
    fi
}

# Prefill, a token and its launches made again, of a small model: a simulator takes minutes for what a processor does in a
# second. The operations by themselves are in the suite.
stage_oclgrind() {
    require oclgrind
    build_preset "$native_preset"
    local bin=build/$native_preset/bin lanes running=()
    for lanes in 0 1; do
        simulated "$lanes" "$bin/antigravity" generate -q -b opencl -m tests/data/golden/models/gqa-llama3rope-sharded \
            --kv-type q8_0,q4_0 --prompt-ids "3 40 77" -n 3 --temp 0 &
        running+=($!)
    done
    wait_all "${running[@]}"
}

# What NVIDIA's assembler says about every kernel. The numbers of its table are those of one version of the compiler.
stage_ptx() {
    require clang python3
    local libclc=/usr/lib/clc/nvptx64--nvidiacl.bc ptxas=build/ptx/nvidia/cu13/bin/ptxas
    if [ "$(clang -dumpversion | cut -d. -f1)" != 14 ] || [ ! -e "$libclc" ]; then
        say "skipped: clang is not version 14 with libclc-14"
        exit "$SKIPPED"
    fi
    if [ ! -x "$ptxas" ] &&
        ! quietly ptxas python3 -m pip install -q --no-deps --target build/ptx nvidia-cuda-nvcc==13.5.37; then
        say "skipped: PyPI gives no nvidia-cuda-nvcc"
        exit "$SKIPPED"
    fi
    tools/kernel_ptx.py --ptxas "$ptxas" --libclc "$libclc"
}

# The site, of which every link and anchor must resolve.
stage_site() {
    require python3
    scripts/site.sh
}

# first_file FILE...: the first that exists.
first_file() {
    local file
    for file in "$@"; do
        [ -f "$file" ] || continue
        printf '%s\n' "$file"
        return
    done
}

stage_suites() {
    require python3
    local store=${ANTIGRAVITY_MODELS:-${XDG_DATA_HOME:-$HOME/.local/share}/antigravity/models} model filler
    model=$(first_file "${SUITES_MODEL:-}" "$store"/SmolLM2-135M-Instruct*.gguf)
    filler=$(first_file "${SUITES_INFILL_MODEL:-}" "$store"/[Qq]wen2.5-[Cc]oder-0.5[Bb]*.gguf)
    if [ -z "$model" ]; then
        say "skipped: no SmolLM2-135M-Instruct in $store, and no SUITES_MODEL"
        exit "$SKIPPED"
    fi
    build_preset "$native_preset" antigravity_program
    tools/serve_suites.py "build/$native_preset/bin/antigravity" "$model" ${filler:+--infill-model "$filler"} \
        --environment build/suites --log build/log/suites.log
    tools/serve_clients.py "build/$native_preset/bin/antigravity" "$model" --environment build/clients --log build/log/clients.log
}

# shellcheck disable=SC2086 # HOSTILE_OPTIONS are several words.
stage_hostile() {
    require python3
    build_preset "$native_preset" antigravity_program
    build_preset asan antigravity_program
    without_randomisation tests/hostile/run.py --build "$native_preset=build/$native_preset/bin/antigravity" \
        --build asan=build/asan/bin/antigravity --logs build/log/hostile ${HOSTILE_OPTIONS:-} | tee build/log/hostile.log
}

# on_driver PRESET LIBRARY EXTENSIONS...: operations and recorded models, and the paths for the driver's own extensions.
on_driver() {
    local preset=$1 tests=(-L opencl -R '^(oracle|golden|streaming)_opencl_') extension status=0
    # Mesa's compiler crashes on the emulation of tensor cores, which only tests use, and takes hours for all sizes.
    [ "$preset" != rusticl ] || tests+=(-E '^oracle_opencl_(mma_attention|integers)$|_all$')
    build_tests "$preset" "${tests[@]}" || return 1
    export OCL_ICD_VENDORS=$PWD/build/drivers/$2 XDG_CACHE_HOME=$PWD/build/test-cache/cache
    for extension in "${@:3}"; do
        quietly "drivers-$preset-$extension" env AG_OPENCL_LANES=1 "AG_OPENCL_$extension=1" \
            "build/$preset/bin/test_backend" -b opencl -m 40000 -f matmul_prepared,rms_norm,softmax -w f32,q4_0 || status=1
    done
    run_tests "$preset" "${tests[@]}" --timeout 3600 || status=1
    return "$status"
}

# Rusticl needs a newer C library than Debian 12 has: its preset links programs with that of the driver's tree.
stage_drivers() {
    local status=0
    scripts/drivers.sh || exit "$SKIPPED"
    (on_driver "$native_preset" intel/lib/libintelocl.so DOT HALF) || status=1
    (RUSTICL_ENABLE=llvmpipe on_driver rusticl mesa/lib/libRusticlOpenCL.so.1 SUBGROUPS DOT) || status=1
    return "$status"
}

stage_deb() {
    require dpkg-buildpackage dh lintian abidw mmdebstrap autopkgtest piuparts apt-ftparchive
    scripts/deb.sh
    scripts/wheel.sh
    scripts/trees.sh
}

stage_native() {
    build_preset "$native_preset"
    run_tests "$native_preset" 2>&1 | tee build/log/native-ctest.log
}

# run_stage NAME: runs it, adds a line to the report and remembers a failure.
report=()
failed=0
run_stage() {
    local start=$SECONDS status=0 word=passed
    say "== $1"
    set +e # Not "if (...)": inside a condition a subshell would go on after a failed command.
    (
        set -e
        "stage_$1"
    )
    status=$?
    set -e
    case $status in
    0) ;;
    "$SKIPPED") word=SKIPPED ;;
    *)
        word=FAILED
        failed=1
        ;;
    esac
    report+=("$(printf '%-8s %-8s %4d s' "$1" "$word" $((SECONDS - start)))")
}

seed=
if [ "${1:-}" = --random ]; then
    shift
    seed=$RANDOM
    if [[ ${1:-} =~ ^[0-9]+$ ]]; then
        seed=$1
        shift
    fi
    say "Tests in random order; again by --random $seed"
fi
stages=("$@")
case "${1:-}" in
'') stages=(native) ;;
--all)
    stages=("${all_stages[@]}")
    native_preset=ci
    ;;
esac
for stage in "${stages[@]}"; do
    [[ " ${all_stages[*]} ${by_hand[*]} " == *" $stage "* ]] ||
        die "usage: scripts/test.sh [--random [SEED]] [--all | STAGE...], with ${all_stages[*]} ${by_hand[*]}"
done

tools=--all
[ "${stages[*]}" != native ] || tools=--tests
[[ " ${stages[*]} " != *" deb "* ]] || tools=--packages
if ! scripts/setup.sh $tools; then
    scripts/setup.sh # What every stage needs; without it there is nothing to go on with.
    say "Some tools are missing; the tests and stages that need them are skipped."
fi

mkdir -p build/log
rm -f build/log/native-ctest.log build/log/failed
for stage in "${stages[@]}"; do run_stage "$stage"; done

if [ -e build/log/failed ]; then
    while read -r log; do
        printf '\n%s\n' "The end of $log:"
        tail -n 40 "$log"
    done <build/log/failed
fi
printf '\n%s\n' "Stages:"
printf '  %s\n' "${report[@]}"
[ -z "$seed" ] || printf '%s\n' "Order: --random $seed"
if [ -e build/log/native-ctest.log ]; then
    grep -E 'tests passed|Total Test time|\*\*\*|\((Skipped|Failed|Timeout|Not Run)\)' build/log/native-ctest.log
fi
exit $failed
