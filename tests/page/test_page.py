#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `antigravity serve` in a headless Chromium.

  test_page.py PROGRAM [--screenshots DIR [--model PATH]]

Exit status 77: there is no Chromium. With --screenshots it takes pictures and tests nothing.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chromium  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "a-key-of-this-test"
EVIL = ("<script>window.hit = 1</script> <img src=x onerror='window.hit = 2'> [x](javascript:window.hit=3) "
        "![y](http://foreign.invalid/y.png) **bold** `code`")


class Server:
    def __init__(self, program, *args, home="/nonexistent"):
        """home: the directory of the user's configuration."""
        self.process = subprocess.Popen([program, "serve", "--port", "0", *args], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "XDG_CONFIG_HOME": home})
        said = []
        for line in self.process.stderr:
            said.append(line)
            found = re.search(r"http://[^ ]*?:(\d+)", line)
            if found:
                self.url = f"http://127.0.0.1:{found.group(1)}"
                break
        else:
            raise AssertionError("the server did not start: " + "".join(said))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=chromium.PATIENCE) as r:
                return r.status, r.headers, r.read()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, e.read()

    def close(self):
        self.process.terminate()
        try:
            assert self.process.wait(chromium.PATIENCE) == 0, "the server did not end as it should"
        finally:
            self.process.kill()


# What is on the page, for expressions.
LAST = "document.querySelector('#transcript .message.assistant:last-child .body')?.innerText ?? ''"
BUSY = "!document.querySelector('#stop').hidden"
COUNT = "document.querySelectorAll('#transcript .message').length"


def send(tab, text):
    before = tab.eval(COUNT)
    tab.eval("document.querySelector('#input').focus()")
    tab.type(text)
    tab.key("Enter", 13)
    # A short answer may have ended before anybody looks.
    tab.until(f"{BUSY} || {COUNT} > {before}")


def idle(tab):
    tab.until(f"!({BUSY})")


def settings(tab, **values):
    """What the dialog is filled in with."""
    tab.click("#open-settings")
    tab.until("document.querySelector('#settings').open")
    for name, value in values.items():
        tab.eval(f"document.querySelector('#set-{name}').value = {json.dumps(str(value))}")
    tab.click("#close-settings")
    tab.until("!document.querySelector('#settings').open")


# ---- tests ----

def files_are_served_strictly(server, _tab):
    status, headers, body = server.get("/", Accept="text/html,*/*;q=0.8")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8", headers
    policy = headers["Content-Security-Policy"]
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'",
                 "base-uri 'none'", "form-action 'none'"):
        assert part in policy, policy
    assert "unsafe" not in policy and "http" not in policy
    assert not re.search(rb"<script(?![^>]*\bsrc=)|\bon[a-z]+=|\bstyle=", body), "script or style inside of the document"
    assert server.get("/", Accept="text/html", **{"If-None-Match": headers["ETag"]})[0] == 304
    assert server.get("/", Accept="text/html", **{"If-None-Match": '"other"'})[0] == 200
    assert server.get("/")[2] == b"Ollama is running"
    for path in re.findall(r'(?:src|href)="(/page/[^"]+)"', body.decode()):
        assert server.get(path)[0] == 200, path
    assert server.get("/page/none.js")[0] == 404
    assert server.get("/page/../page.c")[0] in (400, 404)


def an_answer_streams(_server, tab):
    tab.until("document.querySelector('#model').options.length === 1")
    settings(tab, max_tokens=1000, temperature=0, seed=1)
    tab.change_requests(lambda body: {**body, "ignore_eos": True})
    tab.eval(f"""window.lengths = new Set();
        new MutationObserver(() => lengths.add(({LAST}).length)).observe(document.querySelector('#transcript'), {{childList: true, subtree: true}});""")
    send(tab, "Once upon a time")
    idle(tab)
    assert tab.eval(COUNT) == 2
    assert len(tab.eval(LAST)) > 40, tab.eval(LAST)
    assert len(tab.eval("[...lengths]")) > 3, "the answer came in one piece"
    tab.change_requests(None)
    assert "generated" in tab.eval("document.querySelector('#figures').textContent")
    assert tab.eval("document.querySelector('#announce').textContent").startswith("The model says: ")


