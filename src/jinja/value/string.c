/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value/string.h"

#include "core/alloc.h"
#include "core/keyed_hash.h"
#include "text/utf8.h"

#include <string.h>

static const ag_jinja_span everything[] = {{0, SIZE_MAX}};

void ag_jstr_init(ag_jstr *s, const char *text, size_t len, bool from_input) {
    *s = (ag_jstr){.text = text, .len = len, .n_chars = SIZE_MAX};
    if (!from_input) return;
    s->spans = everything;
    s->n_spans = 1;
}

ag_jstr *ag_jstr_create(ag_jctx *c, const char *text, size_t len, bool from_input) {
    ag_jstr *s = ag_jalloc(c, sizeof *s);
    if (s) ag_jstr_init(s, text, len, from_input);
    return s;
}

ag_jstr *ag_jstr_copy(ag_jctx *c, const char *text, size_t len) {
    ag_jbuf *b = ag_jbuf_create(c);
    return b && ag_jbuf_append_bytes(c, b, text, len, false) ? ag_jbuf_string(c, b) : NULL;
}

ag_jv ag_jstr_literal(ag_jctx *c, const char *text) {
    return ag_jstring(ag_jstr_create(c, text, strlen(text), false));
}

/* Returns the index of the first span that ends after `at`. */
static size_t span_after(const ag_jinja_span *spans, size_t n, size_t at) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (spans[mid].end > at) high = mid;
        else low = mid + 1;
    }
    return low;
}

ag_jstr *ag_jstr_slice(ag_jctx *c, const ag_jstr *s, size_t begin, size_t end) {
    if (begin > end) begin = end;
    ag_jstr *r = ag_jalloc(c, sizeof *r);
    if (!r) return NULL;
    *r = *s;
    r->text = s->text + begin;
    r->len = end - begin;
    r->hash = 0;
    r->is_permanent = false;
    r->n_chars = s->n_chars == s->len ? r->len : SIZE_MAX;
    r->origin = s->origin + begin;
    if (s->n_spans > 1) {
        size_t first = span_after(s->spans, s->n_spans, r->origin);
        r->spans = s->spans + first;
        r->n_spans = s->n_spans - first;
    }
    return r;
}

ag_jstr *ag_jstr_as_markup(ag_jctx *c, ag_jstr *s, bool markup) {
    if (s->markup == markup) return s;
    ag_jstr *r = ag_jalloc(c, sizeof *r);
    if (!r) return NULL;
    *r = *s;
    r->markup = markup;
    r->is_permanent = false;
    return r;
}

