/* SPDX-License-Identifier: Apache-2.0 */
/* The live view of the KV cache: which positions each head of each layer retains. */
import { getJson } from './api.js';
import { drawMap, placeAt } from './cache_map.js';
import { node } from './markdown.js';

const $ = (id) => document.getElementById(id);
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const SHOWN_TOKENS = 4000;
const REQUEST = 'antigravity.request';

function bytes(n) {
    let unit = 0, value = n;
    while (value >= 1024 && unit < UNITS.length - 1) {
        value /= 1024;
        unit++;
    }
    return `${unit ? value.toFixed(value < 10 ? 2 : 1) : value} ${UNITS[unit]}`;
}

const count = (n) => n.toLocaleString('en');
const slotsOf = (runs) => { let n = 0; for (let i = 1; i < runs.length; i += 2) n += runs[i]; return n; };

/* Returns the number of heads that retain each position. */
function retainers(view) {
    const change = new Int32Array(view.tokens + 1);
    for (const layer of view.layers)
        for (const head of layer.heads) {
            const runs = view.runs[head];
            for (let i = 0; i < runs.length; i += 2) {
                change[runs[i]]++;
                change[runs[i] + runs[i + 1]]--;
            }
        }
    for (let i = 1; i <= view.tokens; i++) change[i] += change[i - 1];
    return change.subarray(0, view.tokens);
}

export class CacheView {
    constructor() {
        this.view = null;
        this.texts = [];  /* of the session's tokens */
        this.textsOf = null;
        this.wanted = null; /* the session to show; null: the newest */
        /* Id of the page's last request, with which the server also shows the session's text. Stored for a reload. */
        this.own = sessionStorage.getItem(REQUEST);
        this.ownNumber = null; /* that session's own id */
        this.isBusy = false;
        this.timer = 0;
        this.cursor = null;
        const map = $('cache-map');
        map.addEventListener('pointermove', (e) => this.#point(e));
        map.addEventListener('pointerleave', () => { this.cursor = null; this.draw(); });
        map.addEventListener('keydown', (e) => this.#move(e));
        $('cache-session').addEventListener('change', (e) => { this.wanted = e.target.value ? Number(e.target.value) : null; this.#poll(); });
        document.addEventListener('visibilitychange', () => this.#poll());
        new ResizeObserver(() => this.draw()).observe(map.parentElement);
    }

    get isOpen() { return !$('cache').hidden; }

    toggle() {
        $('cache').hidden = this.isOpen;
        $('open-cache').setAttribute('aria-expanded', String(this.isOpen));
        if (this.isOpen) $('cache-session').focus();
        this.#poll();
    }

    busy(isBusy) {
        this.isBusy = isBusy;
        this.#poll();
    }

    /* Sets the id of the page's request, from X-Request-Id. */
    follow(id) {
        this.own = id;
        if (id) sessionStorage.setItem(REQUEST, id);
        this.ownNumber = null;
        this.texts = [];
    }

    /* ---- requests ---- */

    async #poll() {
        clearTimeout(this.timer);
        if (!this.isOpen || document.hidden || this.polling) return;
        this.polling = true;
        try {
            await this.#refresh();
        } catch (e) {
            /* 503: another page has a view in progress; the next poll tries again. */
            if (e.status !== 503) $('cache-summary').textContent = `The cache cannot be shown: ${e.message}`;
        }
        this.polling = false;
        clearTimeout(this.timer);
        if (this.isOpen) this.timer = setTimeout(() => this.#poll(), this.isBusy ? 300 : 2000);
    }

    async #refresh() {
        const list = await getJson('/v1/kv');
        const sessions = list.data || [];
        this.#showSessions(sessions);
        this.#showMemory(list.memory, sessions);
        const view = await this.#ask(sessions);
        if (!view) {
            this.view = null;
            $('cache-summary').textContent = 'The server has no session yet.';
            this.draw();
            return;
        }
        this.view = view;
        if (this.textsOf !== view.id || !view.text) this.texts = [];
        this.textsOf = view.text ? view.id : null;
        /* Texts that begin later were requested for another session; the next poll requests them again. */
        if (view.text && view.text.from <= this.texts.length) {
            this.texts.length = view.text.from;
            for (const text of view.text.tokens) this.texts.push(text);
        }
        this.#showSummary();
        this.#showTokens();
        this.#showTable();
        this.draw();
    }

    /* Returns the session to show: the chosen one, the page's own, a running one, or the last one. NULL: the server
     * has none. */
    async #ask(sessions) {
        const has = (id) => id !== null && sessions.some((s) => s.id === id);
        if (this.own && (!has(this.wanted) || this.wanted === this.ownNumber)) {
            try {
                const view = await getJson(`/v1/kv/${this.own}?from=${this.texts.length}`);
                this.ownNumber = view.id;
                return view;
            } catch (e) {
                if (e.status !== 404) throw e;
                if (!this.isBusy) this.own = null; /* it has left memory */
            }
        }
        const best = sessions.filter((s) => s.state === 'running').at(-1)
            || [...sessions].sort((a, b) => a.idle_seconds - b.idle_seconds)[0];
        const id = has(this.wanted) ? this.wanted : best?.id;
        return id === undefined ? null : getJson(`/v1/kv/${id}`);
    }

    /* ---- display ---- */

    #showSessions(sessions) {
        const select = $('cache-session');
        const labels = [['', 'The conversation on this page']].concat(sessions.map((s) =>
            [String(s.id), `${s.id}: ${s.model}, ${count(s.tokens)} tokens, ${s.state === 'running' ? 'running' : 'parked'}`]));
        if (select.options.length === labels.length && labels.every(([, text], i) => select.options[i].textContent === text)) return;
        const chosen = this.wanted === null ? '' : String(this.wanted);
        select.replaceChildren(...labels.map(([value, text]) => node('option', { value }, text)));
        select.value = labels.some(([value]) => value === chosen) ? chosen : '';
    }

    #showMemory(memory, sessions) {
        if (!memory) return;
        /* Without a limit the bar compares with the memory of the machine. */
        const meter = $('cache-memory'), { limit, machine } = memory;
        meter.max = limit || machine || memory.peak || 1;
        meter.value = memory.used;
        const whole = limit ? bytes(limit) : machine ? `the machine’s ${bytes(machine)}` : 'an unknown memory';
        $('cache-memory-text').textContent = `${bytes(memory.used)} of ${whole}, `
            + `peak ${bytes(memory.peak)}; your sessions ${bytes(sessions.reduce((n, x) => n + x.bytes, 0))}`;
    }

    #showSummary() {
        const v = this.view, by = retainers(v);
        let n = 0;
        for (const heads of by) if (heads) n++;
        const left = v.tokens - n, parts = [`Session ${v.id}: ${count(n)} of ${count(v.tokens)} tokens are retained in at least one head, ${bytes(v.bytes)} (${v.k_type} keys, ${v.v_type} values).`];
        if (v.policy !== 'none') {
            parts.push(`Policy ${v.policy}, budget ${v.budget ? count(v.budget) : 'none'} tokens a head, ${count(v.protected)} attention sinks; ${count(v.evictions)} evictions took ${count(v.evicted)} slots.`);
        }
        if (left) parts.push(`${count(left)} ${left === 1 ? 'token has' : 'tokens have'} left every head.`);
        $('cache-summary').textContent = parts.join(' ');
        $('cache-map').setAttribute('aria-label', `Map of the cache: ${v.layers.length} layers, ${count(v.tokens)} positions, ${count(n)} retained, ${count(left)} gone`);
    }

