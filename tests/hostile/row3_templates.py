# SPDX-License-Identifier: Apache-2.0
"""Row 3: a chat template's memory is a share of --memory: a sixteenth, at least 32 MiB. What exceeds it is an error that
names the limit. Each shared template renders a conversation of 1 MB."""
import glob
import os
import re
import threading
import time

import bodies

N_CLIENTS = 6
N_WORKERS = 3  # That render at a time; one of them takes small bodies alone.
SLACK = 24 << 20  # What the requests take besides their templates.
TIMEOUT = 120
CONVERSATION = 1 << 20
GUARD = 3  # Messages; the probe of a template at load has fewer, and must not fail by what these templates do.

LOOP = """{%%- set n = namespace(x=%s) -%%}{%%- for i in range(%s) -%%}{%%- set n.x = %s -%%}{%%- endfor -%%}
{{- n.x | length -}}"""
# Each makes a value of about 2^N bytes or items.
GROWTH = {
    "text doubled": LOOP % ("'aaaaaaaa'", "N - 3", "n.x ~ n.x"),
    "list doubled": LOOP % ("[1]", "N - 4", "n.x + n.x"),
    "lists nested": LOOP % ("[]", "100000", "[n.x, 'a' * (2 ** (N - 17))]"),
    "text kept": LOOP % ("[]", "2 ** (N - 16)", "n.x + ['a' * 65536]"),
    "text multiplied": "{{ ('a' * (2 ** N)) | length }}",
    "text replaced": "{{ ('a' * 65536) | replace('a', 'b' * (2 ** (N - 16))) | length }}",
    "output": "{%- for i in range(2 ** (N - 12)) -%}{{ 'a' * 4096 }}{%- endfor -%}",
    "output of a macro": "{%- macro f(n) -%}{%- if n -%}{{ f(n - 1) }}{{ f(n - 1) }}{%- else -%}{{ 'a' * 4096 }}"
    "{%- endif -%}{%- endmacro -%}{{ f(N - 12) }}",
    "JSON of a list": "{{ ([0] * (2 ** (N - 4))) | tojson | length }}",
    "text joined": "{{ (['a' * 1024] * (2 ** (N - 10))) | join('b') | length }}",
}
REST = "{%- for m in messages -%}{{ m.role }}: {{ m.content }}\n{%- endfor -%}"


def hostile_template(row, name, n):
    path = os.path.join(row.logs, "growth-%s.jinja" % row.build)
    with open(path, "w") as f:
        f.write("{%%- if messages | length > %d -%%}%s{%%- endif -%%}%s" % (GUARD, GROWTH[name].replace("N", str(n)), REST))
    return path


def names_limit(message, limit):
    numbers = (str(limit), "%g" % (limit / 1048576))
    return any(re.search(r"(?<![\d.])%s(\.0+)?(?![\d.]*\d)" % re.escape(n), message) for n in numbers)


def grow(row, name, memory, n):
    """Clients at the same time whose template takes 2^n bytes: what the process grows by, and what the replies say."""
    limit = max(32 << 20, memory // 16)
    server = row.start("--memory", "%dM" % (memory >> 20), "--chat-template", hostile_template(row, name, n))
    what = "%s, 2^%d, --memory %d MiB" % (name, n, memory >> 20)
    body = bodies.dumps({"model": server.name, "messages": [{"role": "user", "content": "a"}] * (GUARD + 1), "max_tokens": 1})
    before, replies = server.memory("VmRSS"), []

    def ask():
        for _ in range(2):
            replies.append(server.post("/v1/chat/completions", body, TIMEOUT))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(N_CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(3 * TIMEOUT)
    row.counted(len(replies))
    if not row.sanitized:
        row.measure("growth beyond the templates' share", server.memory() - before - N_WORKERS * limit, SLACK, "MiB", what)
        row.measure("VmHWM beyond --memory", server.memory() - memory, 0, "MiB", what)
    for r in replies:
        if r.status == 0 or r.status >= 500 and r.status not in (503, 504):
            row.error("status %d for %s: %s" % (r.status, what, r.message()[:120]))
        elif r.status == 400 and not names_limit(r.message(), limit) and not re.search("prompt|step|deep|nest", r.message()):
            row.error("the error does not name the limit of %d MiB for %s: %s" % (limit >> 20, what, r.message()[:120]))
    row.check_alive(server, what)
    row.stop(server)


# Write so much for each message that the tokens of 1 MB of short turns are more than a request may take.
LONG_OUTPUT = (
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
    "Spark2.5.jinja",
)


def conversations():
    """1 MB: of short turns, and of few long ones. The system speaks first."""
    system = [{"role": "system", "content": "You help."}]
    roles = ("user", "assistant")
    short = [{"role": roles[i % 2], "content": "a short turn of %d words" % (i % 7)} for i in range(CONVERSATION // 62)]
    long = [{"role": roles[i % 2], "content": "word " * (CONVERSATION // 55)} for i in range(11)]
    for name, messages in (("short turns", short[: len(short) // 2 * 2 - 1]), ("long turns", long)):
        yield name, system + messages
        yield name + " without system", messages


def render(row, template):
    """A shared template renders each conversation of 1 MB: no error that speaks of memory or of a limit. Some search all
    messages again for each message, so many messages end at the limit of steps."""
    name = os.path.basename(template)
    server = row.start("--memory", "512M", "--chat-template", template)
    for what, messages in conversations():
        reply = server.post("/apply-template", bodies.dumps({"messages": messages}), TIMEOUT)
        row.counted()
        message = reply.message()
        if reply.status == 400 and "more than 10000000 steps" in message:
            continue
        if reply.status == 413 and name in LONG_OUTPUT:
            continue
        if reply.status != 200 and re.search(r"memory|limit|step|MiB|bytes", message):
            row.error("%s does not render 1 MB of %s: %s" % (name, what, message[:120]))
        if reply.status in (0, 500, 503):
            row.error("status %d for %s, %s: %s" % (reply.status, name, what, message[:120]))
    row.check_alive(server, name)
    row.stop(server)


def run(row):
    shared = sorted(glob.glob(os.path.join(row.shared, "golden", "chat", "templates", "*.jinja")))
    if not shared:
        row.note("no shared templates: only hostile ones")
    row.random.shuffle(shared)
    names = list(GROWTH)
    row.random.shuffle(names)
    names.sort(key=lambda name: name != "text doubled")
    first, n_rendered = True, 0
    while row.has_time() or first:
        first = False
        for i, name in enumerate(names):
            if not row.has_time() and i > 1:
                break
            grow(row, name, row.random.choice([256, 256, 512, 1024]) << 20, row.random.choice([26, 27, 28]))
            for template in shared[n_rendered : n_rendered + 6]:
                if row.has_time():
                    render(row, template)
                    n_rendered += 1
    if shared:
        row.note("%d of %d shared templates" % (n_rendered, len(shared)))
