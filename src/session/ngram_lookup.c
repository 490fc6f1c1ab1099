/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ngram_lookup.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <stdbool.h>
#include <string.h>

enum { N_SIZES = 2, MIN_TOKENS = 64 };
static const size_t sizes[N_SIZES] = {4, 2}; /* lengths of n-grams, longest first */

/* After a match breaks off, a new one is searched near its end: tokens may have been inserted,
 * deleted or replaced. */
enum { RESUME_BEFORE = 2, RESUME_AFTER = 24, RESUME_MIN = 4 };

/* Tokens are numbered from 1; token i is ids[i & mask]. */
struct ag_ngram_lookup {
    int32_t *ids;
    uint32_t *after[N_SIZES]; /* [capacity] by hash of the n-gram: the token after its last
                                 occurrence; 0: none */
    size_t capacity, mask;
    uint32_t n;      /* number of the newest token */
    uint32_t next;   /* token after the match; 0: no match */
    size_t match;    /* length of the match */
    uint32_t resume; /* token after a longer match that broke off; 0: none */
};

static size_t capacity_for(size_t n_tokens) {
    size_t n = MIN_TOKENS;
    while (n < n_tokens) n *= 2;
    return n;
}

size_t ag_ngram_lookup_bytes(size_t n_tokens) {
    return sizeof(ag_ngram_lookup) + capacity_for(n_tokens) * (1 + N_SIZES) * sizeof(uint32_t);
}

ag_status ag_ngram_lookup_create(size_t n_tokens, ag_ngram_lookup **out, ag_error *err) {
    *out = NULL;
    ag_ngram_lookup *l = ag_calloc(1, sizeof *l);
    if (!l) return AG_FAIL(err, NOMEM, "prompt lookup");
    l->capacity = capacity_for(n_tokens);
    l->mask = l->capacity - 1;
    l->ids = ag_calloc(l->capacity, sizeof *l->ids);
    bool complete = l->ids != NULL;
    for (size_t i = 0; i < N_SIZES; i++) {
        l->after[i] = ag_calloc(l->capacity, sizeof *l->after[i]);
        complete = complete && l->after[i];
    }
    if (!complete) {
        ag_ngram_lookup_destroy(l);
        return AG_FAIL(err, NOMEM, "prompt lookup of %zu tokens", n_tokens);
    }
    *out = l;
    return AG_OK;
}

void ag_ngram_lookup_destroy(ag_ngram_lookup *l) {
    if (!l) return;
    for (size_t i = 0; i < N_SIZES; i++) ag_free(l->after[i]);
    ag_free(l->ids);
    ag_free(l);
}

/* Removes all tokens. */
static void reset(ag_ngram_lookup *l) {
    for (size_t i = 0; i < N_SIZES; i++) memset(l->after[i], 0, l->capacity * sizeof **l->after);
    l->n = l->next = l->resume = 0;
    l->match = 0;
}

static bool is_stored(const ag_ngram_lookup *l, uint32_t i) {
    return i && i <= l->n && l->n - i < l->capacity;
}

static int32_t token(const ag_ngram_lookup *l, uint32_t i) { return l->ids[i & l->mask]; }

/* Returns how many tokens before number `next` equal those at the end of the text. */
static size_t match_before(const ag_ngram_lookup *l, uint32_t next) {
    size_t n = 0;
    if (!is_stored(l, next)) return 0;
    while (n < AG_NGRAM_LOOKUP_MATCH_MAX && is_stored(l, next - 1 - (uint32_t)n)) {
        const int32_t id = token(l, next - 1 - (uint32_t)n);
        if (id < 0 || id != token(l, l->n - (uint32_t)n)) break;
        n++;
    }
    return n;
}

/* Takes the match before `next` if it is longer than the current one. */
static void consider(ag_ngram_lookup *l, uint32_t next) {
    const size_t match = match_before(l, next);
    if (match <= l->match) return;
    l->match = match;
    l->next = next;
}

/* Hashes the newest `size` tokens. Returns false if there are fewer, or one is unknown. */
static bool slot_of(const ag_ngram_lookup *l, size_t size, size_t *slot) {
    uint64_t h = 0;
    if (l->n < size) return false;
    for (size_t i = 0; i < size; i++) {
        const int32_t id = token(l, l->n - (uint32_t)i);
        if (id < 0) return false;
        h = (h ^ (uint32_t)id) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    *slot = (size_t)(h >> 32) & l->mask;
    return true;
}

static void search_near_resume(ag_ngram_lookup *l) {
    if (!l->resume) return;
    for (uint32_t i = 0; i <= RESUME_BEFORE + RESUME_AFTER; i++) {
        const uint32_t next = l->resume + i;
        if (next > RESUME_BEFORE) consider(l, next - RESUME_BEFORE);
        if (l->match >= sizes[N_SIZES - 1]) return;
    }
}

/* Finds a match for the text with its newest token. */
static void find_match(ag_ngram_lookup *l) {
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t slot;
        if (i + 1 == N_SIZES) search_near_resume(l);
        if (l->match < sizes[i] && slot_of(l, sizes[i], &slot)) consider(l, l->after[i][slot]);
        if (l->match < sizes[N_SIZES - 1]) l->match = 0;
        if (l->match) return;
    }
    l->next = 0;
}

/* Extends the match by `id`, or ends it and returns false. */
static bool extends_match(ag_ngram_lookup *l, int32_t id) {
    if (id >= 0 && l->next && is_stored(l, l->next) && token(l, l->next) == id) {
        l->next++;
        if (l->match < AG_NGRAM_LOOKUP_MATCH_MAX) l->match++;
        return true;
    }
    if (l->match >= RESUME_MIN) l->resume = l->next;
    l->match = 0;
    return false;
}

void ag_ngram_lookup_push(ag_ngram_lookup *l, int32_t id) {
    if (l->n == UINT32_MAX) reset(l);
    const bool extended = extends_match(l, id);
    l->n++;
    l->ids[l->n & l->mask] = id;
    if (!extended || l->match < sizes[0]) find_match(l);
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t slot;
        if (slot_of(l, sizes[i], &slot)) l->after[i][slot] = l->n + 1;
    }
}

void ag_ngram_lookup_pop(ag_ngram_lookup *l, size_t n) {
    if (n >= l->n) {
        reset(l);
        return;
    }
    l->n -= (uint32_t)n;
    l->next = l->resume = 0;
    l->match = 0;
}

uint32_t ag_ngram_lookup_length(const ag_ngram_lookup *l) { return l->n; }

int32_t ag_ngram_lookup_token(const ag_ngram_lookup *l, uint32_t i) {
    return is_stored(l, i) ? token(l, i) : -1;
}

size_t ag_ngram_lookup_match(const ag_ngram_lookup *l) {
    return l->next && is_stored(l, l->next) ? l->match : 0;
}

size_t ag_ngram_lookup_draft(const ag_ngram_lookup *l, int32_t *ids, size_t n) {
    if (!ag_ngram_lookup_match(l)) return 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = l->next + (uint32_t)i;
        ids[i] = at <= l->n ? token(l, at) : ids[i - (l->n + 1 - l->next)];
        if (ids[i] < 0) return i;
    }
    return n;
}
