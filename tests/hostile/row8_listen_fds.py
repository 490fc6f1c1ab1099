# SPDX-License-Identifier: Apache-2.0
"""Row 8: a value of LISTEN_FDS that is no number of sockets is rejected with a message, and no port is opened."""
import os
import subprocess
import time

from server import FINDING, server_environment

END_S = 20  # A server that has not ended by then listens.
FIXED = [
    "-1", "x", "999999999", "-999999999", "1x", "x1", "1.5", "0x1", "1e3", "2147483648", "4294967297", "-4294967295",
    "18446744073709551617", "99999999999999999999", "1,2", "1 2", "--1", "\uff11", "1\n2", "nan", "65536",
]  # fmt: skip


def random_value(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return "-%d" % rng.randrange(1, 10 ** rng.randrange(1, 30))
    if kind == 1:
        return str(rng.randrange(1000, 10 ** rng.randrange(4, 30)))
    text = "".join(chr(rng.choice([rng.randrange(33, 127), rng.randrange(161, 1000)])) for _ in range(rng.randrange(1, 12)))
    return "x" + text if kind == 2 else "1" + text.lstrip("0123456789") + "x"


def start(row, value):
    """LISTEN_PID is the server's own: a shell sets it before it becomes the server."""
    script = 'LISTEN_PID=$$ exec "$@"'
    command = ["/bin/sh", "-c", script, "sh", row.program, "serve", "--port", "0", "-m", row.model]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=server_environment({"LISTEN_FDS": value}),
    )  # fmt: skip


def try_value(row, value):
    process = start(row, value)
    began = time.monotonic()
    text = b""
    os.set_blocking(process.stderr.fileno(), False)
    while process.poll() is None and b"listening on" not in text and time.monotonic() - began < END_S:
        text += process.stderr.read() or b""
        time.sleep(0.005)
    listens = process.poll() is None
    if listens:
        process.kill()
    process.wait()
    text = (text + (process.stderr.read() or b"")).decode(errors="replace")
    process.stderr.close()
    row.counted()
    if FINDING.search(text):
        row.error("sanitizer report for LISTEN_FDS=%r: %s" % (value, text[:300]))
    elif listens:
        row.measure("values that are ignored", 1, 0, "", "LISTEN_FDS=%r: %s" % (value, text.strip()[-80:]))
    elif process.returncode not in (1, 2) or "LISTEN_FDS" not in text:
        row.error("LISTEN_FDS=%r: status %s and no message that names it: %s" % (value, process.returncode, text[-150:]))
    else:
        row.measure("values that are ignored", 0, 0)


def run(row):
    values = list(FIXED)
    row.random.shuffle(values)
    for value in values:
        try_value(row, value)
    while row.has_time():
        try_value(row, random_value(row.random))
