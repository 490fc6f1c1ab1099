/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a session to a file and restores it. docs/reference/saved-cache-format.md describes the
 * format. */
#include "cache/saved_state.h"
#include "cache/spill_saved.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/checksummed_file.h"
#include "session/saved_fingerprint.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char MAGIC[8] = {'A', 'G', 'C', 'A', 'C', 'H', 'E', '\n'};
enum {
    VERSION = 1,
    HEADER_BYTES = 24,
    STATE_BYTES = 16,
    WITH_LOGITS = 1,
    WITH_SUMS = 2,
    WITH_STATE = 4,
    WITH_TURNS = 8,
    RAGGED = 16,
    WITH_SPILL = 32
};

/* Fields of a session besides its cache. */
typedef struct saved_state {
    uint32_t position, n_ids, flags;
    uint32_t base;                 /* with a state: position where its saved part begins */
    uint32_t n_protected, n_turns; /* with turns */
    uint64_t spill_bytes;          /* with spilled blocks */
    uint32_t scored;               /* importance includes the slots of lower positions */
} saved_state;

static size_t n_heads(const ag_session *s) {
    return ag_kv_totals_of(ag_kv_cache_params(s->cache)).heads;
}

/* Returns the size of the file for these numbers of slots. */
static uint64_t file_bytes(ag_session *s, size_t fingerprint_bytes, const saved_state *state,
                           const uint32_t *n_slots) {
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    uint64_t known = HEADER_BYTES + fingerprint_bytes + AG_CHECKSUM_BYTES + STATE_BYTES +
                     n_heads(s) * sizeof(uint32_t) + (uint64_t)state->n_ids * sizeof(int32_t) +
                     AG_CHECKSUM_BYTES;
    if (state->flags & WITH_LOGITS) known += (uint64_t)s->model->info.n_vocab * sizeof(float);
    uint64_t cache = ag_kv_cache_saved_bytes(kv, n_slots);
    uint64_t sums = ag_score_sums_saved_bytes(ag_cache_manager_sums(s->manager), kv, n_slots);
    uint64_t layers = ag_layer_state_saved_bytes(s->state, state->base, state->position);
    if (cache > UINT64_MAX / 4 || sums > UINT64_MAX / 4 || layers > UINT64_MAX / 4)
        return UINT64_MAX;
    if (s->state) known += sizeof(uint32_t);
    if (state->flags & WITH_TURNS) known += (2 + (uint64_t)state->n_turns) * sizeof(uint32_t);
    if (state->spill_bytes > UINT64_MAX / 8) return UINT64_MAX;
    if (state->flags & WITH_SPILL) known += sizeof state->spill_bytes + state->spill_bytes;
    return known + cache + sums + layers;
}

/* ---- saving ---- */

static ag_status put_header(ag_checksummed_writer *w, const ag_saved_fingerprint *fingerprint,
                            uint64_t n_file, ag_error *err) {
    unsigned char header[HEADER_BYTES], seal[AG_CHECKSUM_BYTES];
    memcpy(header, MAGIC, sizeof MAGIC);
    ag_put_number(header + 8, VERSION, 4);
    ag_put_number(header + 12, fingerprint->len, 4);
    ag_put_number(header + 16, n_file, 8);
    AG_TRY(ag_checksummed_put(w, header, sizeof header, err));
    AG_TRY(ag_checksummed_put(w, fingerprint->text, fingerprint->len, err));
    ag_put_number(seal, ag_checksum_value(&w->sum), AG_CHECKSUM_BYTES);
    return ag_checksummed_put(w, seal, sizeof seal, err);
}

static ag_status put_numbers(ag_checksummed_writer *w, const uint32_t *numbers, size_t n,
                             ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[4];
        ag_put_number(bytes, numbers[i], 4);
        AG_TRY(ag_checksummed_put(w, bytes, sizeof bytes, err));
    }
    return AG_OK;
}

