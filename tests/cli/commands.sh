#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fenced commands of pages: each block of sh, and in pages of docs the lines of console blocks that begin with $.
# The blocks of a page run in one shell, as a reader types them. Each command must end with status 0 within five minutes,
# and those of antigravity must write to standard output. A block is left out if a line <!-- not run: REASON --> is before
# it; at most LEFT_OUT percent of all commands may be. Checks that generations of README.md are bounded, that scripts exist
# and that models named in README.md are those of scripts/models.sh.
#   commands.sh SOURCE_DIR PROGRAM BUILD_DIR LEFT_OUT PAGE...
#
# Other things are as on the pages, but: every model is the bundled one with a chat template, the seed is 1, `make install` installs
# BUILD_DIR, scripts/demo.sh and scripts/models.sh neither build nor fetch, and a chat reads one line. A server that is not
# started in the background is stopped when it listens; another port replaces 8080.
set -euo pipefail
source_dir=$(cd "$1" && pwd) build_dir=$3 left_out=$4
program=$(realpath "$2")
shift 4
work=$(mktemp -d)
servers=$work/servers
# A free port instead of 8080.
port=$((20000 + RANDOM % 10000))
while (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((20000 + RANDOM % 10000)); done
stop_servers() {
    local pid
    while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$servers"
    : >"$servers"
}
trap 'stop_servers; rm -rf "$work"' EXIT
export HOME=$work/home ANTIGRAVITY_MODELS=$work/models
export -n XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME
mkdir -p "$work/bin" "$HOME" "$ANTIGRAVITY_MODELS"
: >"$servers"
PATH=$work/bin:$PATH
export LD_LIBRARY_PATH=$HOME/.local/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # for a build of the shared library

status=0
fail() {
    printf '%s\n' "$1"
    status=1
}

executable() {
    cat >"$1"
    chmod +x "$1"
}

# The program may be a script that starts an emulator.
executable "$work/bin/antigravity" <<END
#!/usr/bin/env bash
[ "\$1 \${2:-}" = "serve --in-background" ] && {
    shift 2
    exec "$work/bin/serve" "\$@"
}
if [ "\$1" = serve ] && [ "\$*" != "serve --help" ]; then
    shift
    "$work/bin/serve" "\$@" || exit
    kill "\$(tail -n 1 "$servers")"
    exit
fi
if [[ \$1 =~ ^(chat|run)\$ ]] && [ ! -p /dev/stdin ]; then exec <<<"Who are you?"; fi
if [[ \$1 =~ ^(chat|generate)\$ && "\$*" != *--seed* ]]; then set -- "\$@" --seed 1; fi # the same text each time
if [[ \$1 =~ ^(chat|run)\$ && " \$* " != *" -n "* ]]; then set -- "\$@" -n 40; fi
timeout 300 "$program" "\$@" >"$work/output" || exit
cat "$work/output"
[ -s "$work/output" ] || [ "\$1" = rm ] || { echo "no output: antigravity \$*"; exit 1; }
END

# A reply that is an error fails.
executable "$work/bin/curl" <<END
#!/bin/sh
exec $(command -v curl || echo no-curl) --fail-with-body "\$@"
END

# Starts a server and waits until it listens.
executable "$work/bin/serve" <<END
#!/usr/bin/env bash
"$program" serve --port $port "\$@" >"$work/serve.log" 2>&1 &
echo \$! >>"$servers"
for ((i = 0; i < 600; i++)); do
    grep -q 'listening on' "$work/serve.log" && exit
    kill -0 \$! 2>/dev/null || break
    sleep 0.1
done
cat "$work/serve.log"
exit 1
END

# add_model NAME: into the store.
add_model() {
    mkdir "$ANTIGRAVITY_MODELS/$1"
    ln -s "$source_dir"/models/demo/* "$ANTIGRAVITY_MODELS/$1/"
    cat >"$ANTIGRAVITY_MODELS/$1/chat_template.jinja" <<'END'
{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
END
}

# make_place PAGE: the folder in which its commands run, as the root of a checkout.
make_place() {
    rm -rf "$work/place"
    mkdir -p "$work/place/scripts"
    cd "$work/place"
    ln -s "$source_dir"/{models,examples,tests,tools,bindings,docs,include} .
    # shellcheck disable=SC2016 # The variable is of make.
    printf 'install: ; cmake --install "%s" --prefix $(PREFIX)\n' "$build_dir" >Makefile
    executable scripts/demo.sh <<'END'
#!/bin/sh
exec antigravity generate --echo -p "Once upon a time" "$@"
END
    executable scripts/models.sh <<END
#!/bin/sh
echo "$ANTIGRAVITY_MODELS/SmolLM2-135M-Instruct"
END
}

# blocks PAGE: its commands with a comment before each block, and those left out as comments.
blocks() {
    awk -v readme="$([[ $1 == README.md ]] && echo 1)" '
        /^```(sh|console)$/ && !on { on = $0; print "# line " NR; next }
        /^```/ && on { on = ""; skip = 0; next }
        on {
            if (on ~ /console/ && !sub(/^\$ /, "")) next
            print ((skip || (readme && on ~ /console/)) ? "#left out: " : "") $0
            next
        }
        /^<!-- not run: .+ -->$/ { skip = 1; next }
        { skip = 0 }' "$source_dir/$1"
}

# Commands of README.md, also of those that are not run.
check_readme() {
    local line script model bound=' -n [0-9]+|--choice'
    while read -r line; do
        if [[ $line == *"antigravity generate"* && ! $line =~ $bound ]]; then
            fail "README.md: not bounded by -n or --choice: $line"
        fi
        model=$(sed -nE 's/^antigravity .* -m ([^ "]+).*/\1/p' <<<"$line")
        if [ -n "$model" ] && ! grep -q "^$model)" "$source_dir/scripts/models.sh"; then
            fail "README.md: -m $model: scripts/models.sh does not fetch it"
        fi
    done < <(sed 's/^#left out: //' "$work/commands")
}

add_model SmolLM2-135M-Instruct
n_run=0 n_left_out=0
for page in "$@"; do
    make_place
    blocks "$page" >"$work/commands"
    while read -r script; do
        [ -x "$source_dir/$script" ] || fail "$page: $script does not exist"
    done < <(grep -oE 'scripts/[a-z_]+\.sh' "$work/commands")
    [ "$page" != README.md ] || check_readme
    n_run=$((n_run + $(grep -cvE '^(#|  |$)' "$work/commands" || true)))
    n_left_out=$((n_left_out + $(grep -cE '^#left out: [^ #]' "$work/commands" || true)))
    sed -E "s/^antigravity serve (.*) &\$/antigravity serve --in-background \1/; s/\b8080\b/$port/g" "$work/commands" >"$work/page.sh"
    if ! bash -ev "$work/page.sh" >"$work/log" 2>&1 </dev/null; then
        fail "$page: the last of these commands failed:"
        tail -n 30 "$work/log"
    fi
    stop_servers
done
echo "$n_run commands were run, $n_left_out were left out"
[ $n_run -gt 0 ] || fail "no command was run: this test is broken"
[ $((100 * n_left_out)) -le $((left_out * (n_run + n_left_out))) ] || fail "more than $left_out % of the commands were left out"
exit $status
