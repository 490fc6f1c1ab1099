# SPDX-License-Identifier: Apache-2.0
"""Row 6: `pull` from a hostile hub ends, keeps within the store and accepts nothing that it could not check."""
import hashlib
import json
import os
import threading

import hub as hubs
from hub import GGUF, Hub, Pull
from server import FINDING

END_S = 8  # A pull that has not ended by then goes on for ever: retries wait 0.01 s here.
SLOW_S = 60  # Below 1 KiB/s for so long is a failure.
SLOW_END_S = SLOW_S + 25
GOOD_HASH = hashlib.sha256(GGUF).hexdigest()
RETRIES = 3
SAFE_STATUS = (0, 1, 2)
NEVER = 999
EVIL = "antigravity-hostile-evil.gguf"


def listing(name="m.gguf", **fields):
    return {"sha": "a" * 40, "siblings": [dict(rfilename=name, **fields)]}


def attempt(row, what, hub_listing, send, limit=END_S, options=("--retries", RETRIES), source="o/r"):
    """One pull; checks what holds for every hub, and returns it."""
    hub = Hub(hub_listing, send)
    try:
        pull = Pull(row, hub, options, limit * min(2, row.factor), source)
    finally:
        hub.close()
    row.counted(hub.hits + 1)
    row.measure("seconds of pull", NEVER if pull.status is None else pull.seconds, limit * min(2, row.factor), "s", what)
    if FINDING.search(pull.text):
        row.error("sanitizer report for %s: %s" % (what, pull.text[:300]))
    elif pull.status not in SAFE_STATUS and pull.status is not None:
        row.error("exit status %s for %s: %s" % (pull.status, what, pull.text[-150:]))
    if any(b < 32 and b not in (10, 13) for b in pull.bytes) and pull.status is not None:
        row.error("control characters in the message for %s: %r" % (what, pull.bytes[-100:]))
    if "secret" in pull.text:
        row.error("the token is shown for %s" % what)
    above = os.path.dirname(row.logs)
    for path in ("/tmp/" + EVIL, os.path.join(above, EVIL), os.path.join(row.logs, "evil.gguf")):
        if os.path.exists(path):
            row.error("a file outside the store for %s: %s" % (what, path))
            os.remove(path)
    return pull


def must_fail(row, what, *arguments, **more):
    pull = attempt(row, what, *arguments, **more)
    if pull.status == 0 or pull.models():
        row.measure("files accepted that could not be checked", 1, 0, "", "%s: %s" % (what, pull.models()))
    pull.remove()


def must_pass(row, what, *arguments, **more):
    pull = attempt(row, what, *arguments, **more)
    if pull.status != 0 or not pull.models():
        row.error("%s: status %s, %s" % (what, pull.status, pull.text.strip()[-150:]))
    pull.remove()


# ---- cases ----


def retries(row):
    rng = row.random
    total = rng.choice([1000, 4008, 10**6])
    must_fail(row, "20 bytes and closes", listing(size=total), hubs.first_bytes(20, total))
    must_fail(row, "20 bytes and closes, no size", listing(), hubs.first_bytes(20, total))
    n = rng.choice([20, 100, 1000])
    must_fail(row, "%d bytes, then less than before" % n, listing(size=4008), hubs.again_and_again(n, 4008))
    must_fail(row, "nothing and closes", listing(size=total), hubs.first_bytes(0, total))


def lengths(row):
    must_fail(row, "no length anywhere", listing(), hubs.without_length(GGUF[: row.random.randrange(100, 4000)]))
    must_pass(row, "no length, but a checksum", listing(lfs={"sha256": GOOD_HASH}), hubs.without_length(GGUF))
    must_fail(row, "no length, cut before the checksum's end", listing(lfs={"sha256": GOOD_HASH}), hubs.without_length(GGUF[:2000]))
    must_pass(row, "a length of the list alone", listing(size=len(GGUF)), hubs.without_length(GGUF))
    must_pass(row, "a length of the header alone", listing(), hubs.whole(GGUF))
    must_fail(row, "another length than the list's", listing(size=len(GGUF) + 1), hubs.whole(GGUF))
    config = json.dumps({"model_type": "llama", "padding": "x" * 2000}).encode()
    names = [{"rfilename": "config.json", "size": len(config)}, {"rfilename": "model.safetensors", "size": len(GGUF)}]

    def send(h):
        (hubs.compressed(config) if "config.json" in h.path else hubs.whole(GGUF))(h)

    must_pass(row, "a compressed config.json", {"sha": "a" * 40, "siblings": names}, send)
    for s in names:
        del s["size"]
    must_pass(row, "a compressed config.json, no sizes", {"sha": "a" * 40, "siblings": names}, send)