static ag_status put_turns(ag_checksummed_writer *w, const ag_session *s, const saved_state *state,
                           ag_error *err) {
    const uint32_t numbers[] = {state->n_protected, state->n_turns};
    AG_TRY(put_numbers(w, numbers, 2, err));
    return put_numbers(w, ag_cache_manager_turns(s->manager)->first, state->n_turns, err);
}

/* Writes header, fingerprint, counts, ids, logits, cache, sums, states and spilled blocks. */
static ag_status put_all(ag_checksummed_writer *w, ag_session *s,
                         const ag_saved_fingerprint *fingerprint, const saved_state *state,
                         const uint32_t *n_slots, const int32_t *ids, ag_error *err) {
    const uint32_t numbers[] = {state->position, state->n_ids, state->flags, state->scored};
    AG_TRY(put_header(w, fingerprint, file_bytes(s, fingerprint->len, state, n_slots), err));
    AG_TRY(put_numbers(w, numbers, sizeof numbers / sizeof numbers[0], err));
    AG_TRY(put_numbers(w, n_slots, n_heads(s), err));
    if (s->state) AG_TRY(put_numbers(w, &state->base, 1, err));
    if (state->flags & WITH_TURNS) AG_TRY(put_turns(w, s, state, err));
    if (state->flags & WITH_SPILL) {
        const uint32_t halves[] = {(uint32_t)state->spill_bytes,
                                   (uint32_t)(state->spill_bytes >> 32)};
        AG_TRY(put_numbers(w, halves, 2, err));
    }
    AG_TRY(ag_checksummed_put(w, ids, state->n_ids * sizeof *ids, err));
    if (state->flags & WITH_LOGITS) {
        size_t n = s->model->info.n_vocab * sizeof *s->logits.host;
        AG_TRY(ag_checksummed_put(w, s->logits.host, n, err));
    }
    AG_TRY(ag_kv_cache_save(s->cache, ag_checksummed_put, w, err));
    AG_TRY(ag_score_sums_save(ag_cache_manager_sums(s->manager), s->cache, ag_checksummed_put, w,
                              err));
    AG_TRY(ag_layer_state_save(s->state, ag_checksummed_put, w, err));
    return ag_spill_save(ag_cache_manager_spill(s->manager), ag_checksummed_put, w, err);
}

/* Sessions without turns keep the older format. */
static bool has_turns(const ag_session *s) {
    const ag_turns *turns = ag_cache_manager_turns(s->manager);
    return turns && (turns->n || ag_session_protected(s) != s->params.eviction.protected_prefix);
}

static saved_state state_of(ag_session *s, size_t n_ids) {
    const ag_score_sums *sums = ag_cache_manager_sums(s->manager);
    const ag_spill *spill = ag_cache_manager_spill(s->manager);
    const bool turns = has_turns(s), spilled = !ag_spill_is_empty(spill);
    return (saved_state){
        .position = s->position,
        .n_ids = (uint32_t)n_ids,
        .flags = (s->logits.location == AG_LOGITS_ON_HOST ? WITH_LOGITS : 0u) |
                 (sums ? WITH_SUMS : 0u) | (s->state ? WITH_STATE : 0u) |
                 (turns ? WITH_TURNS : 0u) | (ag_session_is_ragged(s) ? RAGGED : 0u) |
                 (spilled ? WITH_SPILL : 0u),
        .spill_bytes = spilled ? ag_spill_saved_bytes(spill) : 0,
        .n_protected = ag_session_protected(s),
        .n_turns = turns ? (uint32_t)ag_cache_manager_turns(s->manager)->n : 0,
        .base = ag_layer_state_base(s->state),
        .scored = ag_score_sums_position(sums),
    };
}

static uint32_t *count_slots(ag_session *s, ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    uint32_t *n_slots = ag_calloc(n_heads(s), sizeof *n_slots), *next = n_slots;
    if (!n_slots) AG_FAIL(err, NOMEM, "lengths of %zu heads", n_heads(s));
    for (uint32_t l = 0; n_slots && l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < kv->layers[l].n_kv_heads; h++) {
            *next++ = ag_kv_cache_n_slots(s->cache, l, h);
        }
    }
    return n_slots;
}