def retry_asks_again(_server, tab):
    first = tab.eval(LAST)
    settings(tab, temperature=1.5, seed=2, max_tokens=60)
    tab.click(".message.assistant:last-child [data-action='retry']")
    tab.until(BUSY)
    idle(tab)
    assert tab.eval(COUNT) == 2
    assert tab.eval(LAST) and tab.eval(LAST) != first


def edit_goes_on_from_there(_server, tab):
    tab.click(".message.user [data-action='edit']")
    tab.until("document.activeElement.matches('.message textarea')")
    tab.eval("document.activeElement.value = 'The old king had three sons'")
    tab.click(".message [data-action='save']")
    tab.until(BUSY)
    idle(tab)
    assert tab.eval(COUNT) == 2
    assert tab.eval("document.querySelector('.message.user .body').textContent") == "The old king had three sons"


def stop_ends_an_answer(server, tab):
    settings(tab, max_tokens=1900)
    tab.change_requests(lambda body: {**body, "ignore_eos": True})
    send(tab, "Tell it again")
    tab.until(f"({LAST}).length > 20")
    tab.key("Escape", 27)
    idle(tab)
    tab.change_requests(None)
    length = tab.eval(f"({LAST}).length")
    assert "Stopped." in tab.eval("document.querySelector('.message.assistant:last-child .error').textContent")
    tab.until("fetch('/health').then((r) => r.json()).then((h) => h.running === 0)")
    assert tab.eval(f"({LAST}).length") == length
    assert json.loads(server.get("/health")[2])["running"] == 0


def conversations_are_kept(server, tab):
    text = tab.eval(LAST)
    tab.go(server.url)
    tab.until(f"{COUNT} === 4")
    assert tab.eval(LAST) == text
    tab.click("#new")
    assert tab.eval(COUNT) == 0
    tab.click("#conversations li:last-child button")
    tab.until(f"{COUNT} === 4")


def two_tabs_lose_nothing(server, tab):
    other = chromium.Tab(tab.browser, beside=tab)
    try:
        write_in_two(server, tab, other)
    finally:
        other.call("Page.close")


def write_in_two(server, tab, other):
    other.go(server.url)
    other.until("document.querySelector('#model').options.length === 1")
    titles = "[...document.querySelectorAll('#conversations li button:first-child')].map((b) => b.textContent).join('|')"
    settings(other, max_tokens=5)
    other.click("#new")
    send(other, "In the other tab")
    idle(other)
    tab.until(f"({titles}).includes('In the other tab')")
    settings(tab, max_tokens=6)
    tab.click("#new")
    send(tab, "In the first tab")
    idle(tab)
    for t in (tab, other):
        t.until(f"({titles}).includes('In the other tab') && ({titles}).includes('In the first tab')")
    kept = "JSON.parse(localStorage.getItem('antigravity.conversations')).map((c) => c.title).join('|')"
    assert tab.eval(kept).count("In the ") == 2, tab.eval(kept)
    assert other.eval(COUNT) == 2 and "In the other tab" in other.eval("document.querySelector('#transcript').textContent")


