#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Debian packages of the last commit into dist/ and checks them.
#   scripts/deb.sh               source and binary packages for this system, built twice, without network, in two folders;
#                                the results must be equal. Then lintian and the comparison with abi/
#   scripts/deb.sh abi           rewrites the description of the library's interface in abi/, until its version has a tag
# scripts/trees.sh installs them in fresh trees.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version=$(sed -nE 's/^#define AG_VERSION_STRING "(.*)"$/\1/p' include/antigravity/status.h)
minor=${version%.*}
package=antigravity-$version
deb=$PWD/build/deb
umask 022

# offline COMMAND...: without network
offline() { unshare --map-root-user --net "$@"; }

# unpack FOLDER: the commit without debian/ as the original archive, and the tree to build.
unpack() {
    rm -rf "$1"
    mkdir -p "$1/$package"
    git archive --prefix="$package/" HEAD -- . ':!debian' | gzip -n9 >"$1/antigravity_$version.orig.tar.gz" &&
        git archive HEAD | tar x -C "$1/$package"
}

# build FOLDER: symbols that the list of debian/ lacks are errors too.
build() {
    unpack "$1" &&
        DPKG_GENSYMBOLS_CHECK_LEVEL=4 quietly "deb-$(basename "$1")" offline env -C "$1/$package" dpkg-buildpackage -us -uc -j"$jobs"
}

compare() {
    local file status=0
    for file in "$deb"/first/*.deb; do
        cmp "$file" "$deb/the-second-folder/${file##*/}" || status=1
    done
    return $status
}

# describe FILE: the public types and functions of the library that was built.
describe() {
    local root=$deb/library file
    rm -rf "$root"
    for file in "$deb"/first/libantigravity"$minor"_*.deb "$deb"/first/libantigravity"$minor"-dbgsym_*.deb; do dpkg-deb -x "$file" "$root"; done
    abidw --debug-info-dir "$root/usr/lib/debug" --suppressions abi/public.suppr --no-show-locs \
        --no-comp-dir-path --no-corpus-path --type-id-style hash --out-file "$1" "$(echo "$root"/usr/lib/*/libantigravity.so."$version")"
}

# The interface of a minor version stays as it is from its first release on.
check_abi() {
    describe "$deb/now.abi"
    [ -e "abi/$minor.abi" ] || die "abi/$minor.abi is missing; 'scripts/deb.sh abi' writes it"
    quietly deb-abidiff abidiff --no-show-locs "abi/$minor.abi" "$deb/now.abi" ||
        die "the library differs from abi/$minor.abi: raise the minor version of include/antigravity/status.h and debian/, then run 'scripts/deb.sh abi'"
}

write_abi() {
    [ -z "$(git tag --list "v$minor.*")" ] || die "version $minor is released: its interface stays; raise the minor version first"
    [ -d "$deb/first" ] || build "$deb/first"
    describe "abi/$minor.abi"
    say "abi/$minor.abi"
}

build_packages() {
    need_tools --packages dpkg-buildpackage dh lintian abidw
    offline true 2>/dev/null || die "this system does not permit user namespaces, which keep the build from the network: run as root"
    say "Building the packages"
    build "$deb/first"
    say "Building them again in another directory"
    # A compiler cache would give the second build the objects of the first.
    CCACHE_RECACHE=1 build "$deb/the-second-folder"
    compare || die "the packages differ between two builds"
    quietly deb-lintian lintian --profile debian --fail-on error,warning "$deb"/first/*.changes
    check_abi
    mkdir -p dist
    rm -f dist/*antigravity*{.deb,.dsc,.changes,.buildinfo} dist/antigravity_*.tar.*
    find "$deb/first" -maxdepth 1 -type f -exec cp {} dist/ \;
    ls dist/*.deb
}

case "${1:-}" in
'') build_packages ;;
abi) write_abi ;;
--help) usage ;;
*) die "usage: scripts/deb.sh [abi]" ;;
esac
