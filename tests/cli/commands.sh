#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fenced commands of pages: each block of sh, and in pages of docs the lines of console blocks that begin with $.
# The blocks of a page run in one shell, as a reader types them. Each command must end with status 0 within five minutes,
# and those of antigravity must write to standard output. A block is left out if a line <!-- not run: REASON --> is before
# it; at most LEFT_OUT percent of all commands may be. <!-- run by SCRIPT --> names a script that does the same in its own
# way; the script must exist. Checks that generations of README.md are bounded, that scripts exist and that models named in
# README.md are those of scripts/models.sh.
#   commands.sh SOURCE_DIR PROGRAM BUILD_DIR LEFT_OUT PAGE...
#
# Other things are as on the pages, but: every model is the bundled one with a chat template, the seed is 1, `make install` installs
# BUILD_DIR, scripts/demo.sh and scripts/models.sh neither build nor fetch, and a chat reads one line. A server that is not
# started in the background is stopped when it listens; other ports replace 8080 to 8082. Measurements are of a small shape, with few
# tokens, and generations have at most 40.
set -euo pipefail
source_dir=$(cd "$1" && pwd) build_dir=$3 left_out=$4
program=$(realpath "$2")
shift 4
work=$(mktemp -d)
servers=$work/servers
hub_commit=0123456789abcdef0123456789abcdef01234567
# Four free ports: instead of 8080, of the hub, and instead of 8081 and 8082.
is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=$((20000 + RANDOM % 10000))
while is_taken $port || is_taken $((port + 1)) || is_taken $((port + 2)) || is_taken $((port + 3)); do
    port=$((20000 + RANDOM % 10000))
done
stop_servers() {
    local pid
    while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$servers"
    # A process that has ended but whose parent does not wait for it answers kill -0.
    while read -r pid; do
        while grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$pid/status"; do sleep 0.02; done
    done <"$servers"
    : >"$servers"
}
trap 'stop_servers; rm -rf "$work"' EXIT
export HOME=$work/home ANTIGRAVITY_MODELS=$work/models
export -n XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME
mkdir -p "$work/bin" "$HOME" "$ANTIGRAVITY_MODELS"
: >"$servers"
PATH=$work/bin:$PATH
export LD_LIBRARY_PATH=$HOME/.local/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # for a build of the shared library

# A Python that the package of the build suits.
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import sys, cffi, numpy; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
    python=$(command -v "$candidate")
    break
done

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
if [[ \$1 =~ ^(chat|generate|run)\$ && "\$*" != *--seed* ]]; then set -- "\$@" --seed 1; fi # the same text each time
if [[ \$1 =~ ^(chat|run)\$ && " \$* " != *" -n "* ]]; then set -- "\$@" -n 40; fi
case "\$1 \${2:-}" in
generate*) [[ " \$* " == *" -n "* ]] || set -- "\$@" -n 40 ;;
"bench "*--replay*) set -- "\$@" -r 1 --shape tiny ;;
bench*) set -- "\$@" -r 1 -p 8 -n 2 -d 0,16 --shape tiny ;;
"eval ruler") set -- "\$@" -n 1 --length 640 --tasks niah_single_1 ;;
"eval needle") set -- "\$@" -n 1 ;;
"eval kl") set -- "\$@" --tokens 300 ;;
rm*) set -- "\$@" --yes ;;
esac
timeout 300 "$program" "\$@" >"$work/output" || exit
cat "$work/output"
[ -s "$work/output" ] || [ "\$1" = rm ] || [[ " \$* " == *" -n 0 "* ]] || { echo "no output: antigravity \$*"; exit 1; }
END

executable "$work/bin/micro_bench" <<END
#!/bin/sh
[ -x "$build_dir/bin/micro_bench" ] || exit 0
exec "$build_dir/bin/micro_bench" "\$@" --cases oracle --op rms_norm --ms 1 >"$work/output"
END

