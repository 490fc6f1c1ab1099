#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds wheels of the Python package libantigravity into dist/, for Linux with glibc 2.17 and later.
#   scripts/wheel.sh             for this machine's processor
#   scripts/wheel.sh ARCH...     x86_64, aarch64
source "$(dirname "${BASH_SOURCE[0]}")/zig.sh"

# build_arch ARCH: the library and the program.
build_arch() {
    build_with_zig "$1-linux-gnu.2.17" "build/wheel/$1" "wheel-$1" -DAG_PYTHON_PACKAGE=ON -DCMAKE_SHARED_LINKER_FLAGS=-s -- \
        ag_python antigravity_program
}

# pack_arch ARCH: the wheel, and a check of the glibc that it needs.
pack_arch() {
    local stage=build/wheel/$1/stage platform=manylinux_2_17_$1 tag=py3-none- wheel
    rm -f dist/libantigravity-*"$platform"*.whl
    quietly "wheel-$1-stage" "$zig_tools/bin/python" bindings/python/tools/stage.py "$stage" \
        --library "build/wheel/$1/bindings/python/libantigravity.so" --program "build/wheel/$1/bin/antigravity" \
        --tag "$tag$platform" --tag "${tag}manylinux2014_$1" -- "$ZIG" cc &&
        mkdir -p dist &&
        quietly "wheel-$1-pack" "$zig_tools/bin/python" -m wheel pack "$stage" -d dist || return 1
    wheel=$(echo dist/libantigravity-*"$platform"*.whl)
    quietly "wheel-$1-audit" "$zig_tools/bin/auditwheel" show "$wheel" &&
        { grep -q "\"$platform\"" "build/log/wheel-$1-audit.log" || die "$wheel needs more than $platform: $(<"build/log/wheel-$1-audit.log")"; }
    say "$wheel"
}

# check_arch ARCH: the program tells a story, on an old processor too where an emulator is here; Python loads the library.
check_arch() {
    local root=build/wheel/$1/installed tell emulators=() emulator
    rm -rf "$root"
    "$zig_tools/bin/python" -m zipfile -e dist/libantigravity-*"_$1.whl" "$root"
    mkdir "$root/bin"
    mv "$root"/*.data/scripts/antigravity "$root/bin/" && mv "$root"/*.data/data/share "$root/"
    chmod +x "$root/bin/antigravity"
    tell=("$root/bin/antigravity" generate -q -p 'Once upon a time' -n 12 --temperature 0)
    if [ "$1" = "$(uname -m)" ]; then
        emulators=('')
        PYTHONPATH=$root quietly "wheel-$1-import" "$zig_tools/bin/python" -c \
            'import libantigravity as ag; assert ag.Model().generate("Once upon a time", max_tokens=8).text()'
    fi
    if command -v "qemu-$1-static" >/dev/null; then
        case $1 in
        x86_64) emulators+=('qemu-x86_64-static -cpu Nehalem' 'qemu-x86_64-static -cpu Haswell') ;;
        *) emulators+=("qemu-$1-static -L /usr/$1-linux-gnu") ;;
        esac
    fi
    [ ${#emulators[@]} -gt 0 ] ||
        say "The wheel for $1 is not checked: qemu-$1-static, which runs its program here, is not installed"
    for emulator in "${emulators[@]}"; do
        # shellcheck disable=SC2086 # The emulator and its options are words.
        quietly "wheel-$1-run" $emulator "${tell[@]}"
        grep -q 'a little girl named Lily' "build/log/wheel-$1-run.log" ||
            die "the program of the wheel for $1 does not tell its story: $emulator ${tell[*]}"
    done
}

read_arches "$@"
make_epoch
make_zig
for arch in "${arches[@]}"; do
    build_arch "$arch"
    pack_arch "$arch"
    say "Checking it: its program must tell a story"
    check_arch "$arch"
done
