#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the manual pages and completions that the program writes: each lists the options of every command.
#   help_forms.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "help_forms: $*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null || {
        missing[$1]=1
        return 1
    }
}
declare -A missing=() # programs that are not here, so that their form is not checked

# offers PATTERN COMMAND...: whether a line of the command's output matches. In a pipe the command could fail because grep
# ends at the first match.
offers() { grep -qE -- "$1" <<<"$("${@:2}")"; }

# options COMMAND: the long options in its help.
options() {
    # shellcheck disable=SC2086 # A command may be two words.
    "$program" $1 --help | sed -nE 's/^  (-.,|   ) (--[a-z0-9-]+).*/\2/p' | sort -u
}

# long_options: those among the words of the input.
long_options() { grep -oE '(^|[^a-z0-9-])--[a-z][a-z0-9-]*' | sed 's/^[^-]//' | sort -u; }

check_man() {
    local page=$work/page.1 name=antigravity${1:+ }$1
    # shellcheck disable=SC2086
    "$program" --help=man $1 >"$page"
    offers "^${name// /\\\\-} \\\\- .{8}" grep -A 1 -x '.SH NAME' "$page" || fail "the page of '$name' has no name"
    comm -23 <(options "$1") <(sed -n '/^.SH OPTIONS/,/^.SH EX/p' "$page" | sed -nE '/^\\fB/s/\\-/-/gp' | long_options) >"$work/missing"
    [ ! -s "$work/missing" ] || fail "the page of '$name' lacks $(<"$work/missing")"
    has man || return 0
    MANROFFSEQ='' MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" >/dev/null 2>"$work/warnings"
    [ ! -s "$work/warnings" ] || fail "the page of '$name': $(<"$work/warnings")"
}

complete_bash() {
    # shellcheck disable=SC2016 # The inner shell expands these.
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _antigravity; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$work/bash" antigravity "$@"
}

complete_zsh() {
    # shellcheck disable=SC2016
    zsh -f -c '_arguments() { print -rl -- "$@" }; _describe() { print -rl -- $list }
        file=$1; shift; words=("$@"); CURRENT=$#words; source $file' zsh "$work/zsh" antigravity "$@" |
        sed -E 's/^\*//; s/[:[].*//; s/=$//'
}

complete_fish() {
    # shellcheck disable=SC2016
    fish --no-config -c 'source $argv[1]; complete -C "$argv[2]"' "$work/fish" "antigravity $*" | cut -f1
}

check_shell() {
    local shell=$1 command
    has "$shell" || return 0
    "$program" "--help=$shell" >"$work/$shell"
    "$shell" -n "$work/$shell" || fail "$shell cannot read its completion"
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086
        "complete_$shell" $command -- | long_options >"$work/offered"
        comm -3 <(options "$command" | grep -vxE -e '--(help|version)') <(grep -vxE -e '--(help|version)' "$work/offered") >"$work/differ"
        [ ! -s "$work/differ" ] || fail "$shell: options of '$command' differ: $(<"$work/differ")"
    done
    "complete_$shell" ls -- | long_options | grep -vxE -e '--(help|version)' >"$work/offered" || true
    cmp -s <(options models | grep -vxE -e '--(help|version)') "$work/offered" || fail "$shell does not complete the alias ls as models"
    offers '^generate$' "complete_$shell" '' || fail "$shell does not offer the command generate"
    offers '^ppl$' "complete_$shell" eval '' || fail "$shell does not offer the measure ppl"
}

mapfile -t commands < <("$program" --help=commands)
for name in chat 'eval ppl' rm; do
    offers "^$name\$" printf '%s\n' "${commands[@]}" || fail "the list of commands lacks '$name'"
done
check_man ''
for name in "${commands[@]}"; do check_man "$name"; done
offers ' \\- .{8}' "$program" --help=man list || fail "the page of the alias 'list' has no description"
for name in bash zsh fish; do check_shell "$name"; done
offers '^q5_k$' complete_bash generate --weights = q5 || fail "bash does not complete --weights=q5"
if has fish >/dev/null; then
    offers '^avg$' complete_fish generate --snapkv-pool '' || fail "fish does not offer the values of --snapkv-pool"
fi
if [ ${#missing[@]} -gt 0 ]; then
    echo "skipped: not here: ${!missing[*]}"
    exit 77
fi
