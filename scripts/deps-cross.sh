#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds jansson, PCRE2, utf8proc and cmocka as archives for another machine, from the sources of the distribution
# that runs this, into build/deps-TRIPLE; with zig also libevent, and for wheels no cmocka. Neither root nor a foreign apt architecture nor deb-src lines are needed.
#   scripts/deps-cross.sh aarch64-linux-gnu        the name of a file in cmake/toolchains
#   scripts/deps-cross.sh aarch64-linux-android    with ANDROID_NDK set; untested
#   scripts/deps-cross.sh x86_64-linux-gnu.2.17    with zig; scripts/wheel.sh calls it, and scripts/static.sh with musl
# Does nothing when the folder is complete; delete it to build anew.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

triple=${1:-}
toolchain=$PWD/cmake/toolchains/$triple.cmake
[ -f "$toolchain" ] || die "usage: scripts/deps-cross.sh TRIPLE, where cmake/toolchains/TRIPLE.cmake exists"
prefix=$PWD/build/deps-$triple
sources=$PWD/build/deps-source
[ -e "$prefix/complete" ] && exit 0

# The user's apt sources as deb-src lines in a folder of our own, with package lists of our own beside them.
private_apt_sources() {
    local file
    rm -rf "$sources/apt"
    mkdir -p "$sources/apt/parts" "$sources/apt/lists/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        [ -f "$file" ] || continue
        case "$file" in
        *.list) sed -n 's/^deb[[:space:]]/deb-src /p' "$file" >"$sources/apt/parts/$(basename "$file")" ;;
        *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$sources/apt/parts/$(basename "$file")" ;;
        esac
    done
}

private_apt() {
    apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$sources/apt/parts" \
        -o Dir::State::lists="$sources/apt/lists" -o Dir::Cache="$sources/apt" -o APT::Sandbox::User= "$@"
}

# unpack_source PACKAGE: the newest version, or the release's first one where a mirror lacks the update's source.
unpack_source() (
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-stable}")
    rm -rf "${sources:?}/$1" && mkdir "$sources/$1" && cd "$sources/$1" &&
        { private_apt source "$1" || private_apt source "$1/$codename"; } && : >complete
)

fetch_sources() {
    local package
    say "Fetching the sources of $*"
    private_apt_sources
    # A third party's archive without sources must not stop us: the next step tells whether anything is lacking.
    quietly deps-apt-update private_apt update || true
    for package in "$@"; do
        quietly "deps-$package-source" unpack_source "$package"
    done
}

# build_one PACKAGE CMAKE-OPTION...
build_one() {
    local package=$1 folder build=build/deps-build-$triple/$1
    shift
    folder=$(find "$sources/$package" -mindepth 1 -maxdepth 1 -type d)
    rm -rf "$build"
    quietly "deps-$package-configure" cmake -S "$folder" -B "$build" -G Ninja \
        -DCMAKE_TOOLCHAIN_FILE="$toolchain" -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF \
        -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@"
    quietly "deps-$package-install" cmake --build "$build" -j "$jobs" --target install
}

libraries=(jansson pcre2 utf8proc)
case $triple in
*-gnu.2.*) libraries+=(libevent) ;;
*-musl) libraries+=(libevent cmocka) ;;
*) libraries+=(cmocka) ;;
esac
wanted=()
for package in "${libraries[@]}"; do
    [ -e "$sources/$package/complete" ] || wanted+=("$package")
done
[ ${#wanted[@]} -eq 0 ] || fetch_sources "${wanted[@]}"
say "Building them for $triple"
rm -rf "$prefix"
for package in "${libraries[@]}"; do
    case $package in
    jansson) build_one jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON ;;
    pcre2) build_one pcre2 -DPCRE2_SUPPORT_JIT=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF ;;
    utf8proc) build_one utf8proc ;;
    libevent)
        build_one libevent -DEVENT__LIBRARY_TYPE=STATIC -DEVENT__DISABLE_OPENSSL=ON -DEVENT__DISABLE_TESTS=ON \
            -DEVENT__DISABLE_BENCHMARK=ON -DEVENT__DISABLE_SAMPLES=ON
        ;;
    cmocka) build_one cmocka -DWITH_STATIC_LIB=ON -DWITH_EXAMPLES=OFF ;;
    esac
done
# cmocka builds both and gives the archive another name; an emulator would have to be told where the other is.
rm -f "$prefix"/lib/*.so*
if [ -e "$prefix/lib/libcmocka-static.a" ]; then mv "$prefix"/lib/libcmocka{-static,}.a; fi
: >"$prefix/complete"
