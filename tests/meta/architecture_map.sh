#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks tables: directories include what docs/design/architecture.md lists, and its drawing shows the same; files of
# tests/data/design-names.md exist and declare the symbols of their row.
#   architecture_map.sh SOURCE_DIR
# shellcheck disable=SC2016 # Backticks in patterns are Markdown's.
set -euo pipefail
cd "$1"
page=docs/design/architecture.md status=0 rows=0 symbols=0

complain() {
    echo "$page: $*"
    status=1
}

# section TITLE: the lines below "## TITLE", up to the next heading of that level.
section() { awk -v title="## $1" '/^## / { on = $0 == title; next } on' "$page"; }

# table_rows: the cells of the section on stdin, without headings and rules, separated by tabs.
table_rows() {
    sed -nE '/^\|/{/^\|[-| ]+$/d; s/^\| *//; s/ *\|$//; s/ *\| */\t/g; p;}' | grep -vE '^(Name|Room|Folder|What)'$'\t'
}

# quoted TEXT: what stands in backticks, one a line.
quoted() { grep -oE '`[^`]+`' <<<"$1" | tr -d '\140' || true; }

# read_code FILE: into code[FILE], without comments, so that a mention is not taken for a declaration.
declare -A code
read_code() { [ -n "${code[$1]:-}" ] || code[$1]=$(sed -E 's@/\*([^*]|\*[^/])*\*/@@g; /\/\*/,/\*\//d' "$1"); }

# declares FILE SYMBOL. Code is formatted, so declarations begin a line and members and enumerators are indented.
declares() {
    local s=$2 patterns IFS='|'
    patterns=(
        "^([A-Za-z_][^=;]*[ *])?${s}\\("                     # a function
        "^(typedef )?(struct|enum) ${s}( \\{|;)" "^\\} ${s};" # a structure or an enumeration
        "^typedef .*[ *]${s};" "^typedef .*\\(\\*${s}\\)\\("   # another name for a type
        "^ag_[a-z0-9_]+_fn ${s};"                             # a function, by its type
        "^(extern )?const .* ${s}( =|;)"
        "^#define ${s}( |\\(|\$)"
        "^ +${s}( =|,|\$)" "^enum \\{.*[ ,]${s}[ ,].*\\}" # an enumerator
        "^ +X\\(${s#AG_},"                                # the same in an X list
    )
    grep -qE "${patterns[*]}" <<<"${code[$1]}"
}

# has_member FILE TYPE.MEMBER
has_member() {
    local body type=${2%%.*}
    body=$(awk -v t="$type" '$0 ~ "^(typedef )?struct " t " \\{" { on = 1 } on; /^\}/ { on = 0 }' <<<"${code[$1]}")
    grep -qE "[ *(]${2#*.}[],;[):]" <<<"$body"
}

# check_symbol NAME SYMBOL FILE...
check_symbol() {
    local name=$1 symbol=$2 file
    shift 2
    symbols=$((symbols + 1))
    for file in "$@"; do
        read_code "$file"
        if [[ $symbol == *.* ]]; then
            has_member "$file" "$symbol" && return
        else
            declares "$file" "$symbol" && return
        fi
    done
    complain "$name: $symbol is not declared in $*"
}

check_row() {
    local name=$1 here=$2 where=$3 remark=$4 file symbol files=()
    rows=$((rows + 1))
    while IFS= read -r file; do
        [ -n "$file" ] || continue
        if [ -f "$file" ]; then files+=("$file"); else complain "$name: there is no file $file"; fi
    done < <(quoted "$where")
    [ ${#files[@]} -gt 0 ] || [ -n "$remark" ] || complain "$name: neither a file nor a reason"
    while IFS= read -r symbol; do
        if [ -z "$symbol" ]; then
            continue
        elif [ ${#files[@]} -gt 0 ]; then
            check_symbol "$name" "$symbol" "${files[@]}"
        else
            complain "$name: $symbol has no file"
        fi
    done < <(quoted "$here")
}

# check_room FOLDER ROOMS: headers that the folder includes from elsewhere in src/.
check_room() {
    local folder=$1 allowed=" $2 " room included
    [ -d "$folder" ] || { complain "there is no room $folder"; return; }
    while IFS= read -r included; do
        room=${included%%/*}
        [ "src/$room" = "$folder" ] || [[ $allowed == *" $room "* ]] ||
            complain "$folder includes \"$included\", but the table does not list $room"
    done < <(grep -rhoE --include='*.[ch]' '^#include "[^"]+"' "$folder" | sed -E 's/.*"(.*)"/\1/' | sort -u)
}

tab=$'\t'
rooms=$(section 'The tree' | table_rows | grep '^`src/')
for folder in src/*/; do
    grep -qF "\`${folder%/}\`" <<<"$rooms" || complain "the tree leaves out ${folder%/}"
done
while IFS=$tab read -r room _ includes; do
    check_room "${room//\`/}" "$(quoted "$includes" | tr '\n' ' ')"
done <<<"$rooms"

# The drawing: "a --> b" means that a includes headers of b. Each edge must be an entry of the table, each entry a path of edges.
edges=$(section 'The picture' | sed -nE 's/^ *([a-z]+)(\["[^"]*"\])? --> ([a-z]+)$/\1 \3/p')
# entries: "directory included-directory" for each entry of the table.
entries=$(while IFS=$tab read -r room _ includes; do
    room=${room//\`/}
    while IFS= read -r to; do [ -z "$to" ] || echo "${room#src/} $to"; done < <(quoted "$includes")
done <<<"$rooms")
[ -n "$edges" ] || complain 'the picture has no edges'
while IFS= read -r edge; do
    grep -qxF -- "$edge" <<<"$entries" || complain "the picture draws ${edge/ / --> }, which the table does not list"
done <<<"$edges"
# closure: all pairs that edges connect, also through others.
closure=$(awk '{ reach[$1, $2] = 1; names[$1]; names[$2] }
    END {
        for (k in names) for (i in names) if ((i, k) in reach) for (j in names) if ((k, j) in reach) reach[i, j] = 1
        for (p in reach) { split(p, pair, SUBSEP); print pair[1], pair[2] }
    }' <<<"$edges")
while IFS= read -r entry; do
    grep -qxF -- "$entry" <<<"$closure" || complain "the table lists ${entry/ / -> }, which the picture does not draw"
done <<<"$entries"

page=tests/data/design-names.md
# An empty cell must stay one: tabs in a row would count as a single separator.
while IFS='|' read -r name here where remark; do
    check_row "$name" "$here" "$where" "$remark"
done < <(table_rows <"$page" | tr "$tab" '|')

if [ "$rows" -lt 100 ] || [ "$symbols" -lt 200 ]; then
    complain "only $rows rows with $symbols symbols were read: the page or this test is broken"
fi
exit $status
