/* SPDX-License-Identifier: Apache-2.0 */
#include "text/decoder.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/hex.h"
#include "text/byte_level.h"
#include "text/utf8.h"

#include <string.h>

/* Pending bytes up to this number need no later allocation. */
enum { PENDING_BYTES = 4096 };

/* Chunk of a token on its way through the chain. */
typedef struct chunk {
    const char *s;
    size_t n;
    bool first, last; /* the chunk starts the token, ends it */
} chunk;

typedef struct flow {
    ag_decode_run *run;
    ag_text *out;
    ag_error *err;
    size_t made, limit; /* bytes written by REPLACE stages, and their limit */
} flow;

static ag_status feed_stage(flow *f, size_t stage, chunk c);

static void reset_state(const ag_decode_run *r, size_t i) {
    ag_decode_state *st = &r->states[i];
    const ag_decode_stage *s = &r->chain->stages[i];
    st->pending.len = 0;
    st->n_partial = 0;
    st->n_pending = 0;
    st->started = r->continues && (s->kind == AG_DECODE_METASPACE || s->kind == AG_DECODE_SPACED);
    st->to_strip = r->continues && s->after_fusing ? 0 : s->strip_start;
}

ag_status ag_decode_run_init(ag_decode_run *r, const ag_decode_chain *chain, size_t max_len,
                             bool continues, ag_error *err) {
    *r = (ag_decode_run){.chain = chain, .continues = continues};
    r->states = ag_calloc(chain->n, sizeof *r->states);
    if (!r->states) return AG_FAIL(err, NOMEM, "decoder");
    ag_status st = AG_OK;
    for (size_t i = 0; i < chain->n && st == AG_OK; i++) {
        const ag_decode_stage *s = &chain->stages[i];
        ag_decode_state *state = &r->states[i];
        if (s->kind == AG_DECODE_REPLACE) st = ag_cursor_open(&state->cursor, s->pattern, err);
        if (st == AG_OK) st = ag_text_reserve(&state->pending, max_len + PENDING_BYTES, err);
        reset_state(r, i);
    }
    if (st != AG_OK) ag_decode_run_free(r);
    return st;
}

void ag_decode_run_free(ag_decode_run *r) {
    for (size_t i = 0; r->states && i < r->chain->n; i++) {
        ag_text_free(&r->states[i].pending);
        ag_cursor_close(&r->states[i].cursor);
    }
    ag_free(r->states);
    r->states = NULL;
}

static ag_status replace_content(flow *f, size_t i, chunk c) {
    const ag_decode_stage *s = &f->run->chain->stages[i];
    ag_decode_state *state = &f->run->states[i];
    size_t done = 0, start, end;
    bool found;
    state->pending.len = 0;
    ag_cursor_reset(&state->cursor, c.s, c.n);
    for (;;) {
        AG_TRY(ag_cursor_next(&state->cursor, &start, &end, &found, f->err));
        if (!found) break;
        AG_TRY(ag_text_append(&state->pending, c.s + done, start - done, f->err));
        AG_TRY(ag_text_append(&state->pending, s->content, s->len, f->err));
        AG_TRY(ag_growth_check(f->made + state->pending.len, f->limit, "decoder", f->err));
        done = end;
    }
    AG_TRY(ag_text_append(&state->pending, c.s + done, c.n - done, f->err));
    AG_TRY(ag_growth_check(f->made + state->pending.len, f->limit, "decoder", f->err));
    f->made += state->pending.len;
    return feed_stage(f, i + 1, (chunk){state->pending.data, state->pending.len, true, true});
}