ag_status ag_session_save_with_hooks(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                                     const int32_t *ids, size_t n_ids, const ag_io_hooks *hooks,
                                     ag_error *err) {
    if (n_ids && n_ids != s->position) {
        return AG_FAIL(
            err, INVALID,
            "%s: n_ids is %zu: it must be 0 or %u, the tokens that the session has consumed", path,
            n_ids, s->position);
    }
    AG_TRY(ag_session_settle(s, err));
    AG_TRY(ag_session_fetch_logits(s, err));
    ag_saved_fingerprint fingerprint;
    AG_TRY(ag_saved_fingerprint_of(s, tokenizer, &fingerprint, err));
    uint32_t *n_slots = count_slots(s, err);
    if (!n_slots) return AG_NOMEM;
    const saved_state state = state_of(s, n_ids);
    ag_checksummed_writer w = {.hooks = hooks};
    ag_status st = ag_checksummed_writer_open(&w, path, err);
    if (st == AG_OK) st = put_all(&w, s, &fingerprint, &state, n_slots, ids, err);
    if (st == AG_OK) st = ag_checksummed_writer_commit(&w, err);
    ag_checksummed_writer_close(&w);
    ag_free(n_slots);
    return st;
}

ag_status ag_session_save(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                          const int32_t *ids, size_t n_ids, ag_error *err) {
    return ag_session_save_with_hooks(s, path, tokenizer, ids, n_ids, NULL, err);
}

/* ---- restoring ---- */

/* Content of a file, until it is completely checked. */
typedef struct restoration {
    ag_session *session; /* borrowed; changed only by commit_restoration() */
    ag_checksummed_reader file;
    saved_state state;
    uint32_t *n_slots;   /* owned, as are all below */
    int32_t *ids;        /* NULL: none */
    float *logits;       /* NULL: none */
    ag_kv_cache *cache;  /* receives the slots */
    ag_score_sums *sums; /* NULL: none */
    ag_turns turns;
    ag_spill *spill;        /* NULL: no spilled blocks */
    ag_layer_state *layers; /* NULL: none */
} restoration;

static ag_status check_header(restoration *r, const unsigned char *header, ag_error *err) {
    if (memcmp(header, MAGIC, sizeof MAGIC) != 0)
        return AG_FAIL(err, FORMAT, "%s: not a saved cache", r->file.path);
    uint32_t version = (uint32_t)ag_get_number(header + 8, 4);
    if (version != VERSION) {
        return AG_FAIL(err, UNSUPPORTED,
                       "%s: unsupported version %u of a saved cache; this library reads version %d",
                       r->file.path, version, VERSION);
    }
    uint64_t fingerprint_bytes = ag_get_number(header + 12, 4);
    if (fingerprint_bytes >= AG_FINGERPRINT_BYTES) {
        return AG_FAIL(err, FORMAT,
                       "%s: damaged: %" PRIu64 " bytes of fingerprint, at most %d are possible",
                       r->file.path, fingerprint_bytes, AG_FINGERPRINT_BYTES - 1);
    }
    uint64_t n_file = ag_get_number(header + 16, 8);
    if (n_file == r->file.size) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: damaged: %" PRIu64 " bytes, it was saved with %" PRIu64,
                   r->file.path, r->file.size, n_file);
}

