#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the images of packaging/Containerfile and packaging/Containerfile.static with buildah, starts each server and asks it
# once. The Debian image stands on a base that mmdebstrap makes, so no registry is needed. Root or user namespaces suffice.
#   scripts/containers.sh            both; first: scripts/static.sh
#   scripts/containers.sh debian     or static
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for tool in buildah mmdebstrap curl; do
    command -v "$tool" >/dev/null || die "$tool is missing: apt-get install buildah mmdebstrap curl"
done
work=$PWD/build/containers
mkdir -p "$work"
buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
in_store() { "${buildah[@]}" "$@"; }

make_base() {
    local id
    [ -e "$work/base.tar" ] || {
        say "Making a minimal Debian 12"
        quietly containers-base mmdebstrap --format=tar --variant=minbase bookworm "$work/base.part" ||
            die "mmdebstrap failed"
        mv "$work/base.part" "$work/base.tar"
    }
    id=$(in_store from scratch)
    quietly containers-import in_store add "$id" "$work/base.tar" /
    quietly containers-import in_store commit --rm "$id" localhost/debian-base
}

build_debian() {
    make_base
    say "Building the Debian image"
    quietly containers-debian in_store bud --isolation chroot --format docker --build-arg BASE=localhost/debian-base \
        -t antigravity -f packaging/Containerfile .
}

build_static() {
    local roots=(build/musl/antigravity-*-linux-"$(uname -m)")
    [ -x "${roots[0]}/bin/antigravity" ] || die "no static program: run scripts/static.sh first"
    say "Building the static image"
    quietly containers-static in_store bud --isolation chroot --format docker -t antigravity-static \
        -f packaging/Containerfile.static "${roots[0]}"
}

# ask IMAGE PORT: starts the image's command with a key and the demo model, and asks for its models and a text.
ask() {
    local id server reply status=1
    id=$(in_store from "$1")
    # A group of its own: buildah passes no signal on to the server.
    setsid "${buildah[@]}" run --isolation chroot -e ANTIGRAVITY_API_KEY=secret -v "$PWD/models:/models:ro" "$id" -- \
        antigravity serve --host 127.0.0.1 --port "$2" >"build/log/containers-serve.log" 2>&1 &
    server=$!
    for _ in $(seq 60); do
        curl -fs "http://127.0.0.1:$2/health" >/dev/null && break
        sleep 1
    done
    reply=$(curl -fs -H 'Authorization: Bearer secret' "http://127.0.0.1:$2/v1/completions" \
        -d '{"model": "demo", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}') &&
        grep -q 'a little girl named Lily' <<<"$reply" && status=0
    kill -- "-$server" || true
    wait "$server" || true
    in_store rm "$id" >/dev/null
    [ $status = 0 ] || die "$1 does not answer: $reply $(<build/log/containers-serve.log)"
    say "$1: $(in_store images --format '{{.Size}}' "localhost/$1"), answers"
}

images=("$@")
[ $# -gt 0 ] || images=(debian static)
for image in "${images[@]}"; do
    "build_$image"
    case $image in
    debian) ask antigravity 8091 ;;
    static) ask antigravity-static 8092 ;;
    esac
done
