#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches two OpenCL drivers for processors into build/drivers, for scripts/test.sh drivers. Nothing is installed.
#   build/drivers/intel   Intel's runtime, from PyPI
#   build/drivers/mesa    Mesa's rusticl of Debian 13, with the libraries that it needs, the C library among them. The
#                         preset rusticl links programs with that C library
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

drivers=$PWD/build/drivers

fetch_intel() {
    [ ! -e "$drivers/intel/lib/libintelocl.so" ] || return 0
    rm -rf "$drivers/intel"
    quietly drivers-python python3 -m venv "$drivers/intel" &&
        quietly drivers-intel "$drivers/intel/bin/pip" install -q --no-deps intel-opencl-rt==2026.2.0 \
            intel-cmplr-lib-rt==2026.2.0 tbb==2023.2.0
}

# The archive's packages for a system that has none yet: the state of this system's apt stays as it is.
download_mesa() {
    local apt=$drivers/apt options
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    printf 'deb [signed-by=%s] http://deb.debian.org/debian trixie main\n' \
        /usr/share/keyrings/debian-archive-keyring.gpg >"$apt/sources.list"
    : >"$apt/status"
    options=(-q -y -o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Install-Recommends=0
        -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::Etc::Parts=-
        -o "Dir::State=$apt" -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt")
    apt-get "${options[@]}" update && apt-get "${options[@]}" --download-only install mesa-opencl-icd
}

fetch_mesa() {
    [ ! -e "$drivers/mesa/lib" ] || return 0
    local tree=$drivers/mesa package
    rm -rf "$tree"
    mkdir -p "$tree"
    quietly drivers-mesa download_mesa || return 1
    for package in "$drivers"/apt/archives/*.deb; do dpkg-deb -x "$package" "$tree"; done
    # Clang looks for its headers relative to its library.
    ln -s . "$tree/usr/lib/lib"
    ln -s usr/lib/x86_64-linux-gnu "$tree/lib"
}

for tool in python3 apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || die "no $tool here"
done
[ "$(uname -m)" = x86_64 ] || die "the drivers are for x86-64"
# The driver names this file by its absolute path.
[ -e /usr/lib/clc/spirv64-mesa3d-.spv ] || die "no /usr/lib/clc/spirv64-mesa3d-.spv: install libclc-14, or a later one"
fetch_intel && fetch_mesa