static ag_status get_fingerprint(restoration *r, ag_saved_fingerprint *fingerprint, ag_error *err) {
    unsigned char header[HEADER_BYTES], seal[AG_CHECKSUM_BYTES];
    if (r->file.size < HEADER_BYTES + AG_CHECKSUM_BYTES)
        return AG_FAIL(err, FORMAT, "%s: not a saved cache: only %" PRIu64 " bytes", r->file.path,
                       r->file.size);
    AG_TRY(ag_checksummed_get(&r->file, header, sizeof header, err));
    AG_TRY(check_header(r, header, err));
    fingerprint->len = (size_t)ag_get_number(header + 12, 4);
    AG_TRY(ag_checksummed_get(&r->file, fingerprint->text, fingerprint->len, err));
    fingerprint->text[fingerprint->len] = '\0';
    uint64_t expected = ag_checksum_value(&r->file.sum);
    AG_TRY(ag_checksummed_get(&r->file, seal, sizeof seal, err));
    if (ag_get_number(seal, AG_CHECKSUM_BYTES) == expected) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: damaged: the checksum of its header is wrong", r->file.path);
}

static ag_status get_numbers(restoration *r, uint32_t *numbers, size_t n, ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[4];
        AG_TRY(ag_checksummed_get(&r->file, bytes, sizeof bytes, err));
        numbers[i] = (uint32_t)ag_get_number(bytes, 4);
    }
    return AG_OK;
}

static ag_status check_state(const restoration *r, ag_error *err) {
    const ag_session *s = r->session;
    const saved_state *found = &r->state;
    uint32_t max = s->manager ? INT32_MAX : s->model->info.max_positions;
    const uint32_t expected =
        (ag_cache_manager_sums(s->manager) ? WITH_SUMS : 0u) | (s->state ? WITH_STATE : 0u);
    if (found->position > max) {
        return AG_FAIL(err, FORMAT, "%s: damaged: position %u of at most %u", r->file.path,
                       found->position, max);
    }
    if (found->n_ids && found->n_ids != found->position) {
        return AG_FAIL(err, FORMAT, "%s: damaged: %u ids of %u tokens", r->file.path, found->n_ids,
                       found->position);
    }
    const uint32_t managed = s->manager ? WITH_TURNS | WITH_SPILL : 0u;
    const uint32_t optional = WITH_LOGITS | RAGGED | managed;
    if ((found->flags & ~optional) != expected || found->scored > found->position) {
        return AG_FAIL(err, FORMAT, "%s: damaged: flags %#x, scored up to position %u of %u",
                       r->file.path, found->flags, found->scored, found->position);
    }
    return AG_OK;
}

static ag_status check_slots(const restoration *r, ag_error *err) {
    const ag_kv_cache *cache = r->session->cache;
    const uint32_t *n = r->n_slots;
    for (uint32_t l = 0; ag_kv_cache_layer(cache, l); l++) {
        const uint32_t max = ag_kv_cache_max_slots(cache, l);
        for (uint32_t h = 0; h < ag_kv_cache_layer(cache, l)->n_kv_heads; h++, n++) {
            if (*n > r->state.position) {
                return AG_FAIL(err, FORMAT, "%s: damaged: %u slots of %u tokens", r->file.path, *n,
                               r->state.position);
            }
            if (*n > max) {
                const bool bounded = max != ag_kv_cache_params(cache)->max_slots;
                return AG_FAIL(err, LIMIT, "%s: saved with %u slots, this session has %u (%s)",
                               r->file.path, *n, max, bounded ? "prefill_chunk" : "max_seq_len");
            }
        }
    }
    return AG_OK;
}

static ag_status get_n_turns(restoration *r, ag_error *err) {
    const uint32_t max = ag_kv_cache_params(r->session->cache)->n_protected;
    uint32_t numbers[2];
    AG_TRY(get_numbers(r, numbers, 2, err));
    r->state.n_protected = numbers[0];
    r->state.n_turns = numbers[1];
    if (numbers[0] <= max && numbers[1] <= r->state.position + 1) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: damaged: %u of %u tokens protected, %u turns of %u tokens",
                   r->file.path, numbers[0], max, numbers[1], r->state.position);
}

/* Reads all counts. Nothing of a size from the file is allocated before the file's size is checked.
 */
