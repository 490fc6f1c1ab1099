#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build, moves the installed tree elsewhere and builds examples/ against it in both ways that users have.
#   install.sh SOURCE_DIR BUILD_DIR WORK_DIR CC
set -euo pipefail
source_dir=$1 build_dir=$2 work=$3 cc=$4

fail() {
    echo "install: $*" >&2
    exit 1
}

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build_dir" --prefix "$work/first" >"$work/install.log"
unit=$work/first/lib/systemd/system/antigravity.service
if [ -e "$unit" ] && command -v systemd-analyze >/dev/null; then
    # What it says of units that this machine has is not ours.
    systemd-analyze verify --man=no "$unit" "${unit%service}socket" >"$work/verify.log" 2>&1 ||
        fail "systemd finds fault with the units: $(<"$work/verify.log")"
    if grep -E 'antigravity\.(service|socket)' "$work/verify.log"; then fail "systemd warns of the units"; fi
elif [ -e "$unit" ]; then
    echo "no systemd-analyze here: the units are not looked at"
fi
mv "$work/first" "$work/moved" # Whatever remembered where it was installed breaks now.
prefix=$work/moved

# The program finds its library and the bundled model from any directory.
version=$(cd / && "$prefix/bin/antigravity" --version)
[ -n "$version" ] || fail "the installed program has no version"
text=$(cd / && "$prefix/bin/antigravity" generate -q -p "Once upon a time" -n 4 --seed 1) ||
    fail "the installed program does not find the bundled model"
[ -n "$text" ] || fail "the installed program tells nothing"

# Manual pages of all commands and completions are installed.
for page in antigravity $(cd / && "$prefix/bin/antigravity" --help=commands | sed 's/^/antigravity-/; s/ /-/g'); do
    grep -q '^\.TH' "$prefix/share/man/man1/$page.1" || fail "no manual page $page is installed"
done
for file in bash-completion/completions/antigravity zsh/site-functions/_antigravity fish/vendor_completions.d/antigravity.fish; do
    grep -q max-seq-len "$prefix/share/$file" || fail "no completions are installed as $file"
done

# tell WHAT: the example just built as $work/WHAT/story tells something.
tell() {
    local story
    story=$(cd / && LD_LIBRARY_PATH=$libdir "$work/$1/story" "$prefix/share/antigravity/models/demo" "Once upon a time") ||
        fail "the example built by $1 fails"
    [ ${#story} -gt 20 ] || fail "the example built by $1 tells only: $story"
}

pc=$(find "$prefix" -name antigravity.pc)
[ -n "$pc" ] || fail "no antigravity.pc is installed"
libdir=$(dirname "$(dirname "$pc")")
if grep -rqF "$work/first" "$prefix" --include='*.cmake' --include='*.pc'; then
    fail "the package remembers where it was first installed"
fi

cmake -S "$source_dir/examples" -B "$work/cmake" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" >"$work/configure.log"
cmake --build "$work/cmake" >"$work/build.log"
tell cmake

mkdir "$work/pkg-config"
export PKG_CONFIG_PATH=${pc%/*}
# shellcheck disable=SC2046 # The flags are words.
"$cc" -std=c11 "$source_dir/examples/story.c" $(pkg-config --cflags --libs antigravity) -o "$work/pkg-config/story"
tell pkg-config

text=$(LD_LIBRARY_PATH=$libdir "$work/pkg-config/story" none/model 2>&1) && fail "story tells one without a model"
[ "$text" = "story: none/model: No such file or directory; usage: story MODEL_DIR [TEXT]" ] || fail "no usage: $text"

if [ "$(pkg-config --modversion antigravity)" != "$(sed -n 's/.*PACKAGE_VERSION "\(.*\)".*/\1/p' \
    "$libdir/cmake/antigravity/antigravityConfigVersion.cmake" | head -1)" ]; then
    fail "antigravity.pc and the CMake package disagree about the version"
fi