# A virtual environment has the package of the build, and pip installs nothing.
executable "$work/bin/python3" <<END
#!/bin/bash
if [ "\$1 \$2" = "-m venv" ]; then
    mkdir -p "\$3/bin"
    ln -s "$work/stage/share" "\$3/share"
    printf '#!/bin/sh\nexec env PYTHONPATH="%s" "%s" "\$@"\n' "$work/stage" "$python" >"\$3/bin/python"
    printf '#!/bin/sh\nls "\$2" >/dev/null\n' >"\$3/bin/pip"
    chmod +x "\$3"/bin/*
    exit
fi
exec "$python" "\$@"
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

# make_place: the folder in which its commands run, as the root of a checkout.
make_place() {
    local name
    rm -rf "$work/place" "$ANTIGRAVITY_MODELS"
    mkdir -p "$work/place/scripts" "$ANTIGRAVITY_MODELS"
    for name in "${models[@]}"; do add_model "$name"; done
    cd "$work/place"
    ln -s "$source_dir"/{models,examples,tests,tools,bindings,docs,include} .
    find "$work/files" -mindepth 1 -maxdepth 1 -exec ln -s {} . \;
    # shellcheck disable=SC2016 # The variable is of make.
    printf 'install: ; cmake --install "%s" --prefix $(PREFIX)\n' "$build_dir" >Makefile
    executable scripts/demo.sh <<'END'
#!/bin/sh
exec antigravity generate --echo -p "Once upon a time" "$@"
END
    printf '#!/bin/sh\nmkdir -p dist && touch dist/libantigravity.whl\n' | executable scripts/wheel.sh
    executable scripts/models.sh <<END
#!/bin/sh
echo "$ANTIGRAVITY_MODELS/SmolLM2-135M-Instruct"
END
}

# blocks PAGE: its commands with a comment before each block, and those left out as comments.
blocks() {
    awk -v readme="$([[ $1 == README.md ]] && echo 1)" '
        /^```(sh|console)$/ && !on { on = $0; print "# line " NR; next }
        /^```/ && on { on = skip = ""; next }
        on {
            if (on ~ /console/ && !sub(/^\$ /, "")) next
            print (skip ? skip : readme && on ~ /console/ ? "#left out: " : "") $0
            next
        }
        /^<!-- not run: .+ -->$/ { skip = "#left out: "; next }
        /^<!-- run by [^ ]+ -->$/ { skip = "#run by " $4 ": "; next }
        { skip = "" }' "$source_dir/$1"
}

# list_files NAME FILE...: the hub's list of a repository.
list_files() {
    local name=$1 file files=()
    mkdir -p "$work/hub/api/models/$name/revision" "$work/hub/$name/resolve/$hub_commit"
    for file in "${@:2}"; do
        ln -s "$file" "$work/hub/$name/resolve/$hub_commit/"
        files+=("{\"rfilename\": \"${file##*/}\", \"size\": $(stat -Lc %s "$file")}")
    done
    printf '{"sha": "%s", "siblings": [%s]}' "$hub_commit" "$(IFS=, && echo "${files[*]}")" >"$work/hub/api/models/$name/revision/main"
}

# start_hub: a hub on loopback replaces huggingface.co and example.org. The store is empty.
start_hub() {
    local directory=$ANTIGRAVITY_MODELS/SmolLM2-135M-Instruct kept=$work/hub/kept
    mkdir "$work/hub" "$kept"
    cp "$directory"/* "$work/files/model-f16.gguf" "$kept/"
    rm -r "${ANTIGRAVITY_MODELS:?}"/*
    mv "$kept/model-f16.gguf" "$kept/SmolLM2-135M-Instruct-Q8_0.gguf"
    ln "$kept/SmolLM2-135M-Instruct-Q8_0.gguf" "$work/hub/some-model.gguf"
    list_files bartowski/SmolLM2-135M-Instruct-GGUF "$kept/SmolLM2-135M-Instruct-Q8_0.gguf"
    list_files HuggingFaceTB/SmolLM2-135M "$kept"/{config.json,tokenizer.json,chat_template.jinja,model.safetensors}
    export HF_ENDPOINT=http://127.0.0.1:$((port + 1))
    "$python" -m http.server $((port + 1)) --bind 127.0.0.1 --directory "$work/hub" >"$work/hub.log" 2>&1 &
    echo $! >>"$servers"
    while ! is_taken $((port + 1)); do
        kill -0 $! 2>/dev/null || { fail "the hub ended: $(<"$work/hub.log")" && return; }
        sleep 0.05
    done
}

# can_run PAGE: what the page needs is on this machine.
can_run() {
    case $1 in
    */get-models.md) [ -n "$python" ] ;;
    */gpu.md) antigravity devices | grep -q ^opencl ;;
    */python.md | */first-policy.md) [ -n "$python" ] && [ -e "$build_dir/bindings/python/libantigravity.so" ] ;;
    esac
}