static ag_status get_sizes(restoration *r, size_t fingerprint_bytes, ag_error *err) {
    ag_session *s = r->session;
    uint32_t numbers[4];
    AG_TRY(get_numbers(r, numbers, 4, err));
    r->state = (saved_state){
        .position = numbers[0], .n_ids = numbers[1], .flags = numbers[2], .scored = numbers[3]};
    AG_TRY(check_state(r, err));
    r->n_slots = ag_calloc(n_heads(s), sizeof *r->n_slots);
    if (!r->n_slots) return AG_FAIL(err, NOMEM, "lengths of %zu heads", n_heads(s));
    AG_TRY(get_numbers(r, r->n_slots, n_heads(s), err));
    AG_TRY(check_slots(r, err));
    if (s->state) AG_TRY(get_numbers(r, &r->state.base, 1, err));
    r->state.n_protected = ag_kv_cache_params(s->cache)->n_protected;
    if (r->state.flags & WITH_TURNS) AG_TRY(get_n_turns(r, err));
    if (r->state.flags & WITH_SPILL) {
        AG_TRY(get_numbers(r, numbers, 2, err));
        r->state.spill_bytes = (uint64_t)numbers[1] << 32 | numbers[0];
    }
    uint64_t expected = file_bytes(s, fingerprint_bytes, &r->state, r->n_slots);
    if (expected == r->file.size) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: damaged: %" PRIu64 " bytes, its slots take %" PRIu64,
                   r->file.path, r->file.size, expected);
}

static ag_status get_ids(restoration *r, ag_error *err) {
    uint32_t n = r->state.n_ids, n_vocab = r->session->model->info.n_vocab;
    if (!n) return AG_OK;
    r->ids = ag_calloc(n, sizeof *r->ids);
    if (!r->ids) return AG_FAIL(err, NOMEM, "list of %u ids", n);
    AG_TRY(ag_checksummed_get(&r->file, r->ids, n * sizeof *r->ids, err));
    for (uint32_t i = 0; i < n; i++) {
        if (r->ids[i] < 0 || (uint32_t)r->ids[i] >= n_vocab) {
            return AG_FAIL(err, FORMAT, "%s: damaged: id %d, the vocabulary has %u", r->file.path,
                           r->ids[i], n_vocab);
        }
    }
    return AG_OK;
}

static ag_status get_turns(restoration *r, ag_error *err) {
    for (uint32_t i = 0; i < r->state.n_turns; i++) {
        uint32_t first;
        const size_t n = r->turns.n;
        AG_TRY(get_numbers(r, &first, 1, err));
        if (first > r->state.position || (n && first <= r->turns.first[n - 1])) {
            return AG_FAIL(err, FORMAT, "%s: damaged: turn %u of %u begins at position %u of %u",
                           r->file.path, i, r->state.n_turns, first, r->state.position);
        }
        AG_TRY(ag_turns_add(&r->turns, first, err));
    }
    return AG_OK;
}

static ag_status get_logits(restoration *r, ag_error *err) {
    if (!(r->state.flags & WITH_LOGITS)) return AG_OK;
    size_t bytes = r->session->model->info.n_vocab * sizeof *r->logits;
    r->logits = ag_malloc(bytes);
    if (!r->logits) return AG_FAIL(err, NOMEM, "logits of %zu bytes", bytes);
    AG_TRY(ag_checksummed_get(&r->file, r->logits, bytes, err));
    for (uint32_t i = 0; i < r->session->model->info.n_vocab; i++) {
        if (!isnan(r->logits[i]) && r->logits[i] != INFINITY) continue;
        return AG_FAIL(err, FORMAT, "%s: damaged: logit %u is %g", r->file.path, i,
                       (double)r->logits[i]);
    }
    return AG_OK;
}