    /* Strikes through tokens that no head retains. Neighbours with an equal share become one node. */
    #showTokens() {
        const v = this.view, by = retainers(v), box = $('cache-tokens');
        if (!v.text) {
            box.replaceChildren('Only the page that sent the requests of a session can see its text.');
            return;
        }
        const n_heads = v.layers.reduce((n, l) => n + l.heads.length, 0) || 1;
        const first = Math.max(0, this.texts.length - SHOWN_TOKENS), out = [];
        let text = '', shade = -1;
        const flush = () => { if (text) out.push(node('span', { class: `s${shade}` }, text)); text = ''; };
        for (let i = first; i < this.texts.length; i++) {
            const s = by[i] ? Math.max(1, Math.round(4 * by[i] / n_heads)) : 0;
            if (s !== shade) flush();
            shade = s;
            text += this.texts[i];
        }
        flush();
        const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
        box.replaceChildren(...(first ? [node('span', {}, '… ')] : []), ...out);
        if (atEnd) box.scrollTop = box.scrollHeight;
    }

    #showTable() {
        if (!$('cache-table-box').open) return;
        const v = this.view;
        $('cache-table').tBodies[0].replaceChildren(...v.layers.map((layer, i) => {
            const slots = layer.heads.map((h) => slotsOf(v.runs[h]));
            const low = Math.min(...slots), high = Math.max(...slots);
            const oldest = Math.min(...layer.heads.map((h) => v.runs[h][0] ?? Infinity));
            return node('tr', {}, node('th', { scope: 'row' }, String(i)), ...[
                layer.heads.length || 'no cache',
                layer.heads.length ? (low === high ? count(low) : `${count(low)}–${count(high)}`) : '',
                Number.isFinite(oldest) ? count(oldest) : '',
                layer.window ? count(layer.window) : 'all',
            ].map((c) => node('td', {}, String(c))));
        }));
    }

    draw() {
        if (this.isOpen) drawMap($('cache-map'), this.view, this.cursor);
    }

    /* ---- pointer ---- */

    #point(e) {
        const box = $('cache-map').getBoundingClientRect();
        this.cursor = placeAt(this.view, (e.clientX - box.left) / box.width, (e.clientY - box.top) / box.height);
        this.#tell();
    }

    #move(e) {
        const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
        if (!this.view || !steps[e.key]) return;
        e.preventDefault();
        const rows = this.view.layers.reduce((n, l) => n + l.heads.length, 0), n = this.view.tokens;
        const far = e.shiftKey ? 32 : 1, [dx, dy] = steps[e.key], at = this.cursor || { position: 0, row: 0 };
        this.cursor = placeAt(this.view,
            (Math.min(n - 1, Math.max(0, at.position + dx * far)) + .5) / n,
            (Math.min(rows - 1, Math.max(0, at.row + dy)) + .5) / rows);
        this.#tell();
    }

    #tell() {
        const c = this.cursor;
        this.draw();
        if (!c) return;
        const why = { held: 'retained', sink: 'retained, an attention sink', evicted: `evicted by ${this.view.policy}`, window: 'outside of the layer’s window' }[c.state];
        $('cache-at').textContent = `Layer ${c.layer}, head ${c.head}, position ${count(c.position)} ${JSON.stringify(this.texts[c.position] ?? '')}: ${why}.`;
    }
}