def the_theme_switches(_server, tab):
    colors = []
    for theme in ("light", "dark", "auto"):
        tab.click("#theme")
        assert tab.eval("document.documentElement.dataset.theme") == theme
        colors.append(tab.eval("getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1], colors
    for scheme, color in (("dark", colors[1]), ("light", colors[0])):
        tab.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        tab.until(f"getComputedStyle(document.body).backgroundColor === {json.dumps(color)}")


def the_cache_is_seen_to_move(server, tab):
    tab.click("#new")
    # The choice is what the server has.
    policies = json.loads(server.get("/props")[2])["kv_policies"]
    offered = "[...document.querySelector('#set-kv_policy').options].map((o) => o.value).join()"
    tab.until(f"{offered} === {json.dumps(','.join([''] + policies))}")
    settings(tab, kv_policy="streaming", kv_budget="64", max_tokens=1500, temperature=0)
    # Long enough to be looked at, however busy the machine is.
    tab.change_requests(lambda body: {**body, "ignore_eos": True})
    tab.click("#open-cache")
    tab.until("!document.querySelector('#cache').hidden")
    tokens = "Number(document.querySelector('#cache-map').dataset.tokens)"
    send(tab, "There was a little boat on a lake")
    first = tab.until(f"{BUSY} && {tokens}")
    later = tab.until(f"{tokens} > {first} && {tokens}")
    idle(tab)
    tab.change_requests(None)
    tab.until(f"{tokens} >= 1500 && /parked/.test(document.querySelector('#cache-session').textContent)")
    assert later > first
    summary = tab.until("(() => { const t = document.querySelector('#cache-summary').textContent;"
                        " return t.includes('tokens have left every head') && t; })()")
    assert "Policy streaming, budget 64 tokens a head, 4 attention sinks" in summary, summary
    # What was drawn: sinks, what left, and the newest, from left to right.
    colors = tab.eval("""(() => {
        const c = document.querySelector('#cache-map'), ctx = c.getContext('2d');
        const at = (x) => ctx.getImageData(Math.min(c.width - 1, Math.floor(x * c.width)), 2, 1, 1).data.slice(0, 3).join();
        return [at(0), at(0.4), at(0.999)];
    })()""")
    assert len(set(colors)) == 3, colors
    # And by the keyboard, in words.
    tab.eval("document.querySelector('#cache-map').focus()")
    tab.key("ArrowRight", 39)
    assert "Layer 0, head 0, position 1" in tab.eval("document.querySelector('#cache-at').textContent")
    assert "attention sink" in tab.eval("document.querySelector('#cache-at').textContent")
    tab.key("ArrowRight", 39, modifiers=8)
    assert "evicted by streaming" in tab.eval("document.querySelector('#cache-at').textContent")
    tab.until("document.querySelectorAll('#cache-tokens .s0').length > 0")
    words = tab.eval("document.querySelector('#cache-tokens').textContent")
    assert "There was a little boat" in words[:60], words[:200]
    assert "There was a little boat" in tab.eval("document.querySelector('#transcript').textContent")
    tab.eval("document.querySelector('#cache-table-box').open = true")
    tab.until("document.querySelector('#cache-table').tBodies[0].rows.length > 0")
    assert server.get("/v1/kv/none")[0] == 404 and server.get("/v1/kv/99999")[0] == 404
    held = json.loads(server.get("/v1/kv")[2])["data"][0]["id"]
    assert server.get(f"/v1/kv/{held}?from=x")[0] == 400
    # The words of the page's own conversation are still shown after it has been loaded anew.
    tab.eval("document.body.dataset.old = ''")
    tab.go(server.url)
    tab.until("document.body.dataset.old === undefined && document.querySelector('#model').options.length > 0")
    tab.click("#open-cache")
    tab.until("/There was a little boat/.test(document.querySelector('#cache-tokens').textContent)")
    tab.click("#close-cache")


def markup_of_a_model_stays_text(_server, tab):
    """The model says it: the request is given a choice of one text."""
    tab.click("#new")
    settings(tab, kv_policy="", kv_budget="", max_tokens=200)
    tab.change_requests(lambda body: {**body, "choice": [EVIL]})
    send(tab, "Say <b>it</b><script>window.hit = 4</script>")
    idle(tab)
    tab.change_requests(None)
    assert "<script>window.hit = 1</script> <img src=x onerror='window.hit = 2'>" in tab.eval(LAST), tab.eval(LAST)
    assert tab.eval("document.querySelectorAll('#transcript :is(script, img, b, iframe)').length") == 0
    assert tab.eval("[...document.querySelectorAll('#transcript a')].filter((a) => a.protocol === 'javascript:').length") == 0
    assert tab.eval("document.querySelector('.message.assistant strong').textContent") == "bold"
    assert tab.eval("document.querySelector('.message.assistant code').textContent") == "code"
    assert tab.eval("window.hit") is None


def markdown_is_rendered(_server, tab):
    text = ("# Title\n\nA *b* __c__ a_b_c 2 * 3\n\n- one\n  - inner\n- two\n\n3. three\n4. four\n\n```c\nint x = a < b;\n```\n\n"
            "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n[link](https://example.org/) <i>x</i>")
    tab.eval(f"""import('/page/markdown.js').then((m) => {{
        const box = document.createElement('div');
        box.append(...m.markdown({json.dumps(text)}));
        window.rendered = box;
    }})""")
    count = {s: tab.eval(f"rendered.querySelectorAll({json.dumps(s)}).length") for s in
             ("h4", "em", "strong", "ul ul li", "ol li", "ol[start='3']", "pre code", "td", "blockquote p", "a", "i")}
    assert count == {"h4": 1, "em": 1, "strong": 1, "ul ul li": 1, "ol li": 2, "ol[start='3']": 1, "pre code": 1, "td": 2,
                     "blockquote p": 1, "a": 1, "i": 0}, count
    assert tab.eval("rendered.querySelector('pre code').textContent") == "int x = a < b;"
    assert tab.eval("rendered.querySelector('a').rel").startswith("noopener")
    # Texts made to take long do not.
    for piece in ("*", "**a ", "[", "`", "> ", "- ", "|", "_a", "[a](", "# ", "1. "):
        ms = tab.eval(f"""import('/page/markdown.js').then((m) => {{
            const began = performance.now();
            m.markdown({json.dumps(piece)}.repeat(20000));
            m.markdown(({json.dumps(piece)} + '\\n').repeat(5000));
            return performance.now() - began;
        }})""")
        assert ms < 5000, f"{ms} ms for {piece!r}"
    assert "a_b_c 2 * 3" in tab.eval("rendered.textContent")


def reasoning_and_calls_are_shown(server, tab):
    conversation = {"id": "00000000-0000-4000-8000-000000000001", "title": "calls", "system": "", "updated": 1, "messages": [
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": "", "reasoning": "I should look <b>it</b> up.",
         "calls": [{"id": "c1", "name": "weather", "arguments": '{"town": "Ulm"}'}]}]}
    tab.eval(f"localStorage.setItem('antigravity.conversations', JSON.stringify([{json.dumps(conversation)}, {{'messages': 5}}]))")
    tab.go(server.url)
    tab.until(f"{COUNT} === 2")
    assert tab.eval("document.querySelector('.reasoning').open") is False
    assert "<b>it</b>" in tab.eval("document.querySelector('.reasoning').textContent")
    assert tab.eval("document.querySelector('.call code').textContent") == "weather"
    assert '"town": "Ulm"' in tab.eval("document.querySelector('.call pre').textContent")
    tab.eval("document.querySelector('.actions textarea').value = 'Rain.'")
    assert tab.eval("document.querySelector('.actions textarea').getAttribute('aria-label')") == "Result of weather"


def an_empty_conversation_names_the_model(_server, tab):
    tab.click("#new")
    assert tab.eval("document.querySelector('.greeting h2').textContent") == tab.eval("document.querySelector('#model').value") == "demo"
    settings(tab, max_tokens=3)
    send(tab, "Once")
    idle(tab)
    assert tab.eval("document.querySelector('.greeting')") is None


TITLES = "[...document.querySelectorAll('#conversations li > button:first-child')].map((b) => b.textContent).join('|')"


def conversations_are_found_and_renamed(server, tab):
    for text in ("A bear in the wood", "A boat on the lake"):
        tab.click("#new")
        send(tab, text)
        idle(tab)
    search = "document.querySelector('#search')"
    for query, found in (("BEAR wood", "A bear in the wood"), ("boat", "A boat on the lake"), ("xyzzy", "")):
        tab.eval(f"{search}.value = {json.dumps(query)}; {search}.dispatchEvent(new Event('input'))")
        assert tab.eval(TITLES) == found, (query, tab.eval(TITLES))
        assert tab.eval("document.querySelector('#no-match').hidden") is bool(found)
    tab.eval(f"{search}.value = ''; {search}.dispatchEvent(new Event('input'))")
    tab.click("#conversations li:first-child .rename")
    tab.until("document.activeElement.matches('#conversations input')")
    tab.eval("document.activeElement.value = 'Boats'")
    tab.key("Enter", 13)
    tab.until(f"({TITLES}).startsWith('Boats|')")
    # The name stays when the conversation continues, and after a reload.
    send(tab, "And then?")
    idle(tab)
    assert tab.eval(TITLES).startswith("Boats|"), tab.eval(TITLES)
    tab.go(server.url)
    tab.until(f"({TITLES}).startsWith('Boats|') && document.querySelector('#model').options.length")
    # Escape keeps the name; an empty name is the start of the first message.
    for name, key, code, title in (("No", "Escape", 27, "Boats"), ("", "Enter", 13, "A boat on the lake")):
        tab.click("#conversations li:first-child .rename")
        tab.until("document.activeElement.matches('#conversations input')")
        tab.eval(f"document.activeElement.value = {json.dumps(name)}")
        tab.key(key, code)
        tab.until(f"({TITLES}).startsWith({json.dumps(title)})")


def all_settings_are_sent(server, tab):
    """Each number that the server applies has a field, which shows the server's value."""
    sent = {}
    names = [n for n in json.loads(server.get("/props")[2])["default_generation_settings"]["params"] if n != "n_predict"]
    fields = tab.eval("[...document.querySelectorAll('#sampling input')].map((i) => i.id.slice(4))")
    assert sorted(fields) == sorted(names + ["max_tokens", "seed"]), (fields, names)
    tab.until("document.querySelector('#set-temperature').placeholder === '0.8'")
    values = {name: 1 for name in fields} | {"max_tokens": 4, "dry_base": 1.5}
    settings(tab, stop="fox\n\nthe end", **values)
    tab.change_requests(lambda body: sent.update(body) or body)
    tab.click("#new")
    send(tab, "Once")
    idle(tab)
    tab.change_requests(None)
    for name, value in values.items():
        assert sent[name] == value, (name, sent)
    assert sent["stop"] == ["fox", "the end"]
    # A value out of its range keeps the dialog open.
    tab.click("#open-settings")
    tab.eval("document.querySelector('#set-top_p').value = '2'")
    tab.click("#close-settings")
    assert tab.eval("document.querySelector('#settings').open && document.activeElement.id === 'set-top_p'")
    tab.eval("document.querySelector('#set-top_p').value = ''")
    tab.click("#close-settings")
    settings(tab, stop="", **{name: "" for name in fields})


def an_answer_obeys_a_schema(_server, tab):
    tab.click("#open-settings")
    tab.eval("document.querySelector('#set-schema').value = '[1]'")
    tab.click("#close-settings")
    assert tab.eval("document.querySelector('#schema-error').textContent") == "The schema is not an object."
    tab.eval("document.querySelector('#set-schema').value = ''")
    tab.click("#close-settings")
    settings(tab, max_tokens=60, schema='{"type": "object", "properties": {"old": {"type": "boolean"}}, "required": ["old"]}')
    tab.click("#new")
    send(tab, "Is the king old?")
    idle(tab)
    assert isinstance(json.loads(tab.eval(LAST))["old"], bool), tab.eval(LAST)
    settings(tab, schema="")


def text_files_are_attached(_server, tab):
    sent = {}
    tab.click("#new")
    tab.eval("""(() => {
        const list = new DataTransfer(), field = document.querySelector('#attach-file');
        list.items.add(new File(['The fox is red.\\n```\\ncode\\n```\\n'], 'fox.md'));
        list.items.add(new File([new Uint8Array([0, 1, 255])], 'picture.bin'));
        list.items.add(new File(['x'], 'other.txt'));
        field.files = list.files;
        field.dispatchEvent(new Event('change'));
    })()""")
    names = "[...document.querySelectorAll('#attachments span')].map((s) => s.textContent).join()"
    tab.until(f"{names} === 'fox.md,other.txt'")
    assert "picture.bin: not a text" in tab.eval("document.querySelector('#figures').textContent")
    tab.click("#attachments li:last-child button")
    assert tab.eval(names) == "fox.md"
    settings(tab, max_tokens=4)
    tab.change_requests(lambda body: sent.update(body) or body)
    send(tab, "What colour is it?")
    idle(tab)
    tab.change_requests(None)
    content = sent["messages"][-1]["content"]
    assert content == "fox.md:\n````\nThe fox is red.\n```\ncode\n```\n````\n\nWhat colour is it?", content
    assert tab.eval(names) == ""
    assert tab.eval("document.querySelector('.message.user .file summary').textContent") == "fox.md"
    assert tab.eval("document.querySelector('.message.user .body').textContent") == "What colour is it?"


def the_memory_bar_compares_with_the_machine(server, tab):
    tab.click("#open-cache")
    memory = json.loads(server.get("/v1/kv")[2])["memory"]
    assert memory["limit"] == 0 and memory["machine"] > memory["peak"]
    tab.until(f"document.querySelector('#cache-memory').max === {memory['machine']}")
    assert "of the machine’s " in tab.eval("document.querySelector('#cache-memory-text').textContent")
    tab.click("#close-cache")


def a_phone_shows_all_of_it(_server, tab):
    tab.size(390, 844, True)
    assert tab.eval("document.documentElement.scrollWidth") <= 390
    assert tab.eval("getComputedStyle(document.querySelector('#list')).display") == "none"
    tab.click("#open-list")
    tab.until("getComputedStyle(document.querySelector('#list')).display !== 'none'")
    tab.click("#new")
    tab.until("getComputedStyle(document.querySelector('#list')).display === 'none'")
    box = tab.eval("(() => { const b = document.querySelector('#send').getBoundingClientRect(); return [b.right, b.bottom]; })()")
    assert box[0] <= 390 and box[1] <= 844, box
    # Fingers hit every button: of messages, then also of the list, the view of the cache and the dialog.
    tab.click("#open-list")
    tab.click("#conversations li:last-child button")
    tab.until("document.querySelectorAll('.message .actions button').length > 2")
    opened = ("#open-cache", "#open-list", "#open-settings")
    for button in (None, *opened):
        if button:
            tab.eval(f"document.querySelector({json.dumps(button)}).click()")
        small = tab.eval("""[...document.querySelectorAll('button, select, summary')].filter((b) => b.checkVisibility())
            .map((b) => [b.id || b.className || b.textContent, b.getBoundingClientRect()])
            .filter(([, r]) => r.width < 40 || r.height < 40).map(([name, r]) => `${name}: ${r.width} x ${r.height}`)""")
        assert not small, small
        assert tab.eval("document.documentElement.scrollWidth") <= 390
    for button in ("#close-settings", "#open-list", "#open-cache"):
        tab.eval(f"document.querySelector({json.dumps(button)}).click()")
    tab.size(1280, 800)


def everything_has_a_name(_server, tab):
    """What a screen reader would say of the controls."""
    tab.click("#open-settings")
    for opened in (True, False):
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "textbox", "combobox", "spinbutton", "checkbox", "link", "listbox")
        controls = [n for n in nodes if not n.get("ignored") and n.get("role", {}).get("value") in roles]
        nameless = [n["role"]["value"] for n in controls if not n.get("name", {}).get("value")]
        assert len(controls) > 5 and not nameless, nameless
        if opened:
            tab.click("#close-settings")


