# SPDX-License-Identifier: Apache-2.0
"""Row 7: the probe of a chat template at load is bounded by steps and memory. The model loads, and the server says that
the template was not probed. Each shared template is probed in half a second by a release build."""
import glob
import os

SHARED_S = 0.5  # Beyond a start without a template.
HOSTILE_S = 1.0  # 2 million steps, and what a step may copy.
GROWTH = 48 << 20  # Of VmHWM: 16 MiB for the probe, and what the template's own tree takes.

# N is a random size. Each of them works at the probe's first conversation.
EXPENSIVE = {
    "loops": "{%- for i in range(N) -%}{%- for j in range(N) -%}{%- set x = i * j -%}{%- endfor -%}{%- endfor -%}",
    "macro": "{%- macro f(n) -%}{%- if n -%}{{ f(n - 1) }}{{ f(n - 1) }}{%- endif -%}{%- endmacro -%}{{ f(40) }}",
    "output": "{%- for i in range(N) -%}{%- for j in range(N) -%}aaaaaaaaaaaaaaaa{%- endfor -%}{%- endfor -%}",
    "doubling": "{%- set n = namespace(x='a') -%}{%- for i in range(40) -%}{%- set n.x = n.x ~ n.x -%}{%- endfor -%}",
    "search": "{%- set s = 'a' * (N * 20) -%}{%- for i in range(N) -%}{%- if (s ~ 'b') in (s ~ s) -%}x{%- endif -%}{%- endfor -%}",
    "replace": "{%- set s = 'a' * (N * 20) -%}{%- for i in range(N) -%}{%- set t = s | replace('a', 'b') -%}{%- endfor -%}",
    "sort": "{%- for i in range(N) -%}{%- set t = range(N) | sort(reverse=true) -%}{%- endfor -%}",
    "join": "{%- for i in range(N) -%}{%- set t = range(N) | join(',') -%}{%- endfor -%}",
    "json": "{%- set l = range(N) | list -%}{%- for i in range(N) -%}{%- set t = [l, l, l] | tojson -%}{%- endfor -%}",
    "equal lists": "{%- set l = range(N) | list -%}{%- set k = range(N) | list -%}"
    "{%- for i in range(N) -%}{%- if l == k -%}{%- endif -%}{%- endfor -%}",
    "unique": "{%- set l = range(N) | list -%}{%- for i in range(N) -%}{%- set k = l | unique | list -%}{%- endfor -%}",
    "split": "{%- set s = 'a ' * (N * 10) -%}{%- for i in range(N) -%}{%- set k = s.split(' ') -%}{%- endfor -%}",
    "format": "{%- for i in range(N) -%}{%- set t = '%*d' % (N * 10, i) -%}{%- endfor -%}",
    "trim": "{%- set s = ' ' * (N * 20) ~ 'a' -%}{%- for i in range(N) -%}{%- set t = s | trim | upper | title -%}{%- endfor -%}",
}
ENDLESS = ("loops", "macro", "doubling")  # Beyond each limit whatever N is.
MESSAGES = "{%- for m in messages -%}{{ m.role }}: {{ m.content }}\n{%- endfor -%}"
CALLS = "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}{{ c | tojson }}{%- endfor -%}{%- endfor -%}"


def start(row, path, where, name, allowed, plain_s):
    """Starts with the template and records the processor time that it adds to a start without one; returns the server's
    log and its processor time. A loaded machine makes the start longer, not this."""
    server = row.start(*(["--chat-template", path] if path else []))
    seconds = server.processor_s()
    row.counted()
    if path:
        row.wait(name, seconds - plain_s, allowed, where)
        if not row.sanitized:
            row.measure("growth of memory at load", server.memory() - row.plain_memory, GROWTH, "MiB", where)
    else:
        row.plain_memory = server.memory()
    row.check_alive(server, where)
    text = server.text()
    row.stop(server)
    return text, seconds


def hostile_template(row, name):
    rng = row.random
    place = rng.randrange(3)
    work = EXPENSIVE[name].replace("N", str(rng.choice([2000, 5000, 20000])))
    texts = (work + MESSAGES, MESSAGES + work, MESSAGES + CALLS + "{%- if tools -%}" + work + "{%- endif -%}")
    path = os.path.join(row.logs, "probe-%s.jinja" % row.build)
    with open(path, "w") as f:
        f.write(texts[place])
    return path, "%s, %s" % (name, ("at the start", "at the end", "with tools")[place])


def run(row):
    plain_s = max(start(row, None, "", "", 0, 0)[1] for _ in range(2))
    shared = sorted(glob.glob(os.path.join(row.shared, "golden", "chat", "templates", "*.jinja")))
    if not shared:
        row.note("no shared templates: only hostile ones")
    row.random.shuffle(shared)
    names, n_shared, n = list(EXPENSIVE), 0, 0
    row.random.shuffle(names)
    names.sort(key=lambda name: name not in ENDLESS)
    while row.has_time() or n < 3:
        path, where = hostile_template(row, names[n % len(names)])
        n += 1
        text, _ = start(row, path, where, "probe of a hostile template", HOSTILE_S, plain_s)
        if names[(n - 1) % len(names)] in ENDLESS and "probe" not in text:
            row.error("the server does not say that its template was not probed: %s" % where)
        for template in shared[n_shared : n_shared + 4]:
            if row.has_time():
                n_shared += 1
                start(row, template, os.path.basename(template), "probe of a shared template", SHARED_S, plain_s)
    if shared:
        row.note("%d of %d shared templates" % (n_shared, len(shared)))
