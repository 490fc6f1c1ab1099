#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Comments, messages and names follow the language rules of CONTRIBUTING.md.
#   language.sh SOURCE_DIR [DIRECTORY...]
# Prints file, line, rule and replacement of each violation.
# A line that ends with "language: ok, REASON */" is not checked.
set -euo pipefail
cd "$1"
shift
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
    echo "skipped: not a git checkout"
    exit 77
}

# violations FILE...: "file:line: text", one for each violation.
violations() {
    awk '
    function report(text) {
        if (line !~ /language: ok, .*\*\//) printf "%s:%d: %s\n", FILENAME, FNR, text
    }
    # Checks the words of comment text. `opens` is true if the comment starts here.
    function check_comment(text, opens,    t, word, i) {
        t = text
        gsub(/`[^`]*`|"[^"]*"/, "x", t)
        sub(/^[ *]+/, "", t)
        if (opens && match(t, /^(Of|Those|Whose|That|What|As|Behind|How|Where|They|Whether) /))
            report("comment opens with \"" substr(t, 1, RLENGTH - 1) "\": name the thing or start with a verb")
        else if (opens && match(t, /^(of|those|whose|that|what|behind) /))
            report("comment opens with \"" substr(t, 1, RLENGTH - 1) "\": name the thing or start with a verb")
        if (match(t, /[.:;] (Of|Those|Whose|What|Behind) /))
            report("sentence opens with \"" substr(t, RSTART + 2, RLENGTH - 3) "\": name the subject")
        for (i = 1; i <= n_words; i++)
            if (match(" " tolower(t) " ", "[^a-z_]" words[i] "[^a-z_]")) report("comment has \"" words[i] "\": " instead[i])
    }
    # Checks the identifiers of code without comments and strings. Those of tests are free.
    function check_names(code,    n, list, i, parts, m, j) {
        if (FILENAME ~ /^(tests|fuzz)\//) return
        n = split(code, list, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= n; i++) {
            m = split(tolower(list[i]), parts, "_")
            for (j = 1; j <= m; j++)
                if (parts[j] in names) report("name " list[i] " has \"" parts[j] "\": " names[parts[j]])
        }
    }
    # Checks the joined strings of a message call.
    function check_message(text,    head) {
        gsub(/[Tt]here (is|are) (no|none)/, "", text)
        if (match(text, /is no |is none|are none|there already|nobody/))
            report("message has \"" substr(text, RSTART, RLENGTH) "\": say what failed: why; what would be right")
        head = text
        sub(/:.*/, "", head)
        if (text ~ /^an? / && head !~ /(^| )(is|are|was|has|have|must|may|can|cannot|needs?|does|do|ends?|starts?|exceeds?|follows?|belongs?|differs?|fails?|takes?|requires?|contains?|lacks?|comes?)( |$)/)
            report("message begins with an article and has no verb: \"" text "\"")
    }
    function word(w, r) { words[++n_words] = w; instead[n_words] = r }
    BEGIN {
        word("nobody", "name the caller, thread or client"); word("somebody", "name the caller, thread or client")
        word("whoever", "name the caller, thread or client"); word("so many", "write n or the name of the quantity")
        word("as many", "write n or the name of the quantity"); word("so much", "write n or the name of the quantity")
        word("by heart", "write \"stored\""); word("go on", "write \"continue\""); word("goes on", "write \"continues\"")
        word("anew", "write \"again\""); word("for ever", "write \"permanently\""); word("by itself", "write \"alone\"")
        names["doubt"] = "suspect"; names["worn"] = "needs_rebuild"; names["patient"] = "may_wait"
        names["goal"] = names["goals"] = "schema_set"; names["witness"] = "required_match"; names["asking"] = "query_rows"
        names["fifths"] = "qh"; names["bears"] = "accepts"; names["soon"] = "to_l1"; names["governor"] = "memory_budget"
        names["shaper"] = "schema_compiler"; names["nowhere"] = "fail, unset or absent"; names["parked"] = "prefix_entry"
        names["alike"] = "batch_invariant"; names["sealed"] = "checksummed_file"; names["ways"] = "alternatives"
        names["odds"] = "acceptance"; names["recall"] = "reload, or restore_answer"; names["tally"] = "stats"
    }
    FNR == 1 { inside = in_call = 0; message = "" }
    {
        line = rest = $0
        code = ""
        fresh = 0
        while (rest != "") {
            if (inside) {
                end = index(rest, "*/")
                text = end ? substr(rest, 1, end - 1) : rest
                check_comment(text, fresh)
                fresh = 0
                rest = end ? substr(rest, end + 2) : ""
                inside = !end
            } else if (match(rest, /"([^"\\]|\\.)*"|\047([^\047\\]|\\.)+\047|\/\*|\/\//)) {
                token = substr(rest, RSTART, RLENGTH)
                code = code substr(rest, 1, RSTART - 1)
                if (token == "//") { check_comment(substr(rest, RSTART + 2), 1); rest = ""; break }
                rest = substr(rest, RSTART + RLENGTH)
                if (token == "/*") { inside = 1; fresh = 1 }
                else {
                    code = code " "
                    if (code ~ /(AG_FAIL|complain|serve_refuse)\(/) in_call = 1
                    if (in_call && token ~ /^"/) message = message substr(token, 2, length(token) - 2)
                }
            } else {
                code = code rest
                rest = ""
            }
        }
        check_names(code)
        if (code ~ /(AG_FAIL|complain|serve_refuse)\(/) in_call = 1
        if (in_call && code ~ /;[ ]*$/) {
            check_message(message)
            in_call = 0
            message = ""
        }
        if (FILENAME ~ /^tests\// && match(code, /^static void (what|it|those|one|nothing)_[a-z0-9_]*/))
            report("test name " substr(code, 13, RLENGTH - 12) ": write <unit>_<does what>_when_<condition>")
    }' "$@"
}

mapfile -t files < <(git ls-files -- "${@:-include}" "${@:-src}" "${@:-programs}" "${@:-tests}" "${@:-fuzz}" "${@:-examples}" |
    grep -E '\.(c|h|cl)$' | grep -v '^tests/data/' | sort -u)
found=$(violations "${files[@]}")
[ -z "$found" ] || {
    printf '%s\n' "$found"
    exit 1
}