def nothing_foreign_and_nothing_refused(server, tab):
    foreign = [u for u in tab.urls if not u.startswith((server.url + "/", "data:", "blob:"))]
    assert len(tab.urls) > 20 and not foreign, foreign
    assert tab.eval("violations") == [], tab.eval("violations")
    assert not tab.errors, tab.errors
    # That a violation would be noticed, and that the policy holds.
    tab.eval("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hit = 5'}))")
    tab.eval("fetch('http://127.0.0.1:9/').catch(() => 0)")
    tab.until("violations.length === 2")
    assert tab.eval("window.hit") is None


def a_key_is_asked_for(program, browser):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write(KEY + "\n")
        keys.flush()
        server = Server(program, *MODEL, "--api-key-file", keys.name)
        try:
            tab = chromium.Tab(browser)
            tab.go(server.url)
            tab.until("document.querySelector('#key').open")
            tab.eval("document.querySelector('#key-field').focus()")
            tab.type(KEY)
            tab.key("Enter", 13)
            tab.until("document.querySelector('#model').options.length === 1")
            assert not tab.eval("document.querySelector('#key').open")
            assert tab.eval("localStorage.getItem('antigravity.key')") is None
            assert tab.eval("sessionStorage.getItem('antigravity.key')") == KEY
            settings(tab, max_tokens=5)
            send(tab, "Once")
            idle(tab)
            assert tab.eval(LAST)
            assert server.get("/v1/kv")[0] == 401
            held = json.loads(server.get("/v1/kv", Authorization=f"Bearer {KEY}")[2])["data"][0]["id"]
            assert server.get(f"/v1/kv/{held}")[0] == 401
            assert server.get(f"/v1/kv/{held}", Authorization=f"Bearer {KEY}")[0] == 200
        finally:
            server.close()