/* Returns the byte of "<0x41>", -1 if it is none. Rust's number parser accepts "<0x+A>" too. */
static int fallback_byte(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = s[3] == '+' ? 0 : ag_hex_digit(s[3]), low = ag_hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Emits the pending run of bytes: as text if the entire run is UTF-8, else U+FFFD for each byte. */
static ag_status release_bytes(flow *f, size_t i) {
    ag_text *pending = &f->run->states[i].pending;
    size_t n = pending->len;
    pending->len = 0;
    if (n == 0) return AG_OK;
    if (ag_utf8_valid_prefix(pending->data, n) == n) {
        return feed_stage(f, i + 1, (chunk){pending->data, n, true, true});
    }
    for (size_t k = 0; k < n; k++) {
        AG_TRY(feed_stage(f, i + 1, (chunk){"\xEF\xBF\xBD", 3, true, true}));
    }
    return AG_OK;
}

static ag_status byte_fallback(flow *f, size_t i, chunk c) {
    int byte = fallback_byte(c.s, c.n);
    if (byte >= 0) {
        char b = (char)byte;
        return ag_text_append(&f->run->states[i].pending, &b, 1, f->err);
    }
    AG_TRY(release_bytes(f, i));
    return feed_stage(f, i + 1, c);
}

/* Passes on a chunk of the fused token. */
static ag_status feed_fused(flow *f, size_t i, const char *s, size_t n) {
    ag_decode_state *state = &f->run->states[i];
    bool first = !state->started;
    state->started = true;
    return feed_stage(f, i + 1, (chunk){s, n, first, false});
}

/* Adds a byte to the incomplete character and writes finished ones to buf (at most 12 bytes).
 * Returns their length. Invalid bytes become U+FFFD as in Rust's from_utf8_lossy. */
static size_t decode_byte(ag_decode_state *state, unsigned char b, char *buf) {
    size_t n = 0;
    state->partial[state->n_partial++] = b;
    while (state->n_partial) {
        uint32_t cp;
        int step = ag_utf8_step((const char *)state->partial, state->n_partial, &cp);
        if (step == 0) break;
        size_t used = (size_t)(step > 0 ? step : -step);
        if (step > 0) memcpy(buf + n, state->partial, used);
        n += step > 0 ? used : ag_utf8_put(buf + n, AG_UTF8_REPLACEMENT);
        state->n_partial -= used;
        memmove(state->partial, state->partial + used, state->n_partial);
    }
    return n;
}

static bool is_byte_level(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += ag_utf8_get(s + i, &cp);
        if (ag_byte_level_byte(cp) < 0) return false;
    }
    return true;
}

static ag_status byte_level(flow *f, size_t i, chunk c) {
    ag_decode_state *state = &f->run->states[i];
    /* A token with any other character, such as an added token, represents its own bytes. */
    bool mapped = is_byte_level(c.s, c.n);
    char buf[256];
    size_t n = 0;
    for (size_t k = 0; k < c.n;) {
        uint32_t cp = (unsigned char)c.s[k];
        if (mapped) {
            k += ag_utf8_get(c.s + k, &cp);
            cp = (uint32_t)ag_byte_level_byte(cp);
        } else {
            k++;
        }
        n += decode_byte(state, (unsigned char)cp, buf + n);
        if (n > sizeof buf - 16) {
            AG_TRY(feed_fused(f, i, buf, n));
            n = 0;
        }
    }
    return feed_fused(f, i, buf, n);
}

static bool begins_with(chunk c, const ag_decode_stage *s) {
    return c.n >= s->len && memcmp(c.s, s->content, s->len) == 0;
}

/* Strips content from the end of a chunk, at most `max` times. Returns how often. */
static size_t strip_end(chunk *c, const ag_decode_stage *s, size_t max) {
    size_t n = 0;
    while (n < max && c->n >= s->len && memcmp(c->s + c->n - s->len, s->content, s->len) == 0) {
        c->n -= s->len;
        n++;
    }
    return n;
}

static ag_status strip_content(flow *f, size_t i, chunk c) {
    const ag_decode_stage *s = &f->run->chain->stages[i];
    ag_decode_state *state = &f->run->states[i];
    if (!s->after_fusing) state->to_strip = s->strip_start;
    while (state->to_strip && c.n) {
        if (!begins_with(c, s)) {
            state->to_strip = 0;
            break;
        }
        state->to_strip--;
        c.s += s->len;
        c.n -= s->len;
    }
    size_t n_held = strip_end(&c, s, s->strip_stop);
    if (!s->after_fusing) return feed_stage(f, i + 1, c);
    /* Hold back the end of a chunk: it is stripped only if it is the end of the token too. */
    size_t release = c.n ? state->n_pending : 0;
    if (!c.n) n_held += state->n_pending;
    if (n_held > s->strip_stop) {
        release += n_held - s->strip_stop;
        n_held = s->strip_stop;
    }
    state->n_pending = n_held;
    for (; release; release--) {
        AG_TRY(feed_stage(f, i + 1, (chunk){s->content, s->len, c.first, false}));
        c.first = false;
    }
    return feed_stage(f, i + 1, c);
}

