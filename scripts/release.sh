#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds all files of a release into dist/ from the tag vVERSION, which must be checked out and unchanged: wheels, an sdist
# that names them, Debian packages, static programs, the site, an SPDX document and checksums. Installs each in a fresh
# directory or tree, where it must tell a story, those of the other processor with qemu. Publishes nothing.
#   scripts/release.sh VERSION
# Needs root. First: scripts/setup.sh --packages and scripts/test.sh --all
source "$(dirname "${BASH_SOURCE[0]}")/zig.sh"

story='a little girl named Lily'
arches=(x86_64 aarch64)
tell=(generate -q -p 'Once upon a time' -n 12 --temperature 0)

check_tag() {
    [[ ${1:-} =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "usage: scripts/release.sh VERSION, such as 0.2.0"
    local header
    header=$(sed -n 's/.*AG_VERSION_STRING "\(.*\)".*/\1/p' include/antigravity/status.h)
    [ "$header" = "$1" ] || die "include/antigravity/status.h has version $header, not $1"
    [ "$(git rev-parse -q --verify "v$1^{commit}" || true)" = "$(git rev-parse HEAD)" ] ||
        die "the tag v$1 is not checked out: git checkout v$1"
    [ -z "$(git status --porcelain)" ] || die "the tree has changes: git status lists them"
    grep -q "^## $1\$" CHANGELOG.md || die "CHANGELOG.md has no section '## $1'"
    # The packages are installed in a tree of bookworm, so they must be built on it.
    grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release || die "this system is not Debian 12; release there"
}

# make_sdist: pip prefers a wheel; where none fits, it stops with the one line of no_build.py.
make_sdist() {
    local name=libantigravity-$version
    local root=build/release-files/$name
    mkdir -p "$root/tools"
    cp bindings/python/pyproject.toml "$root/"
    cp bindings/python/tools/no_build.py "$root/tools/"
    printf 'Metadata-Version: 2.1\nName: libantigravity\nVersion: %s\n' "$version" >"$root/PKG-INFO"
    tar -C build/release-files -czf "dist/$name.tar.gz" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw \
        --mtime="@$SOURCE_DATE_EPOCH" "$name"
}

# expect_story WHAT COMMAND...: the command's output has the story.
expect_story() {
    local what=$1
    shift
    quietly release-check "$@" || die "$what: does not run"
    grep -q "$story" build/log/release-check.log || die "$what: does not tell its story"
    say "$what tells its story"
}

check_sdist() {
    local venv=build/release-files/venv log=build/log/release-sdist.log
    python3 -m venv "$venv"
    if "$venv/bin/pip" install --no-index --force-reinstall "dist/libantigravity-$version.tar.gz" >"$log" 2>&1; then
        die "dist/libantigravity-$version.tar.gz: pip installs it"
    fi
    grep -q 'pip cannot build it from its sources' "$log" || die "the sdist does not say why: $(<"$log")"
    say "dist/libantigravity-$version.tar.gz says why it cannot be installed"
}

check_static() {
    local arch archive emulator root=build/release-files/static
    mkdir -p "$root"
    for arch in "${arches[@]}"; do
        archive=antigravity-$version-linux-$arch
        emulator=
        [ "$arch" = "$(uname -m)" ] || emulator=$(command -v "qemu-$arch-static")
        tar -C "$root" -xzf "dist/$archive.tar.gz"
        # shellcheck disable=SC2086 # Without an emulator there is no word.
        expect_story "dist/$archive.tar.gz" env -i $emulator "$root/$archive/bin/antigravity" "${tell[@]}"
    done
}

check_site() {
    grep -q '<title>' <<<"$(tar -xzOf "dist/antigravity-$version-site.tar.gz" html/index.html)" || die "the site has no index.html"
}

pack_site() {
    tar -C build/site -czf "dist/antigravity-$version-site.tar.gz" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" html
}

if [ "${1:-}" = --help ]; then
    usage
    exit
fi
check_tag "$@"
version=$1
[ "$(id -u)" = 0 ] || die "scripts/trees.sh, which checks the packages, needs root"
need_tools --packages mmdebstrap qemu-x86_64-static qemu-aarch64-static
make_epoch
rm -rf dist build/release-files
mkdir -p dist build/release-files
for part in deb site; do "scripts/$part.sh"; done # the first removes older archives
scripts/wheel.sh "${arches[@]}"
scripts/static.sh "${arches[@]}"
pack_site
make_sdist
check_sdist
check_static
check_site
scripts/trees.sh --built bookworm
tools/sbom.py "$version" "$(git rev-parse HEAD)" "$SOURCE_DATE_EPOCH" --sources build/deps-source dist/* >"build/release-files/sbom"
mv build/release-files/sbom "dist/antigravity-$version.spdx.json"
(cd dist && sha256sum -- * >SHA256SUMS && sha256sum --quiet -c SHA256SUMS)
say "dist/ has the release $version. To publish it: twine upload dist/libantigravity-$version*.whl dist/libantigravity-$version.tar.gz; attach the other files to the tag's page"
