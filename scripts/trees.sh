#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs, uses and removes the packages and the wheel in fresh minimal trees, which mmdebstrap makes. Needs root.
#   scripts/trees.sh [SUITE...]      bookworm (Debian 12), trixie (Debian 13) and noble (Ubuntu 24.04), if none is named
#   scripts/trees.sh --built SUITE   checks the packages in dist/ themselves, which a system of the suite has built
# First scripts/deb.sh and scripts/wheel.sh build what dist/ lacks. For each suite, four steps:
# - builds the source package without network in a tree, into dist/SUITE;
# - in another tree runs the commands of docs/guide/install.md and docs/guide/python.md: the packages chat through a pipe and
#   compile the example; the wheel streams a story, runs a policy in Python and serves a client from PyPI. Then the commands
#   remove everything, and only directories of users may be left that docs/guide/install.md names;
# - runs autopkgtest in that tree;
# - installs, upgrades and purges the packages in a third tree with piuparts.
# A suite whose archive cannot be reached is skipped, and this is said. --built omits the first step and the last.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

work=$PWD/build/trees
ubuntu_key=$work/ubuntu.gpg
arch=$(uname -m)
# The commands of the guides serve on this port of the machine, for a tree has no network of its own.
port=$((20000 + RANDOM % 10000))

# archive SUITE: the address of its packages and the parts that hold them.
archive() {
    case $1 in
    noble) echo 'http://archive.ubuntu.com/ubuntu main universe' ;;
    *) echo 'http://deb.debian.org/debian main' ;;
    esac
}

download() { quietly trees-download /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "$1" "$2"; }

# add_key SUITE: the key that signs a suite of Ubuntu, from its archive, since Debian has no package with it.
add_key() {
    [ "$1" = noble ] || return 0
    local all=$work/ubuntu-keys.gpg
    download http://archive.ubuntu.com/ubuntu/project/ubuntu-archive-keyring.gpg "$all" &&
        gpg --batch --no-permission-warning --homedir "$work" --no-default-keyring --keyring "$all" --export F6ECB3762474EDA9D21B7022871920D1991BC93C \
            >"$ubuntu_key"
}

# make_tree SUITE OUTPUT OPTION...
make_tree() {
    local suite=$1 output=$2 address parts keyring=()
    read -r address parts <<<"$(archive "$1")"
    [ "$1" != noble ] || keyring=(--keyring="$ubuntu_key")
    mmdebstrap --variant=minbase --include=apt "${keyring[@]}" "${@:3}" "$suite" "$output" "deb $address $suite $parts"
}

# copy_packages FROM TO: without those for debuggers.
copy_packages() {
    rm -rf "$2"
    mkdir -p "$2"
    find "$1" -maxdepth 1 -name '*.deb' ! -name '*dbgsym*' -exec cp -t "$2" {} +
}

# build_packages SUITE: into dist/SUITE.
build_packages() {
    local out=$PWD/dist/$1 address parts
    read -r address parts <<<"$(archive "$1")"
    rm -rf "$out"
    mkdir -p "$out"
    # shellcheck disable=SC2016 # mmdebstrap runs these.
    OUT=$out JOBS=$jobs SOURCES="deb-src $address $1 $parts" quietly "trees-build-$1" make_tree "$1" /dev/null \
        --include=build-essential,fakeroot \
        --customize-hook='mkdir "$1/src" && cp dist/antigravity_*.dsc dist/antigravity_*.tar.* "$1/src/"' \
        --customize-hook='echo "$SOURCES" >"$1/etc/apt/sources.list.d/source.list"' \
        --customize-hook='chroot "$1" sh -c "apt-get build-dep -q -y --no-install-recommends /src/*.dsc"' \
        --customize-hook='unshare --net chroot "$1" sh -ec "cd /src; dpkg-source -x *.dsc tree; cd tree; dpkg-buildpackage -b -us -uc -j$JOBS"' \
        --customize-hook='cp "$1"/src/*.deb "$OUT/"'
}

# page_commands PAGE...: their fenced commands, for root in a tree that has in dist/ what the scripts build. A server is waited for.
page_commands() {
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on && !/^scripts\//' "$@" |
        sed -E "s/^sudo //; s/\\b8080\\b/$port/g" |
        sed -E "s|^(.* serve\\b.*) &\$|\\1 --port $port \\&\\nuntil (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; do kill -0 \$!; sleep 0.1; done|"
}

# user_directories: those that remain, as docs/guide/install.md lists them. /user is the home in a tree.
# shellcheck disable=SC2016 # Backquotes of the page.
user_directories() { sed -nE 's/^\| `~(\/[^`]*)`.*/\/user\1/p' docs/guide/install.md | LC_ALL=C sort; }

