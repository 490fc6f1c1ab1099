/* SPDX-License-Identifier: Apache-2.0 */
/* The commands /stats and /kv. */
#include "chat.h"

#include "../support/statistics.h"
#include "../terminal/output.h"

#include <antigravity/expert.h>
#include <antigravity/process.h>
#include <inttypes.h>

static void show_last(const chat *c) {
    const ag_generate_stats *s = &c->last.stats;
    if (!c->last.seed) return;
    fprintf(stderr, "  last answer: %zu tokens read in %.2f s (%.1f tokens/s), %zu reused\n",
            s->n_prompt, s->prefill_s, per_second(s->n_prompt, s->prefill_s), c->last.n_reused);
    fprintf(stderr, "               %zu tokens made in %.2f s (%.1f tokens/s), ended by: %s\n",
            s->n_generated, s->decode_s,
            per_second(s->n_generated ? s->n_generated - 1 : 0, s->decode_s),
            ag_finish_detail(s->finish));
}

void chat_show_model(const chat *c) {
    char weights[32];
    fprintf(stderr, "  model %s: %s, weights %s, trained for %" PRIu32 " tokens\n", c->engine.dir,
            c->engine.info.architecture,
            format_bytes((double)ag_model_memory_bytes(c->engine.model), weights, sizeof weights),
            c->engine.info.max_positions);
}

void chat_show_stats(const chat *c) {
    char peak[32], weights[32];
    ag_memory_usage usage;
    ag_process_memory(&usage);
    fprintf(stderr, "  model %s%s%s\n", c->engine.dir, c->name ? ", saved as " : "",
            c->name ? c->name : "");
    show_last(c);
    fprintf(stderr,
            "  in all: %zu turn(s), %" PRIu64 " tokens read, %" PRIu64 " not read again, %" PRIu64
            " made\n",
            transcript_n_turns(&c->transcript), c->n_read, c->n_reused, c->n_made);
    fprintf(stderr, "  memory: peak %s, weights %s\n",
            format_bytes((double)usage.anonymous_peak, peak, sizeof peak),
            format_bytes((double)ag_model_memory_bytes(c->engine.model), weights, sizeof weights));
    chat_print_settings(c);
}

/* ---- /kv ---- */

/* Returns the number of slots of the head with positions below `position`. */
static uint32_t slots_below(const ag_kv_cache *cache, uint32_t layer, uint32_t head,
                            uint32_t position) {
    uint32_t low = 0, high = ag_kv_cache_n_slots(cache, layer, head);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ag_kv_cache_position(cache, layer, head, middle) < position) low = middle + 1;
        else high = middle;
    }
    return low;
}

typedef struct cached_range {
    uint32_t tokens; /* maximum over the heads */
    size_t bytes;    /* sum over the heads */
} cached_range;

static cached_range cached_between(const ag_kv_cache *cache, uint32_t first, uint32_t end) {
    const ag_kv_params *p = ag_kv_cache_params(cache);
    cached_range sum = {0};
    const ag_kv_layer *layer;
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(cache, l)); l++) {
        const size_t row = ag_dtype_row_bytes(p->k_type, layer->head_dim) +
                           ag_dtype_row_bytes(p->v_type, layer->head_dim) + sizeof(uint32_t);
        for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
            const uint32_t n = slots_below(cache, l, h, end) - slots_below(cache, l, h, first);
            sum.bytes += n * row;
            if (n > sum.tokens) sum.tokens = n;
        }
    }
    return sum;
}

uint32_t chat_n_cached(const chat *c, uint32_t first, uint32_t end) {
    return cached_between(ag_session_kv_cache(c->engine.session), first, end).tokens;
}

/* Prints the start of a text on one line. */
static void print_prefix(const char *text) {
    enum { MAX_CHARACTERS = 48 };
    char line[4 * MAX_CHARACTERS + 1];
    size_t n = 0, characters = 0;
    for (; text[n] && n < sizeof line - 1; n++) {
        if (((unsigned char)text[n] & 0xc0) != 0x80 && characters++ == MAX_CHARACTERS) break;
        line[n] = text[n] == '\n' ? ' ' : text[n];
    }
    line[n] = '\0';
    fprintf(stderr, "  %s%s\n", make_printable(line), text[n] ? "..." : "");
}

static void show_row(const chat *c, const char *name, uint32_t first, uint32_t end,
                     const char *text) {
    char bytes[32];
    const cached_range h = cached_between(ag_session_kv_cache(c->engine.session), first, end);
    fprintf(stderr, "  %6s %8" PRIu32 " %8" PRIu32 " %12s", name, end - first, h.tokens,
            format_bytes((double)h.bytes, bytes, sizeof bytes));
    print_prefix(text);
}

/* Finds the positions [first, end) of turn i. Returns false if it was not read. */
static bool find_turn_range(const chat *c, size_t i, uint32_t *first, uint32_t *end) {
    const transcript *t = &c->transcript;
    const size_t at = transcript_turn(t, i), next = transcript_turn(t, i + 1);
    const uint32_t position = ag_session_position(c->engine.session);
    *first = t->messages[at].first;
    *end = next < t->n ? t->messages[next].first : position;
    if (*end > position) *end = position;
    return *first < *end;
}

static void show_turns(const chat *c) {
    const transcript *t = &c->transcript;
    uint32_t first, end;
    char name[16];
    fprintf(stderr, "    turn   tokens   cached       memory\n");
    for (size_t i = 0; transcript_turn(t, i) < t->n; i++) {
        if (!find_turn_range(c, i, &first, &end)) continue;
        if (!i && first)
            show_row(c, "-", 0, first, t->system ? t->system : "start of the template");
        snprintf(name, sizeof name, "%zu", i + 1);
        show_row(c, name, first, end, transcript_content(t, transcript_turn(t, i)));
    }
}

void chat_show_kv(const chat *c) {
    ag_session *s = c->engine.session;
    const ag_kv_cache *cache = ag_session_kv_cache(s);
    const ag_eviction_stats *evicted = ag_session_evictions(s);
    const uint32_t position = ag_session_position(s), budget = ag_session_kv_budget(s);
    char used[32], capacity[32];
    fprintf(stderr, "  context of %" PRIu32 " tokens, policy %s", c->n_context,
            eviction_policy_name(&c->o.model.eviction));
    if (budget)
        fprintf(stderr, ": an eviction leaves %" PRIu32 " and never removes the first %" PRIu32,
                budget, ag_session_protected(s));
    fprintf(stderr, "\n  cached: %" PRIu32 " of %" PRIu32 " tokens, %s of %s\n",
            cached_between(cache, 0, UINT32_MAX).tokens, position,
            format_bytes((double)ag_kv_cache_memory_usage_bytes(cache), used, sizeof used),
            format_bytes((double)ag_kv_cache_capacity_bytes(cache), capacity, sizeof capacity));
    if (evicted->n_evictions)
        fprintf(stderr,
                "  evicted since the session began: %" PRIu64 " tokens in %" PRIu64
                " evictions, %.1f ms\n",
                evicted->n_tokens, evicted->n_evictions, evicted->seconds * 1e3);
    if (position) show_turns(c);
}