size_t ag_jstr_count(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

size_t ag_jstr_chars(ag_jstr *s) {
    if (s->n_chars == SIZE_MAX) s->n_chars = ag_jstr_count(s->text, s->len);
    return s->n_chars;
}

size_t ag_jstr_offset(ag_jstr *s, size_t index) {
    size_t n = ag_jstr_chars(s);
    if (n == s->len) return index;
    if (index >= n) return s->len;
    size_t at = 0;
    if (index > n / 2) { /* count from the nearer end */
        at = s->len;
        for (size_t i = n; i > index; i--) at = ag_utf8_last(s->text, at);
        return at;
    }
    for (size_t i = 0; i < index; i++) at += ag_utf8_len(s->text[at]);
    return at;
}

uint32_t ag_jstr_hash_of(const char *text, size_t len) {
    const uint64_t h = ag_keyed_hash(text, len);
    return (uint32_t)h ? (uint32_t)h : 1;
}

uint32_t ag_jstr_hash(ag_jstr *s) {
    if (!s->hash) s->hash = ag_jstr_hash_of(s->text, s->len);
    return s->hash;
}

bool ag_jstr_equal(const ag_jstr *a, const ag_jstr *b) {
    return a->len == b->len && (a->text == b->text || !memcmp(a->text, b->text, a->len));
}

/* Byte order of UTF-8 is code point order. */
int ag_jstr_compare(const ag_jstr *a, const ag_jstr *b) {
    size_t n = a->len < b->len ? a->len : b->len;
    int r = n ? memcmp(a->text, b->text, n) : 0;
    return r ? (r > 0) - (r < 0) : (a->len > b->len) - (a->len < b->len);
}

int64_t ag_jstr_find(const ag_jstr *s, size_t begin, size_t end, const ag_jstr *needle) {
    if (begin > end || needle->len > end - begin) return AG_JNOT_FOUND;
    if (!needle->len) return (int64_t)begin;
    const char *text = s->text + begin;
    const char *p = needle->len == 1 ? memchr(text, needle->text[0], end - begin)
                                     : memmem(text, end - begin, needle->text, needle->len);
    return p ? p - s->text : AG_JNOT_FOUND;
}

int64_t ag_jstr_rfind(ag_jctx *c, const ag_jstr *s, size_t begin, size_t end,
                      const ag_jstr *needle) {
    if (begin > end || needle->len > end - begin) return AG_JNOT_FOUND;
    for (size_t at = end - needle->len;; at--) {
        if (!needle->len) return (int64_t)at;
        if (s->text[at] == needle->text[0]) {
            if (!ag_jwork_bytes(c, needle->len)) return AG_JNOT_FOUND;
            if (!memcmp(s->text + at, needle->text, needle->len)) return (int64_t)at;
        }
        if (at == begin) return AG_JNOT_FOUND;
    }
}

bool ag_jstr_is_input(const ag_jstr *s, size_t i) {
    size_t k = span_after(s->spans, s->n_spans, s->origin + i);
    return k < s->n_spans && s->spans[k].begin <= s->origin + i;
}

bool ag_jstr_spans(const ag_jstr *s, ag_jinja_span *out, size_t cap, size_t *n) {
    const size_t end = s->origin + s->len;
    *n = 0;
    for (size_t k = span_after(s->spans, s->n_spans, s->origin);
         k < s->n_spans && s->spans[k].begin < end; k++) {
        if (*n == cap) return false;
        const size_t first = s->spans[k].begin > s->origin ? s->spans[k].begin : s->origin;
        const size_t last = s->spans[k].end < end ? s->spans[k].end : end;
        out[(*n)++] = (ag_jinja_span){first - s->origin, last - s->origin};
    }
    return true;
}

ag_jbuf *ag_jbuf_create(ag_jctx *c) {
    ag_jbuf *b = ag_jalloc_zeroed(c, sizeof *b);
    if (!b) return NULL;
    b->older = c->bufs;
    b->region = c->n_regions;
    c->bufs = b;
    return b;
}

static void free_block(ag_jctx *c, void *block, size_t bytes) {
    if (!block) return;
    c->memory.used -= bytes + sizeof(ag_jretired);
    ag_free(block);
}

void ag_jbuf_free(ag_jctx *c, ag_jbuf *b) {
    while (b->retired.block) {
        const ag_jretired r = b->retired;
        memcpy(&b->retired, (char *)r.block + r.bytes, sizeof b->retired);
        free_block(c, r.block, r.bytes);
    }
    free_block(c, b->text, b->cap);
    free_block(c, b->spans, b->cap_spans * sizeof *b->spans);
    b->text = NULL;
    b->spans = NULL;
}

static void retire(ag_jbuf *b, void *block, size_t bytes) {
    if (!block) return;
    memcpy((char *)block + bytes, &b->retired, sizeof b->retired);
    b->retired = (ag_jretired){block, bytes};
}

/* Returns a block of `bytes` (a multiple of 16) that starts with the old contents, NULL on failure.
 * If shared, the old block is retired instead of freed. Both blocks are counted during the copy. */
static void *larger_block(ag_jctx *c, ag_jbuf *b, void *old, size_t old_bytes, size_t bytes,
                          bool shared) {
    const size_t block_bytes = bytes + sizeof(ag_jretired);
    if (bytes > SIZE_MAX / 4) c->memory.over_limit = true;
    if (bytes > SIZE_MAX / 4 || !ag_jinja_count(&c->memory, block_bytes))
        return ag_jfail_memory(c, bytes);
    void *block = shared ? ag_malloc(block_bytes) : ag_realloc(old, block_bytes);
    if (!block) {
        c->memory.used -= block_bytes;
        return ag_jfail_memory(c, bytes);
    }
    if (shared) {
        if (old_bytes) memcpy(block, old, old_bytes);
        retire(b, old, old_bytes);
    } else if (old) {
        c->memory.used -= old_bytes + sizeof(ag_jretired);
    }
    return block;
}

/* Large buffers grow by half because the memory is limited. If the old block stays alive, doubling
 * costs less in total. */
static size_t next_capacity(size_t cap, size_t needed, size_t unit, bool shared) {
    size_t next = shared || cap < (64 << 10) / unit ? cap * 2 : cap + cap / 2;
    if (next < needed) next = needed;
    return (next + 15) / 16 * 16;
}

static bool reserve_bytes(ag_jctx *c, ag_jbuf *b, size_t more) {
    if (b->max_len && (more > b->max_len || b->len > b->max_len - more)) {
        ag_jfail_as(c, AG_LIMIT, "the output exceeds %zu bytes", b->max_len);
        return false;
    }
    if (more <= b->cap - b->len) return true;
    const size_t cap = next_capacity(b->cap, b->len + more, 1, b->shares_text);
    char *text = larger_block(c, b, b->text, b->cap, cap, b->shares_text);
    if (!text) return false;
    b->text = text;
    b->cap = cap;
    b->shares_text = false;
    return true;
}

/* Appends a span, or extends the last one. Earlier strings are not affected: they have their own
 * length and number of spans. */
static bool add_span(ag_jctx *c, ag_jbuf *b, size_t begin, size_t end) {
    if (b->n_spans && b->spans[b->n_spans - 1].end == begin) {
        b->spans[b->n_spans - 1].end = end;
        return true;
    }
    if (b->n_spans == b->cap_spans) {
        const size_t size = sizeof *b->spans;
        const size_t cap = b->cap_spans ? next_capacity(b->cap_spans, 0, size, b->shares_spans) : 4;
        void *p = larger_block(c, b, b->spans, b->cap_spans * size, cap * size, b->shares_spans);
        if (!p) return false;
        b->spans = p;
        b->cap_spans = cap;
        b->shares_spans = false;
    }
    b->spans[b->n_spans++] = (ag_jinja_span){begin, end};
    return true;
}

bool ag_jbuf_append_bytes(ag_jctx *c, ag_jbuf *b, const char *bytes, size_t n, bool is_input) {
    if (!n) return true;
    if (!ag_jwork_bytes(c, n) || !reserve_bytes(c, b, n)) return false;
    memcpy(b->text + b->len, bytes, n);
    if (is_input && !add_span(c, b, b->len, b->len + n)) return false;
    b->len += n;
    return true;
}

bool ag_jbuf_append_char(ag_jctx *c, ag_jbuf *b, uint32_t cp, bool is_input) {
    char utf8[4];
    return ag_jbuf_append_bytes(c, b, utf8, ag_utf8_put(utf8, cp), is_input);
}

bool ag_jbuf_append_slice(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, size_t begin, size_t end) {
    if (begin >= end) return true;
    size_t n = end - begin, at = b->len;
    /* s may share text with b: then b gets a new block and `text` stays valid. */
    const char *text = s->text + begin;
    const ag_jinja_span *spans = s->spans;
    if (!ag_jwork_bytes(c, n) || !reserve_bytes(c, b, n)) return false;
    memcpy(b->text + at, text, n);
    size_t from = s->origin + begin, to = s->origin + end;
    size_t n_spans = s->n_spans;
    for (size_t k = span_after(spans, n_spans, from); k < n_spans && spans[k].begin < to; k++) {
        size_t first = spans[k].begin > from ? spans[k].begin : from;
        size_t last = spans[k].end < to ? spans[k].end : to;
        if (!ag_jwork(c, 1) || !add_span(c, b, at + first - from, at + last - from)) return false;
    }
    b->len += n;
    return true;
}

bool ag_jbuf_append(ag_jctx *c, ag_jbuf *b, const ag_jstr *s) {
    return ag_jbuf_append_slice(c, b, s, 0, s->len);
}

bool ag_jbuf_append_repeated(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, size_t times) {
    if (!s->len) return true;
    if (times > SIZE_MAX / 4 / s->len) {
        ag_jfail_as(c, AG_LIMIT, "the string is too long: %zu times %zu bytes", times, s->len);
        return false;
    }
    if (!reserve_bytes(c, b, times * s->len)) return false;
    for (size_t i = 0; i < times; i++) {
        if (!ag_jwork(c, 1) || !ag_jbuf_append(c, b, s)) return false;
    }
    return true;
}

ag_jstr *ag_jbuf_string(ag_jctx *c, ag_jbuf *b) {
    ag_jstr *s = ag_jalloc(c, sizeof *s);
    if (!s) return NULL;
    *s = (ag_jstr){.text = b->text ? b->text : "", .len = b->len, .n_chars = SIZE_MAX, .buffer = b};
    s->spans = b->spans;
    s->n_spans = b->n_spans;
    b->shares_text = b->shares_spans = true;
    return s;
}

bool ag_jbuf_move_out(ag_jctx *c, ag_jbuf *b, ag_jinja_output *out) {
    const size_t size = sizeof *b->spans;
    char *text = ag_realloc(b->text, b->len + 1);
    if (!text) return ag_jfail_memory(c, b->len + 1), false;
    if (b->text) c->memory.used -= b->cap + sizeof(ag_jretired);
    b->text = NULL;
    text[b->len] = '\0';
    out->text = text;
    out->len = b->len;
    if (!b->n_spans) return true;
    out->spans = ag_realloc(b->spans, b->n_spans * size);
    if (!out->spans) return ag_jfail_memory(c, b->n_spans * size), false;
    c->memory.used -= b->cap_spans * size + sizeof(ag_jretired);
    b->spans = NULL;
    out->n_spans = b->n_spans;
    return true;
}

/* Appends in place if `a` is at the end of its buffer, so a template that builds a string in a loop
 * takes linear time. */
ag_jstr *ag_jstr_concat(ag_jctx *c, const ag_jstr *a, const ag_jstr *b) {
    ag_jbuf *buffer = a->buffer;
    bool in_place = buffer && a->len && a->text + a->len == buffer->text + buffer->len;
    size_t begin = in_place ? (size_t)(a->text - buffer->text) : 0;
    if (!in_place) {
        buffer = ag_jbuf_create(c);
        if (!buffer || !ag_jbuf_append(c, buffer, a)) return NULL;
    }
    if (!ag_jbuf_append(c, buffer, b)) return NULL;
    ag_jstr *s = ag_jbuf_string(c, buffer);
    if (!s) return NULL;
    s->text += begin;
    s->len -= begin;
    s->origin = begin;
    return s;
}
