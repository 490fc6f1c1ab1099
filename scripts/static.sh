#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds static programs with musl, which run on any Linux of their processor, into dist/antigravity-VERSION-linux-ARCH.tar.gz.
# They have no GPU, pull, line editor and TLS.
#   scripts/static.sh                      for this machine's processor
#   scripts/static.sh [--golden] ARCH...   x86_64, aarch64; --golden also runs the golden tests, with qemu where it is needed
source "$(dirname "${BASH_SOURCE[0]}")/zig.sh"

build_arch() {
    build_with_zig "$1-linux-musl" "build/musl/$1" "static-$1" -DAG_OPENCL=OFF -DAG_CURL=OFF -DAG_EDIT=OFF -DAG_BUILD_TESTS=ON \
        -DCMAKE_EXE_LINKER_FLAGS='-s -static' -- antigravity_program ${with_golden:+test_golden}
}

# copy_licenses DIRECTORY: those of the libraries in the program.
copy_licenses() {
    local package
    mkdir -p "$1"
    for package in jansson pcre2 utf8proc libevent; do cp build/deps-source/"$package"/*/debian/copyright "$1/$package"; done
    cp "${ZIG%/*}/lib/libc/musl/COPYRIGHT" "$1/musl"
}

# pack_arch ARCH: the program and the demo model, with the owners and times of a reproducible archive.
pack_arch() {
    local name root
    name=antigravity-$(sed -n 's/.*AG_VERSION_STRING "\(.*\)".*/\1/p' include/antigravity/status.h)-linux-$1
    root=build/musl/$name
    rm -rf "$root"
    mkdir -p dist "$root/bin" "$root/share/antigravity/models"
    cp "build/musl/$1/bin/antigravity" "$root/bin/"
    cp -r models/demo "$root/share/antigravity/models/"
    cp LICENSE "$root/"
    copy_licenses "$root/licenses"
    tar -C build/musl -czf "dist/$name.tar.gz" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s \
        --mtime="@$SOURCE_DATE_EPOCH" "$name"
    say "dist/$name.tar.gz"
    say "Checking it: its program must tell a story${with_golden:+; then the golden tests}"
    check_arch "$1" "$root/bin/antigravity"
}

# check_arch ARCH PROGRAM: it is static, says what it lacks and tells a story.
check_arch() {
    local run=("$2") log=build/log/static-$1-run.log
    if grep -q INTERP <<<"$(LC_ALL=C readelf -lW "$2")"; then die "$2 is not static"; fi
    if [ "$1" != "$(uname -m)" ]; then
        command -v "qemu-$1-static" >/dev/null || {
            [ -z "$with_golden" ] || die "qemu-$1-static is missing; scripts/setup.sh --all installs it"
            say "$2 is not checked: qemu-$1-static is missing"
            return 0
        }
        run=("qemu-$1-static" "$2")
    fi
    quietly "static-$1-run" "${run[@]}" --version
    grep -q ', built without GPU, pull, line editor, TLS$' "$log" || die "$2 --version: $(<"$log")"
    quietly "static-$1-run" "${run[@]}" generate -q -p 'Once upon a time' -n 12 --temperature 0
    grep -q 'a little girl named Lily' "$log" || die "$2 does not tell its story: $(<"$log")"
    [ -z "$with_golden" ] || quietly "static-$1-golden" ctest --test-dir "build/musl/$1" -j "$jobs" --output-on-failure -R '^golden_'
}

with_golden=
if [ "${1:-}" = --golden ]; then
    with_golden=yes
    shift
fi
read_arches "$@"
make_epoch
make_zig
for arch in "${arches[@]}"; do
    build_arch "$arch"
    pack_arch "$arch"
done