def presets_are_models_to_choose(program, browser):
    with tempfile.TemporaryDirectory() as home:
        folder = os.path.join(home, "antigravity", "presets")
        os.makedirs(folder)
        with open(os.path.join(folder, "teller.json"), "w", encoding="utf-8") as f:
            json.dump({"temperature": 0, "max-tokens": 6, "system": "Tell a tale."}, f)
        server = Server(program, *MODEL, home=home)
        try:
            tab = chromium.Tab(browser)
            tab.go(server.url)
            tab.until("document.querySelector('#model').options.length === 2")
            assert tab.eval("document.querySelector('#model optgroup option').value") == "teller"
            tab.eval("(() => { const m = document.querySelector('#model'); m.value = 'teller'; m.dispatchEvent(new Event('change')); })()")
            assert tab.eval("document.querySelector('.greeting h2').textContent") == "teller"
            send(tab, "Once")
            idle(tab)
            assert " 6 generated" in tab.eval("document.querySelector('#figures').textContent")
            tab.go(server.url)
            tab.until("document.querySelector('#model').value === 'teller'")
        finally:
            server.close()


TESTS = [files_are_served_strictly, an_answer_streams, retry_asks_again, edit_goes_on_from_there, stop_ends_an_answer,
         conversations_are_kept, two_tabs_lose_nothing, the_theme_switches, the_cache_is_seen_to_move, markup_of_a_model_stays_text,
         markdown_is_rendered, reasoning_and_calls_are_shown, an_empty_conversation_names_the_model,
         conversations_are_found_and_renamed, all_settings_are_sent, an_answer_obeys_a_schema, text_files_are_attached,
         the_memory_bar_compares_with_the_machine, a_phone_shows_all_of_it, everything_has_a_name, nothing_foreign_and_nothing_refused]
