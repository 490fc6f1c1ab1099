/* SPDX-License-Identifier: Apache-2.0 */
#include "text/dry_breakers.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/token_bytes.h"

#include <antigravity/tokenizer.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 40, MAX_TAIL = 20 }; /* bytes of a text, tokens after its first one */

/* A token, and the tokens that must follow it to complete a text. */
typedef struct breaker {
    int32_t head;
    size_t tail, n; /* ids.data[tail..tail + n) */
} breaker;

struct ag_dry_breakers {
    atomic_uint refs;
    breaker *list; /* sorted by head, then longest first */
    size_t n, cap;
    ag_ids ids;
};

ag_dry_breakers *ag_dry_breakers_retain(ag_dry_breakers *b) {
    if (b) atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void ag_dry_breakers_destroy(ag_dry_breakers *b) {
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1) return;
    ag_free(b->list);
    ag_ids_free(&b->ids);
    ag_free(b);
}

/* ---- creation ---- */

static ag_status add_breaker(ag_dry_breakers *b, int32_t head, size_t tail, ag_error *err) {
    void *list = b->list;
    const ag_status st = ag_array_grow(&list, &b->cap, b->n + 1, sizeof *b->list, err);
    b->list = list;
    if (st == AG_OK) b->list[b->n++] = (breaker){head, tail, b->ids.n - tail};
    return st;
}

/* Adds the token if its bytes contain the text or end with a start of it. */
static ag_status add_token(ag_dry_breakers *b, const ag_tokenizer *t, int32_t id,
                           const ag_text *bytes, const char *text, size_t n, ag_error *err) {
    if (ag_find_bytes(bytes->data, bytes->len, text)) return add_breaker(b, id, b->ids.n, err);
    const size_t max = bytes->len < n - 1 ? bytes->len : n - 1;
    for (size_t k = 1; k <= max; k++) {
        if (memcmp(bytes->data + bytes->len - k, text, k) != 0) continue;
        const size_t tail = b->ids.n;
        const ag_status st = ag_tokenizer_encode(t, text + k, n - k, 0, &b->ids, err);
        if (st == AG_FORMAT) continue; /* a text that begins inside a character has no tokens */
        AG_TRY(st);
        if (b->ids.n - tail > MAX_TAIL) b->ids.n = tail + MAX_TAIL;
        AG_TRY(add_breaker(b, id, tail, err));
    }
    return AG_OK;
}

static ag_status add_text(ag_dry_breakers *b, const ag_tokenizer *t, const char *text,
                          ag_error *err) {
    const size_t n = strlen(text);
    ag_token_bytes reader = {0};
    ag_text bytes = {0};
    if (!n || n > MAX_BYTES) {
        return AG_FAIL(err, INVALID, "breaker of DRY: it has %zu bytes; it must have 1 to %d", n,
                       MAX_BYTES);
    }
    ag_status st = ag_token_bytes_open(&reader, t, err);
    for (int32_t id = 0; st == AG_OK && id < ag_tokenizer_vocab_size(t); id++) {
        bytes.len = 0;
        st = ag_token_bytes_read(&reader, id, &bytes, err);
        if (st == AG_OK && bytes.len) st = add_token(b, t, id, &bytes, text, n, err);
    }
    ag_token_bytes_close(&reader);
    ag_text_free(&bytes);
    return st;
}

static int by_head(const void *pa, const void *pb) {
    const breaker *a = pa, *b = pb;
    if (a->head != b->head) return a->head < b->head ? -1 : 1;
    return a->n > b->n ? -1 : a->n < b->n;
}

ag_status ag_dry_breakers_create(const ag_tokenizer *t, const char *const *texts, size_t n,
                                 ag_dry_breakers **out, ag_error *err) {
    ag_dry_breakers *b = ag_calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return AG_FAIL(err, NOMEM, "breakers of DRY");
    if (!t && n) {
        ag_free(b);
        return AG_FAIL(err, INVALID, "breakers of DRY: there is no tokenizer; give no breakers");
    }
    atomic_init(&b->refs, 1);
    ag_status st = AG_OK;
    for (size_t i = 0; i < n && st == AG_OK; i++) st = add_text(b, t, texts[i], err);
    if (st != AG_OK) {
        ag_dry_breakers_destroy(b);
        return st;
    }
    if (b->n) qsort(b->list, b->n, sizeof *b->list, by_head);
    *out = b;
    return AG_OK;
}

/* ---- queries ---- */

/* Returns the index of the first breaker that begins with the token; b->n if there is none. */
static size_t first_of(const ag_dry_breakers *b, int32_t id) {
    size_t low = 0, high = b->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (b->list[middle].head < id) low = middle + 1;
        else high = middle;
    }
    return low < b->n && b->list[low].head == id ? low : b->n;
}

size_t ag_dry_breakers_match(const ag_dry_breakers *b, const int32_t *text, size_t i) {
    if (!b) return 0;
    for (size_t k = first_of(b, text[i]); k < b->n && b->list[k].head == text[i]; k++) {
        const breaker *x = &b->list[k];
        size_t n = 0;
        while (n < x->n && n < i && b->ids.data[x->tail + n] == text[i - 1 - n]) n++;
        if (n == x->n) return n + 1;
    }
    return 0;
}

bool ag_dry_breakers_has(const ag_dry_breakers *b, int32_t id) {
    for (size_t k = b ? first_of(b, id) : 0; b && k < b->n && b->list[k].head == id; k++)
        if (!b->list[k].n) return true;
    return false;
}
