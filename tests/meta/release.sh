#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A release starts from a clean tag alone, and its SPDX document names each file by its checksum.
#   release.sh SOURCE_DIR
set -euo pipefail
cd "$1"
if ! command -v git >/dev/null || ! command -v python3 >/dev/null; then exit 77; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# refuses TEXT ARGUMENT...: release.sh of the copy fails with the text.
refuses() {
    local text=$1 output
    shift
    if output=$("$work/tree/scripts/release.sh" "$@" 2>&1); then
        echo "release.sh $*: succeeds; '$text' is right"
        status=1
    elif [[ $output != *"$text"* ]]; then
        echo "release.sh $*: '$output' lacks '$text'"
        status=1
    fi
}

in_tree() { git -C "$work/tree" -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false -c tag.gpgsign=false "$@"; }

mkdir -p "$work/tree/include/antigravity" "$work/tree/scripts"
cp scripts/{common,zig,release}.sh "$work/tree/scripts/"
echo '#define AG_VERSION_STRING "1.2.3"' >"$work/tree/include/antigravity/status.h"
printf '# Changes\n\n## 1.2.2\n' >"$work/tree/CHANGELOG.md"
in_tree init -q
in_tree add -A
in_tree commit -qm first
refuses 'usage: '
refuses 'usage: ' v1.2.3
refuses 'has version 1.2.3, not 1.2.4' 1.2.4
refuses 'the tag v1.2.3 is not checked out' 1.2.3
in_tree tag v1.2.3
refuses "has no section '## 1.2.3'" 1.2.3
echo more >>"$work/tree/CHANGELOG.md"
refuses 'the tree has changes' 1.2.3
in_tree commit -qam second
refuses 'the tag v1.2.3 is not checked out' 1.2.3

mkdir -p "$work/dist" "$work"/sources/{jansson/jansson-2.14,pcre2/pcre2-10.42,utf8proc/utf8proc-2.8.0,libevent/libevent-2.1.12}
echo one >"$work/dist/antigravity-1.2.3-linux-x86_64.tar.gz"
echo two >"$work/dist/antigravity_1.2.3_amd64.deb"
tools/sbom.py 1.2.3 abcdef 0 --sources "$work/sources" "$work"/dist/* >"$work/sbom.json"
python3 - "$work/sbom.json" "$(sha256sum <"$work/dist/antigravity_1.2.3_amd64.deb" | cut -d' ' -f1)" <<'END' || status=1
import json
import sys

document = json.load(open(sys.argv[1], encoding="utf-8"))
packages = {p["name"]: p for p in document["packages"]}
links = {(r["spdxElementId"], r["relatedSpdxElement"]) for r in document["relationships"] if r["relationshipType"] == "STATIC_LINK"}
program, deb = packages["antigravity-1.2.3-linux-x86_64.tar.gz"], packages["antigravity_1.2.3_amd64.deb"]
assert deb["checksums"] == [{"algorithm": "SHA256", "checksumValue": sys.argv[2]}], deb
assert packages["pcre2"]["versionInfo"] == "10.42", packages["pcre2"]
assert document["creationInfo"]["created"] == "1970-01-01T00:00:00Z", document["creationInfo"]
assert (program["SPDXID"], packages["pcre2"]["SPDXID"]) in links, links
assert not any(a == deb["SPDXID"] for a, _ in links), links
assert len({p["SPDXID"] for p in document["packages"]}) == len(document["packages"])
END
exit $status