MODEL = ("--weights", "bf16", "--chat-template", os.path.join(HERE, "story.jinja"))


def run_tests(program, browser):
    server = Server(program, *MODEL)
    failed = 0
    try:
        tab = chromium.Tab(browser)
        tab.size(1280, 800)
        tab.go(server.url)
        for test in TESTS:
            try:
                test(server, tab)
                print(f"ok      {test.__name__}", flush=True)
            except Exception as e:  # noqa: BLE001 - the next tests still say something
                failed += 1
                print(f"FAILED  {test.__name__}: {type(e).__name__}: {e}", flush=True)
    finally:
        server.close()
    for test in (a_key_is_asked_for, presets_are_models_to_choose):
        try:
            test(program, browser)
            print(f"ok      {test.__name__}")
        except Exception as e:  # noqa: BLE001
            failed += 1
            print(f"FAILED  {test.__name__}: {type(e).__name__}: {e}")
    return 1 if failed else 0


def take_screenshots(program, browser, folder, model):
    server = Server(program, "--memory", "1G", *(("-m", model) if model else MODEL))
    try:
        tab = chromium.Tab(browser)
        tab.size(1120, 700)
        tab.go(server.url)
        tab.until("document.querySelector('#set-kv_policy').options.length > 1")
        tab.click("#theme")  # light
        settings(tab, max_tokens=220, temperature=0, kv_policy="keydiff", kv_budget="128")
        send(tab, "Write a C function that returns the larger of two numbers, and explain it in two short points.")
        idle(tab)
        send(tab, "Now the same for three numbers.")
        idle(tab)
        tab.click("#open-cache")
        tab.until("Number(document.querySelector('#cache-map').dataset.tokens) > 100")
        tab.until("document.querySelector('#cache-tokens').textContent.length > 100")
        tab.screenshot(os.path.join(folder, "page-light.png"))
        tab.click("#theme")
        tab.screenshot(os.path.join(folder, "page-dark.png"))
        tab.click("#close-cache")
        tab.size(390, 780, True)
        tab.screenshot(os.path.join(folder, "page-phone.png"))
    finally:
        server.close()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--screenshots", metavar="DIR")
    parser.add_argument("--model", metavar="PATH")
    args = parser.parse_args()
    path = chromium.find()
    if not path:
        print("skipped: there is no chromium")
        return 77
    browser = chromium.Chromium(path)
    try:
        if args.screenshots:
            return take_screenshots(args.program, browser, args.screenshots, args.model)
        return run_tests(args.program, browser)
    finally:
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
