/* SPDX-License-Identifier: Apache-2.0 */
#include "text/dry.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/dry_breakers.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct ag_dry {
    float multiplier, base;
    uint32_t allowed_length;
    ag_dry_breakers *breakers; /* a reference; NULL: none */
    int32_t *ring;             /* [size] the newest tokens */
    uint32_t size, n, at;      /* at: where the next token goes */
    int32_t *text;             /* [size] the same, newest first */
    uint32_t *lengths;         /* [size] of repetitions that end at a token of `text` */
    uint32_t *longest;         /* [n_vocab] of a repetition that the token would continue; 0 */
};

static bool is_on(const ag_sampler_params *p) { return p->dry_multiplier != 0 && p->dry_window; }

size_t ag_dry_bytes(const ag_sampler_params *p, size_t n_vocab) {
    if (!is_on(p)) return 0;
    return sizeof(ag_dry) + (3 * (size_t)p->dry_window + n_vocab) * sizeof(int32_t);
}

ag_status ag_dry_create(const ag_sampler_params *p, size_t n_vocab, ag_dry **out, ag_error *err) {
    *out = NULL;
    if (!is_on(p)) return AG_OK;
    ag_dry *d = ag_calloc(1, sizeof *d);
    if (!d) return AG_FAIL(err, NOMEM, "penalty of repetitions");
    d->multiplier = p->dry_multiplier;
    d->base = p->dry_base;
    d->allowed_length = p->dry_allowed_length;
    d->size = p->dry_window;
    d->breakers = ag_dry_breakers_retain(p->dry_breakers);
    d->ring = ag_calloc(d->size, sizeof *d->ring);
    d->text = ag_calloc(d->size, sizeof *d->text);
    d->lengths = ag_calloc(d->size, sizeof *d->lengths);
    d->longest = ag_calloc(n_vocab, sizeof *d->longest);
    if (!d->ring || !d->text || !d->lengths || !d->longest) {
        ag_dry_destroy(d);
        return AG_FAIL(err, NOMEM, "penalty of repetitions in %u tokens", p->dry_window);
    }
    *out = d;
    return AG_OK;
}

void ag_dry_destroy(ag_dry *d) {
    if (!d) return;
    ag_dry_breakers_destroy(d->breakers);
    ag_free(d->ring);
    ag_free(d->text);
    ag_free(d->lengths);
    ag_free(d->longest);
    ag_free(d);
}

void ag_dry_accept(ag_dry *d, int32_t id) {
    if (!d) return;
    d->ring[d->at] = id;
    d->at = (d->at + 1) % d->size;
    if (d->n < d->size) d->n++;
}

void ag_dry_reset(ag_dry *d) {
    if (d) d->n = d->at = 0;
}

/* Returns how many of the newest tokens follow the newest breaker, all if there is none. */
static uint32_t length_limit(const ag_dry *d) {
    for (uint32_t i = 0; i < d->n; i++) {
        const size_t len = ag_dry_breakers_match(d->breakers, d->text, i);
        if (len) return i + 1 - (uint32_t)len;
    }
    return d->n;
}

/* Sets lengths[i] to the number of tokens from text[i] on that equal those from text[0] on (the
 * Z function). lengths[0] is 0. */
static void match_suffixes(const int32_t *text, uint32_t n, uint32_t *lengths) {
    uint32_t begin = 0, end = 0; /* text[begin..end) equals the start of the text */
    lengths[0] = 0;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t k = 0;
        if (i < end) k = lengths[i - begin] < end - i ? lengths[i - begin] : end - i;
        while (i + k < n && text[k] == text[i + k]) k++;
        lengths[i] = k;
        if (i + k > end) {
            begin = i;
            end = i + k;
        }
    }
}

static float penalty_of(const ag_dry *d, uint32_t length) {
    const float exponent = (float)(length - d->allowed_length),
                max = d->base > 1.000001f ? logf(FLT_MAX) / logf(d->base) : exponent;
    return d->multiplier * powf(d->base, exponent < max ? exponent : floorf(max));
}

void ag_dry_penalise(ag_dry *d, float *logits) {
    if (!d || d->n <= d->allowed_length) return;
    for (uint32_t i = 0; i < d->n; i++) d->text[i] = d->ring[(d->at + d->size - 1 - i) % d->size];
    const uint32_t limit = length_limit(d);
    if (limit < d->allowed_length) return;
    match_suffixes(d->text, d->n, d->lengths);
    for (uint32_t i = 1; i < d->n; i++) {
        const uint32_t length = d->lengths[i] < limit ? d->lengths[i] : limit;
        uint32_t *longest = &d->longest[d->text[i - 1]];
        if (length >= d->allowed_length && length > *longest) *longest = length;
    }
    for (uint32_t i = 1; i < d->n; i++) {
        const int32_t id = d->text[i - 1];
        if (!d->longest[id]) continue;
        if (!ag_dry_breakers_has(d->breakers, id)) logits[id] -= penalty_of(d, d->longest[id]);
        d->longest[id] = 0;
    }
}
