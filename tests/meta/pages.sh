#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every page's relative links lead somewhere, headings included; files, folders and ag_ names that stand in `backticks`
# exist. Fenced code may make up names: examples need them. Fenced code that names a file behind its language
# (```c examples/story.c) stands in that file word by word.
#   pages.sh SOURCE_DIR
# shellcheck disable=SC2016 # Backticks in patterns are Markdown's.
set -euo pipefail
cd "$1"
status=0 n_links=0 n_names=0
shopt -s nullglob
pages=(*.md docs/*.md models/*/*.md tests/data/*.md examples/*.md)

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
        complain "$page: the link $link leads nowhere"
    elif [[ $link == *'#'* ]] && ! anchors "$target" | grep -xF -- "${link#*#}" >/dev/null; then
        complain "$page: the link $link names no heading"
    fi
}

check_name() {
    local page=$1 name=$2
    n_names=$((n_names + 1))
    case $name in
    */*) [ -e "$name" ] || complain "$page: there is no $name" ;;
    *) grep -qxF -- "$name" <<<"$known" || complain "$page: nothing is called $name" ;;
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
            complain "$page: the code quoted from $file does not stand there"
        fi
    done < <(sed -nE 's/^```[a-z]+ ([^ ]+)$/\1/p' "$page")
}

known=$(grep -rhoE --include='*.[ch]' --include='CMakeLists.txt' --include='*.cmake' '\b(ag|AG)_[A-Za-z0-9_]+' \
    CMakeLists.txt cmake include src programs tests fuzz | sort -u)
# Enumerators that lists of X(NAME, ...) make.
known+=$'\n'$(grep -rhoE --include='*.h' '^ +X\([A-Z0-9_]+,' include src | sed -E 's/.*\(/AG_/; s/,//')

top='(src|include|programs|tests|tools|scripts|cmake|fuzz|docs|models|examples)'
for page in "${pages[@]}"; do
    check_quotations "$page"
    while IFS= read -r link; do
        case $link in '' | *://* | mailto:*) ;; *) check_link "$page" "$link" ;; esac
    done < <(prose "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//')
    while IFS= read -r name; do
        [ -z "$name" ] || check_name "$page" "$name"
    done < <(prose "$page" | grep -oE '`[^`]+`' | tr -d '\140' | sed -E 's/\(\)$//' |
        grep -xE "$top/[A-Za-z0-9_./-]+|(ag|AG)_[A-Za-z0-9_]*[A-Za-z0-9]" | grep -v '\.rs$' | sort -u)
done

if [ "$n_links" -eq 0 ] || [ "$n_names" -eq 0 ]; then
    complain "no links or names were found: this test is broken"
fi
exit $status
