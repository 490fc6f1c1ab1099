#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks all pages: relative links and their headings exist, and so do files, directories and ag_ names in `backticks`.
# Fenced code may use invented names. Fenced code that names a file after its language (```c examples/story.c) must be a part
# of that file, byte by byte. Checks comments of sources: files that they name below docs, src, tests, tools and so on exist.
#   pages.sh SOURCE_DIR
# shellcheck disable=SC2016 # Backticks in patterns are Markdown's.
set -euo pipefail
cd "$1"
status=0 n_links=0 n_names=0
shopt -s nullglob globstar
pages=(*.md docs/**/*.md models/*/*.md tests/data/*.md examples/*.md)

complain() {
    echo "$*"
    status=1
}

# prose FILE: without fenced code.
prose() { awk '/^ *```/ { fenced = !fenced; next } !fenced' "$1"; }

# anchors FILE: the names that its headings can be linked by.
anchors() {
    prose "$1" | sed -nE 's/^#+ +//p' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^[:alnum:]_ -]//g; s/ /-/g'
}

check_link() {
    local page=$1 link=$2 target
    n_links=$((n_links + 1))
    target=$page
    [ -z "${link%%#*}" ] || target=$(dirname "$page")/${link%%#*}
    if [ ! -e "$target" ]; then
        complain "$page: the link $link has no target"
    elif [[ $link == *'#'* ]] && ! anchors "$target" | grep -xF -- "${link#*#}" >/dev/null; then
        complain "$page: the link $link has no such heading"
    fi
}

check_name() {
    local page=$1 name=$2
    n_names=$((n_names + 1))
    case $name in
    ag_* | AG_*) grep -qxF -- "$name" <<<"$known" || complain "$page: no source declares $name" ;;
    *) [ -e "$name" ] || grep -qE -- "(^|/)${name//./\\.}\$" <<<"$files" || complain "$page: no file $name" ;;
    esac
}

# quotation PAGE I: the I-th fenced code that names a file.
quotation() {
    awk -v wanted="$2" '/^```[a-z]+ [^ ]+$/ { on = ++n == wanted; next } /^```/ { on = 0 } on' "$1"
}

check_quotations() {
    local page=$1 file i=0
    while IFS= read -r file; do
        i=$((i + 1))
        if [ ! -f "$file" ]; then
            complain "$page: code is quoted from $file, which does not exist"
        elif [[ "$(<"$file")" != *"$(quotation "$page" $i)"* ]]; then
            complain "$page: the code quoted from $file is not in that file"
        fi
    done < <(sed -nE 's/^```[a-z]+ ([^ ]+)$/\1/p' "$page")
}

known=$(grep -rhoE --include='*.[ch]' --include='CMakeLists.txt' --include='*.cmake' '\b(ag|AG)_[A-Za-z0-9_]+' \
    CMakeLists.txt cmake include src programs tests fuzz | sort -u)
# Enumerators that lists of X(NAME, ...) make.
known+=$'\n'$(grep -rhoE --include='*.h' '^ +X\([A-Z0-9_]+,' include src | sed -E 's/.*\(/AG_/; s/,//')

top='(src|include|programs|tests|tools|scripts|cmake|fuzz|docs|models|examples|packaging)'
# A file may be named without its directory.
file='[A-Za-z0-9_./-]+\.(c|h|cl|sh|py|cmake)'
files=$(git ls-files)
for page in "${pages[@]}"; do
    check_quotations "$page"
    while IFS= read -r link; do
        case $link in '' | *://* | mailto:*) ;; *) check_link "$page" "$link" ;; esac
    done < <(prose "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//')
    while IFS= read -r name; do
        [ -z "$name" ] || check_name "$page" "$name"
    done < <(prose "$page" | grep -oE '`[^`]+`' | tr -d '\140' | sed -E 's/\(\)$//' |
        grep -xE "$top/[A-Za-z0-9_./-]+|$file|(ag|AG)_[A-Za-z0-9_]*[A-Za-z0-9]" | grep -v '\.rs$' | sort -u)
done

# Comments and messages of sources: files below directories of the root, and functions written as ag_name().
while IFS=: read -r source line name; do
    [ -e "$name" ] || complain "$source:$line: no file $name"
done < <(git grep -noE "(^|[^A-Za-z0-9_./<\"-])${top/models|/}/[A-Za-z0-9_/-]+\.(c|h|cl|sh|py|md|jsonl)\b" -- \
    '*.c' '*.h' '*.cl' '*.sh' '*.py' '*.in' ':!tools/serve_agent.py' ':!tests/meta' |
    sed -E 's/^([^:]+:[0-9]+:)[^A-Za-z]/\1/' | grep -v ':docs/gguf.md$' | sort -u) # ggml has a docs/gguf.md
functions=$(git grep -hoE '\bag_[a-z0-9_]+\b(\(\))?' -- '*.c' '*.h' '*.cl' | sort -u)
while IFS= read -r name; do
    grep -qxF -- "${name%()}" <<<"$functions" || complain "a comment names $name, which no source declares"
done < <(grep '()$' <<<"$functions" || true)

if [ "$n_links" -eq 0 ] || [ "$n_names" -eq 0 ]; then
    complain "no links or names were found: this test is broken"
fi
exit $status