# tree_commands: what a user types in the checkout, which begins with data of former days and ends with nothing else. Python
# has a module of its own that is called antigravity.
tree_commands() {
    # shellcheck disable=SC2016 # The tree has these files.
    echo 'xargs mkdir -p </user/directories'
    page_commands docs/guide/install.md docs/guide/python.md
    # shellcheck disable=SC2016
    echo 'find / \( -path /proc -o -path /sys -o -path /var/cache/man -o -path "/usr/lib/python3.*/antigravity.*" -o -path /user/checkout \) -prune -o -name "*antigravity*" -print |
    LC_ALL=C sort | diff /user/directories -'
}

# use_packages SUITE PACKAGES: the commands of the guides, then the tests of debian/tests.
use_packages() {
    local user=$work/user
    rm -rf "$user"
    copy_packages "$2" "$user/checkout/dist"
    cp dist/libantigravity-*"_$arch.whl" "$user/checkout/dist"
    user_directories >"$user/directories"
    tree_commands >"$user/commands"
    # A mirror of PyPI may have a certificate that only this machine trusts. autopkgtest truncates the log that it writes to.
    # shellcheck disable=SC2016 # mmdebstrap runs these.
    COPY=$user LOG=$PWD/build/log/trees-autopkgtest-$1.log quietly "trees-use-$1" make_tree "$1" /dev/null --include=man-db,ca-certificates \
        --essential-hook='cp -r /usr/local/share/ca-certificates "$1/usr/local/share/"' \
        --customize-hook='cp -r "$COPY" "$1/user"' \
        --customize-hook='echo "APT::Get::Assume-Yes yes;" >"$1/etc/apt/apt.conf.d/yes"' \
        --customize-hook='DEBIAN_FRONTEND=noninteractive HOME=/user PIP_CERT=/etc/ssl/certs/ca-certificates.crt chroot "$1" bash -exc "cd /user/checkout; . ../commands"' \
        --customize-hook='autopkgtest -U -B "$1"/user/checkout/dist/*.deb dist/*.dsc -- chroot "$1" >"$LOG" 2>&1 || { cat "$LOG"; false; }'
    grep -q 'slots are equal: True' "build/log/trees-use-$1.log" || die "$1: the policy in Python does not retain the slots of the policy in C"
}

# purge_packages SUITE: piuparts installs, upgrades and purges the packages and compares the files of the tree. An archive
# holds them because they depend on each other. Directories that are ignored: of apt in Debian 13, of Ubuntu's base system.
purge_packages() {
    local packages=$work/packages-$1
    copy_packages "dist/$1" "$packages"
    (cd "$packages" && apt-ftparchive packages . >Packages)
    mkdir -p "$work/tmp"
    quietly "trees-minimal-$1" make_tree "$1" "$work/$1.tar.gz" &&
        TMPDIR=$work/tmp quietly "trees-piuparts-$1" piuparts --basetgz "$work/$1.tar.gz" --distribution "$1" --mirror "$(archive "$1")" \
            --ignore /var/cache/debconf/tmp.ci/ --ignore /lib.usr-is-merged/ --bindmount "$packages" --extra-repo "deb [trusted=yes] file://$packages ./" "$packages"/*.deb
}

check_suite() {
    local address
    address=$(archive "$1")
    if ! download "${address%% *}/dists/$1/InRelease" "$work/InRelease" || ! add_key "$1"; then
        say "$1: SKIPPED, since ${address%% *} cannot be reached"
        return 0
    fi
    if [ -n "$built" ]; then
        say "$1: using the packages in dist/"
        use_packages "$1" dist
    else
        say "$1: building the packages"
        build_packages "$1"
        say "$1: using them and the wheel"
        use_packages "$1" "dist/$1"
        say "$1: upgrading and purging them"
        purge_packages "$1"
    fi
    say "$1: installed, used and removed; data of the user is left: $(user_directories | sed 's|^/user|~|' | paste -s -d' ')"
}

built=
case ${1:-} in
--help)
    usage
    exit
    ;;
--built)
    built=yes
    shift
    [ $# = 1 ] || die "usage: scripts/trees.sh [SUITE... | --built SUITE]"
    ;;
esac
suites=("$@")
[ $# -gt 0 ] || suites=(bookworm trixie noble)
need_tools --packages mmdebstrap autopkgtest piuparts apt-ftparchive gpg
[ "$(id -u)" = 0 ] || die "chroot and piuparts need root"
[ -n "$(compgen -G 'dist/*.dsc')" ] || scripts/deb.sh
[ -n "$(compgen -G "dist/libantigravity-*_$arch.whl")" ] || scripts/wheel.sh
mkdir -p "$work"
for suite in "${suites[@]}"; do check_suite "$suite"; done