BAD_FIELDS = [
    {"lfs": {"sha256": 5}}, {"lfs": {"sha256": None}}, {"lfs": {"sha256": [GOOD_HASH]}}, {"lfs": {"sha256": {"a": 1}}},
    {"lfs": {"sha256": True}}, {"lfs": {"sha256": ""}}, {"lfs": {"sha256": GOOD_HASH[:-1]}}, {"lfs": {"sha256": GOOD_HASH + "0"}},
    {"lfs": {"sha256": "\x1b[31m" + GOOD_HASH[5:]}}, {"lfs": 7}, {"lfs": [GOOD_HASH]}, {"lfs": "x"},
    {"size": "4008"}, {"size": -5}, {"size": 1.5}, {"size": [4008]}, {"size": {"a": 1}}, {"size": True}, {"size": 2**63 - 1},
]  # fmt: skip
BAD_NAMES = [
    "../../" + EVIL, "/tmp/" + EVIL, "..\\evil.gguf", ".hidden.gguf", ".gguf",
    "%2e%2e%2fevil.gguf", "a\u0000.gguf", "a\nb.gguf", "\x1b]0;x\x07.gguf", "a" * 5000 + ".gguf", "%s%n.gguf", "", "x/.gguf",
    "\u202egguf.gguf", "../evil.gguf",
]  # fmt: skip
BAD_LISTINGS = [
    b"[", b"[]", b"null", b'"x"', b"[" * 100000, b'{"siblings":{"a":1}}', b'{"siblings":[1,null,[]]}', b'{"siblings":"x"}',
    b'{"siblings":[{"rfilename":5}]}', b'{"siblings":[{"rfilename":["m.gguf"]}]}', b'{"a":"' + b"x" * (1 << 20) + b'"}',
]  # fmt: skip


def metadata(row):
    """Fields of wrong types: an error. Names and lists: no crash, and nothing outside the store."""
    rng = row.random
    for fields in rng.sample(BAD_FIELDS, len(BAD_FIELDS) if row.seconds > 60 else 6):
        must_fail(row, "metadata %s" % str(fields)[:60], listing(**fields), hubs.whole(GGUF))
    if row.seconds <= 60:  # The one that the table names is always there.
        must_fail(row, "a checksum that is a number", listing(lfs={"sha256": 5}), hubs.whole(GGUF))
    for name in rng.sample(BAD_NAMES, len(BAD_NAMES) if row.seconds > 60 else 3):
        attempt(row, "the name %r" % name[:40], listing(name, size=len(GGUF)), hubs.whole(GGUF)).remove()
    for data in rng.sample(BAD_LISTINGS, len(BAD_LISTINGS) if row.seconds > 60 else 3):
        must_fail(row, "the list %r" % data[:40], data, hubs.whole(GGUF))


def random_value(rng, depth=0):
    values = [None, True, -1, 2**62, 1.5, "", "x", "..", "\x1b[31m", GOOD_HASH, "m.gguf", [], {}]
    kind = rng.randrange(6)
    if kind == 0 and depth < 3:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 1 and depth < 3:
        return {rng.choice(["sha256", "size", "rfilename", "a"]): random_value(rng, depth + 1)}
    return rng.choice(values)


def mutations(row):
    """A valid list with random values in random places, and files that are sent in a random way."""
    rng = row.random
    value = listing(size=len(GGUF), lfs={"sha256": GOOD_HASH, "size": len(GGUF)}, blobId="b" * 40)
    file = value["siblings"][0]
    for _ in range(rng.choice([1, 2])):
        place = rng.choice([p for p in (value, file, file.get("lfs")) if p and isinstance(p, dict)])
        place[rng.choice(list(place))] = random_value(rng)
    data = json.dumps(value).encode()
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data))]
    sends = [
        hubs.whole(GGUF), hubs.whole(b"<html>\x1b[31m"), hubs.first_bytes(rng.randrange(100), 4008), hubs.without_length(GGUF),
        hubs.many_headers, hubs.redirect("file:///etc/passwd"), hubs.redirect("/x"), hubs.redirect("gopher://127.0.0.1:1/"),
        hubs.redirect("ftp://\x1b[31m"), hubs.redirect("http://u:p@127.0.0.1:1/"),
    ]  # fmt: skip
    attempt(row, "the list %s" % str(value)[:120], data, rng.choice(sends)).remove()


def never_ends(row):
    """The hub sends more than its list tells, without a length: pull stops at the list's size."""
    holder = []
    hub = Hub(listing(size=len(GGUF)), hubs.endless(lambda: holder[0]))
    holder.append(hub)
    pull = Pull(row, hub, ("--retries", 1), END_S * min(2, row.factor))
    hub.close()
    if pull.status is None or pull.status == 0:
        row.error("a body beyond the list's length: status %s, %d bytes" % (pull.status, pull.size))
    row.measure("bytes of a file beyond the list's length", max(0, pull.size - len(GGUF)), 4096)
    pull.remove()


def slow(row):
    """2 bytes a second: a failure after a minute. Runs beside the other cases."""
    holder = []
    hub = Hub(listing(size=100000), hubs.trickle(lambda: holder[0], 100000, 2))
    holder.append(hub)
    pull = Pull(row, hub, ("--retries", 0), SLOW_END_S)
    hub.close()
    row.measure("seconds of pull at 2 bytes a second", pull.seconds, SLOW_END_S - 1, "s")
    if pull.status == 0 or pull.models():
        row.error("pull at 2 bytes a second: status %s, %s" % (pull.status, pull.models()))
    pull.remove()


def run(row):
    thread = None
    if row.seconds >= SLOW_END_S:
        thread = threading.Thread(target=slow, args=(row,))
        thread.start()
    else:
        row.note("without 2 bytes a second, which takes %d s" % SLOW_END_S)
    steps = [retries, lengths, metadata, never_ends]
    row.random.shuffle(steps)
    for step in steps:
        step(row)
    while row.has_time():
        mutations(row)
    if thread:
        thread.join()