# prepare PAGE: starts and makes what the page needs.
prepare() {
    local library=$build_dir/bindings/python/libantigravity.so
    case $1 in
    */get-models.md) start_hub ;;
    */python.md | */first-policy.md)
        "$python" "$source_dir/bindings/python/tools/stage.py" "$work/stage" --library "$library" -- cc ||
            fail "$1: the Python package cannot be staged"
        ;;
    esac
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

# make_files: what pages name, in a folder from which each page's place is filled.
make_files() {
    local name
    mkdir "$HOME/models" "$work/files/dist" "$work/release"
    for name in {book,manual,edit,question,document,sample,calibration}.txt TEXT; do
        for _ in {1..60}; do echo "The fox ran over the hill. The old king had three sons."; done >"$work/files/$name"
    done
    echo '{"type": "object", "properties": {"name": {"enum": ["Lily", "Mia"]}}}' >"$work/files/fairy.schema.json"
    echo 'root ::= "yes" | "no"' >"$work/files/answer.gbnf"
    echo "KEY" >"$work/files/keys"
    ln -s "$source_dir/models/demo" "$HOME/models/Llama-3.2-1B"
    timeout 300 "$program" quantize "$source_dir/models/demo" "$work/files/model-f16.gguf" f16 >"$work/log" 2>&1 || fail "$(<"$work/log")"
    cp "$work/files/model-f16.gguf" "$HOME/smollm2.gguf"
    cp "$work/files/model-f16.gguf" "$work/files/model.gguf"
    # An archive as scripts/static.sh packs it.
    for name in x86_64 aarch64; do
        mkdir -p "$work/release/antigravity-0-linux-$name/bin"
        ln -s "$work/bin/antigravity" "$work/release/antigravity-0-linux-$name/bin/"
        tar -C "$work/release" -czf "$work/files/dist/antigravity-0-linux-$name.tar.gz" "antigravity-0-linux-$name"
    done
    ln -s "dist/antigravity-0-linux-aarch64.tar.gz" "$work/files/"
}

models=(SmolLM2-135M-Instruct)
mkdir "$work/files"
case $1 in
docs/guide/*)
    models+=(MODEL LARGE SMALL Qwen3-4B Qwen3-0.6B)
    make_files
    ;;
esac
n_run=0 n_skipped=0 n_elsewhere=0 n_left_out=0 # commands
for page in "$@"; do
    make_place
    blocks "$page" >"$work/commands"
    n_left_out=$((n_left_out + $(grep -cE '^#left out: [^ #]' "$work/commands" || true)))
    n_elsewhere=$((n_elsewhere + $(grep -cE '^#run by [^ ]+: [^ #]' "$work/commands" || true)))
    n_page=$(grep -cvE '^(#|  |$)' "$work/commands" || true)
    can_run "$page" || {
        echo "$page: skipped, since this machine lacks what it needs"
        n_skipped=$((n_skipped + n_page))
        continue
    }
    n_run=$((n_run + n_page))
    prepare "$page"
    while read -r script; do
        [ -x "$source_dir/$script" ] || fail "$page: $script does not exist"
    done < <(grep -oE '(scripts|tools)/[a-z_]+\.(sh|py)' "$work/commands")
    [ "$page" != README.md ] || check_readme
    sed -E "s/^antigravity serve (.*) &\$/antigravity serve --in-background \1/; s/\b8080\b/$port/g; s/\b8081\b/$((port + 2))/g; s/\b8082\b/$((port + 3))/g; s|https://example.org|${HF_ENDPOINT:-}|" "$work/commands" >"$work/page.sh"
    if ! bash -ev "$work/page.sh" >"$work/log" 2>&1 </dev/null; then
        fail "$page: the last of these commands failed:"
        tail -n 30 "$work/log"
    fi
    stop_servers
done
echo "$n_run commands were run, $n_skipped skipped, $n_elsewhere have other scripts that do the same, $n_left_out were left out"
[ $n_run -gt 0 ] || fail "no command was run: this test is broken"
# Of all pages, so that the share is the same on every machine.
[ $((100 * n_left_out)) -le $((left_out * (n_run + n_skipped + n_elsewhere + n_left_out))) ] || fail "more than $left_out % of the commands were left out"
exit $status