static ag_status decode_metaspace(flow *f, size_t i, chunk c) {
    const ag_decode_stage *s = &f->run->chain->stages[i];
    ag_decode_state *state = &f->run->states[i];
    size_t space = s->drop_first && !state->started ? 0 : 1, done = 0;
    if (c.last) state->started = true;
    state->pending.len = 0;
    for (const char *hit; (hit = memmem(c.s + done, c.n - done, s->content, s->len)) != NULL;) {
        size_t at = (size_t)(hit - c.s);
        AG_TRY(ag_text_append(&state->pending, c.s + done, at - done, f->err));
        AG_TRY(ag_text_append(&state->pending, " ", space, f->err));
        done = at + s->len;
    }
    AG_TRY(ag_text_append(&state->pending, c.s + done, c.n - done, f->err));
    return feed_stage(f, i + 1, (chunk){state->pending.data, state->pending.len, c.first, c.last});
}

static ag_status feed_stage(flow *f, size_t i, chunk c) {
    if (i == f->run->chain->n) return ag_text_append(f->out, c.s, c.n, f->err);
    switch (f->run->chain->stages[i].kind) {
    case AG_DECODE_REPLACE:
        return replace_content(f, i, c);
    case AG_DECODE_BYTE_FALLBACK:
        return byte_fallback(f, i, c);
    case AG_DECODE_BYTE_LEVEL:
        return byte_level(f, i, c);
    case AG_DECODE_FUSE:
        return feed_fused(f, i, c.s, c.n);
    case AG_DECODE_STRIP:
        return strip_content(f, i, c);
    case AG_DECODE_METASPACE:
        return decode_metaspace(f, i, c);
    case AG_DECODE_SPACED:
        break;
    }
    if (f->run->states[i].started) AG_TRY(ag_text_append(f->out, " ", 1, f->err));
    f->run->states[i].started = true;
    return ag_text_append(f->out, c.s, c.n, f->err);
}

/* Starts passing a token of n bytes through the chain; pending bytes may follow. */
static flow start_flow(ag_decode_run *r, size_t n, ag_text *out, ag_error *err) {
    for (size_t i = 0; i < r->chain->n; i++) {
        if (r->chain->stages[i].kind == AG_DECODE_BYTE_FALLBACK) n += r->states[i].pending.len;
    }
    return (flow){r, out, err, 0, ag_growth_limit(n)};
}

ag_status ag_decode_run_push(ag_decode_run *r, const char *s, size_t n, ag_text *out,
                             ag_error *err) {
    flow f = start_flow(r, n, out, err);
    return feed_stage(&f, 0, (chunk){s, n, true, true});
}

static ag_status end_stage(flow *f, size_t i) {
    ag_decode_state *state = &f->run->states[i];
    ag_decode_kind kind = f->run->chain->stages[i].kind;
    if (kind == AG_DECODE_BYTE_FALLBACK) return release_bytes(f, i);
    if (kind != AG_DECODE_BYTE_LEVEL && kind != AG_DECODE_FUSE) return AG_OK;
    size_t n = state->n_partial ? 3 : 0; /* an incomplete character becomes U+FFFD */
    return feed_stage(f, i + 1, (chunk){"\xEF\xBF\xBD", n, !state->started, true});
}

ag_status ag_decode_run_end(ag_decode_run *r, ag_text *out, ag_error *err) {
    flow f = start_flow(r, 0, out, err);
    ag_status st = AG_OK;
    for (size_t i = 0; i < r->chain->n && st == AG_OK; i++) st = end_stage(&f, i);
    for (size_t i = 0; i < r->chain->n; i++) reset_state(r, i);
    return st;
}