/* Reads cache, sums, states and spilled blocks into new objects. */
static ag_status get_cache(restoration *r, ag_error *err) {
    ag_session *s = r->session;
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    AG_TRY(ag_kv_cache_create(s->model->backend, kv, &r->cache, err));
    AG_TRY(ag_kv_cache_load(r->cache, r->n_slots, r->state.position, r->file.path,
                            ag_checksummed_get, &r->file, err));
    if (s->manager) {
        AG_TRY(ag_score_sums_create(s->params.eviction.policy, r->cache, &r->sums, err));
        ag_score_sums_set_position(r->sums, r->state.scored);
        AG_TRY(ag_score_sums_load(r->sums, r->cache, ag_checksummed_get, &r->file, err));
    }
    AG_TRY(ag_session_make_state(s, &r->layers, err));
    AG_TRY(ag_layer_state_load(r->layers, r->state.base, r->state.position, r->file.path,
                               ag_checksummed_get, &r->file, err));
    const ag_spill *spill = ag_cache_manager_spill(s->manager);
    if (spill) AG_TRY(ag_spill_create_sibling(spill, &r->spill, err));
    return ag_spill_load(r->spill, r->cache, r->state.spill_bytes, r->state.position, r->file.path,
                         ag_checksummed_get, &r->file, err);
}

static ag_status get_all(restoration *r, const ag_tokenizer *tokenizer, ag_error *err) {
    ag_saved_fingerprint saved, here;
    AG_TRY(get_fingerprint(r, &saved, err));
    AG_TRY(ag_saved_fingerprint_of(r->session, tokenizer, &here, err));
    AG_TRY(ag_saved_fingerprint_compare(&saved, &here, r->file.path, err));
    AG_TRY(get_sizes(r, saved.len, err));
    AG_TRY(get_turns(r, err));
    AG_TRY(get_ids(r, err));
    AG_TRY(get_logits(r, err));
    AG_TRY(get_cache(r, err));
    return ag_checksummed_reader_check(&r->file, err);
}

/* Moves the content to the session. Cannot fail. */
static void commit_restoration(restoration *r, ag_ids *ids) {
    ag_session *s = r->session;
    ag_kv_cache_swap(s->cache, r->cache);
    ag_kv_cache_protect(s->cache, r->state.n_protected);
    ag_cache_manager_restore(s->manager, &r->sums, &r->turns, &r->spill);
    s->params.eviction.spill = ag_spill_params_of(ag_cache_manager_spill(s->manager));
    ag_layer_state *layers = s->state;
    s->state = r->layers;
    r->layers = layers;
    s->position = r->state.position;
    s->is_ragged = (r->state.flags & RAGGED) != 0;
    ag_cache_manager_set_ragged(s->manager, s->is_ragged);
    s->prompt_remaining = 0;
    s->logits.location = r->logits ? AG_LOGITS_ON_HOST : AG_LOGITS_ABSENT;
    s->logits.top.known = false;
    if (r->logits) memcpy(s->logits.host, r->logits, s->model->info.n_vocab * sizeof *r->logits);
    if (!ids) return;
    ag_ids_free(ids);
    *ids = (ag_ids){.data = r->ids, .n = r->state.n_ids, .cap = r->state.n_ids};
    r->ids = NULL;
}

ag_status ag_session_restore(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                             ag_ids *ids, ag_error *err) {
    return ag_session_restore_with_hooks(s, path, tokenizer, ids, NULL, err);
}

ag_status ag_session_restore_with_hooks(ag_session *s, const char *path,
                                        const ag_tokenizer *tokenizer, ag_ids *ids,
                                        const ag_io_hooks *hooks, ag_error *err) {
    restoration r = {.session = s, .file = {.fd = -1, .hooks = hooks}};
    ag_status st = ag_checksummed_reader_open(&r.file, path, err);
    if (st == AG_OK) st = get_all(&r, tokenizer, err);
    if (st == AG_OK) commit_restoration(&r, ids);
    ag_checksummed_reader_close(&r.file);
    ag_score_sums_destroy(r.sums);
    ag_spill_destroy(r.spill);
    ag_turns_release(&r.turns);
    ag_layer_state_destroy(r.layers);
    ag_kv_cache_destroy(r.cache);
    ag_free(r.logits);
    ag_free(r.ids);
    ag_free(r.n_slots);
    return st;
}
