#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Debian packages of the last commit into dist/ and checks them.
#   scripts/deb.sh               source and binary packages for this system, built twice, without network, in two folders;
#                                the results must be equal. Then lintian and the comparison with abi/
#   scripts/deb.sh tree SUITE... builds the source package of dist/ without network in a clean tree of bookworm, trixie, ...;
#                                in another clean tree runs the commands of docs/guide/install.md, which install the
#                                packages, chat, compile the example and remove the packages. Then autopkgtest and
#                                piuparts, which needs root
#   scripts/deb.sh abi           rewrites the description of the library's interface in abi/, until its version has a tag
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version=$(sed -nE 's/^#define AG_VERSION_STRING "(.*)"$/\1/p' include/antigravity/status.h)
minor=${version%.*}
package=antigravity-$version
deb=$PWD/build/deb
umask 022

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is missing; scripts/setup.sh --packages installs it"
    done
}

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
    need dpkg-buildpackage dh lintian abidw
    offline true 2>/dev/null || die "this system does not permit user namespaces, which keep the build from the network: run as root"
    build "$deb/first"
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

# build_in_tree SUITE: into dist/SUITE.
build_in_tree() {
    local out=$PWD/dist/$1
    rm -rf "$out"
    mkdir -p "$out"
    # shellcheck disable=SC2016 # mmdebstrap runs these.
    OUT=$out JOBS=$jobs quietly "deb-build-$1" mmdebstrap --variant=minbase --include=build-essential,fakeroot \
        --customize-hook='mkdir "$1/src" && cp dist/antigravity_*.dsc dist/antigravity_*.tar.* "$1/src/"' \
        --customize-hook='echo "deb-src http://deb.debian.org/debian '"$1"' main" >"$1/etc/apt/sources.list.d/source.list"' \
        --customize-hook='chroot "$1" sh -c "apt-get build-dep -q -y --no-install-recommends /src/*.dsc"' \
        --customize-hook='unshare --net chroot "$1" sh -ec "cd /src; dpkg-source -x *.dsc tree; cd tree; dpkg-buildpackage -b -us -uc -j$JOBS"' \
        --customize-hook='cp "$1"/src/*.deb "$OUT/"' "$1" /dev/null
}

# page_commands PAGE: its fenced commands, for root in a tree that has the packages in dist/.
page_commands() { awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on && !/^scripts\//' "$1" | sed 's/^sudo //'; }

# check_in_tree SUITE: runs the commands of the guide in a clean tree. They end with the removal, after which no
# file of the packages is left but in the home of the user and in the cache of man.
check_in_tree() {
    mkdir -p "$deb"
    page_commands docs/guide/install.md >"$deb/install-commands"
    # shellcheck disable=SC2016
    COMMANDS=$deb/install-commands PACKAGES=$PWD/dist/$1 quietly "deb-check-$1" mmdebstrap --variant=minbase --include=man-db \
        --customize-hook='mkdir -p "$1/user/dist" && cp "$COMMANDS" "$1/user/commands"' \
        --customize-hook='find "$PACKAGES" -maxdepth 1 -name "*.deb" ! -name "*dbgsym*" -exec cp -t "$1/user/dist" {} +' \
        --customize-hook='echo "APT::Get::Assume-Yes yes;" >"$1/etc/apt/apt.conf.d/yes"' \
        --customize-hook='DEBIAN_FRONTEND=noninteractive HOME=/user chroot "$1" sh -exc "cd /user; . ./commands"' \
        --customize-hook='left=$(cd "$1" && find . -path ./user -prune -o -path ./var/cache/man -prune -o -path ./proc -prune -o -path ./sys -prune -o -name "*antigravity*" -print); echo "left: $left"; [ -z "$left" ]' \
        --customize-hook='autopkgtest -U -B "$1"/user/dist/*.deb dist/*.dsc -- chroot "$1"' \
        "$1" /dev/null
}

# purge_in_tree SUITE: piuparts installs, upgrades and purges the packages and compares the files of the tree. An archive holds
# them because they depend on each other. apt of Debian 13 creates the directory that is ignored.
purge_in_tree() {
    local packages=$deb/packages-$1
    rm -rf "$packages"
    mkdir -p "$packages" "$deb/tmp"
    find "dist/$1" -maxdepth 1 -name "*.deb" ! -name "*dbgsym*" -exec cp -t "$packages" {} +
    (cd "$packages" && apt-ftparchive packages . >Packages)
    quietly "deb-tree-$1" mmdebstrap --variant=minbase "$1" "$deb/$1.tar.gz" &&
        TMPDIR=$deb/tmp quietly "deb-piuparts-$1" piuparts --basetgz "$deb/$1.tar.gz" --distribution "$1" --mirror 'http://deb.debian.org/debian main' \
            --ignore /var/cache/debconf/tmp.ci/ --bindmount "$packages" --extra-repo "deb [trusted=yes] file://$packages ./" "$packages"/*.deb
}

build_trees() {
    local suite
    need mmdebstrap autopkgtest piuparts apt-ftparchive
    [ -n "$(compgen -G 'dist/*.dsc')" ] || build_packages
    for suite in "$@"; do
        build_in_tree "$suite"
        check_in_tree "$suite"
        purge_in_tree "$suite"
        say "$suite: built, installed, used and removed"
    done
}

case "${1:-}" in
'') build_packages ;;
abi) write_abi ;;
tree) build_trees "${@:2}" ;;
*) die "usage: scripts/deb.sh [abi | tree SUITE...]" ;;
esac
