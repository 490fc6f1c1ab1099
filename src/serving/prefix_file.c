/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/prefix_file.h"

#include "core/alloc.h"
#include "core/checksum.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/checksummed_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    N_NUMBERS = 10,
    HEADER_BYTES = 8 + 4 * N_NUMBERS,
    VERSION = 1,
    NO_SCOPE = -1,
};
static const char magic[8] = "AGPREFIX";

void ag_prefix_file_destroy(ag_prefix_file *f) {
    if (!f) return;
    ag_ids_free(&f->ids);
    ag_free(f->model);
    ag_free(f->scope);
    ag_free(f->policy);
    ag_free(f);
}

/* ---- identity ---- */

ag_prefix_file_key ag_prefix_file_key_of(const ag_session_params *p) {
    return (ag_prefix_file_key){p->max_seq_len, p->prefill_chunk, (uint32_t)p->k_type,
                                (uint32_t)p->v_type, (uint32_t)p->k_rotation};
}

bool ag_prefix_file_same_key(const ag_prefix_file_key *a, const ag_prefix_file_key *b) {
    return !memcmp(a, b, sizeof *a);
}

char *ag_prefix_file_policy(const ag_session_params *p, bool *unknown) {
    const ag_eviction_params *e = &p->eviction;
    char text[320];
    *unknown = e->memory.threshold_bytes > 0;
    if (!e->policy || *unknown) return NULL;
    *unknown = e->policy_params || e->head_shares || e->on_eviction ||
               ag_eviction_policy_find(e->policy->name) != e->policy;
    if (*unknown) return NULL;
    snprintf(text, sizeof text, "%.64s %u %llu %.9g %u %u %u %u %d %u %u %d%s%s%s", e->policy->name,
             e->budget_tokens, (unsigned long long)e->budget_bytes, (double)e->budget_ratio,
             e->protected_prefix, e->recent, e->slack, e->window, (int)e->prefill, e->snapkv_window,
             e->snapkv_kernel, (int)e->snapkv_pool,
             e->head_budget == AG_HEAD_BUDGET_EVEN ? "" : " ",
             e->head_budget == AG_HEAD_BUDGET_EVEN ? "" : ag_head_budget_name(e->head_budget),
             e->spill && e->spill->path ? " spill" : "");
    char *copy = ag_strdup(text);
    *unknown = !copy;
    return copy;
}

static void name_file(ag_prefix_file *f) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    ag_checksum_add(&sum, f->model, strlen(f->model) + 1);
    if (f->scope) ag_checksum_add(&sum, f->scope, strlen(f->scope) + 1);
    if (f->policy) ag_checksum_add(&sum, f->policy, strlen(f->policy) + 1);
    ag_checksum_add(&sum, &f->key, sizeof f->key);
    ag_checksum_add(&sum, f->ids.data, f->ids.n * sizeof *f->ids.data);
    snprintf(f->name, sizeof f->name, "%016" PRIx64, ag_checksum_value(&sum));
}

ag_prefix_file *ag_prefix_file_create(const ag_prefix_entry *k) {
    ag_prefix_file *f = ag_calloc(1, sizeof *f);
    if (!f) return NULL;
    bool unknown;
    f->key = ag_prefix_file_key_of(&k->params);
    f->policy = ag_prefix_file_policy(&k->params, &unknown);
    f->has_evicted = k->has_evicted;
    f->model = ag_strdup(k->model->name);
    f->scope = k->scope ? ag_strdup(k->scope) : NULL;
    f->ids.data = ag_malloc(k->ids.n * sizeof *f->ids.data);
    if (!f->model || (k->scope && !f->scope) || !f->ids.data || unknown) {
        ag_prefix_file_destroy(f);
        return NULL;
    }
    f->ids.n = f->ids.cap = k->ids.n;
    memcpy(f->ids.data, k->ids.data, k->ids.n * sizeof *f->ids.data);
    name_file(f);
    return f;
}

/* ---- writing ---- */

/* Format: magic, N_NUMBERS numbers of 4 bytes, model, scope, '+' or '-' (evicted) with policy, ids.
 */
static ag_status put_metadata(ag_checksummed_writer *w, const ag_prefix_file *f, ag_error *err) {
    const uint32_t scope = f->scope ? (uint32_t)strlen(f->scope) : (uint32_t)NO_SCOPE;
    /* A replay can evict tokens without a policy: the policy is written as "" then. */
    const char *policy = f->policy ? f->policy : f->has_evicted ? "" : NULL;
    const uint32_t numbers[N_NUMBERS] = {VERSION,
                                         f->key.max_seq_len,
                                         f->key.prefill_chunk,
                                         f->key.k_type,
                                         f->key.v_type,
                                         f->key.k_rotation,
                                         (uint32_t)strlen(f->model),
                                         scope,
                                         (uint32_t)f->ids.n,
                                         policy ? 1 + (uint32_t)strlen(policy) : 0};
    unsigned char header[HEADER_BYTES];
    memcpy(header, magic, sizeof magic);
    for (int i = 0; i < N_NUMBERS; i++) ag_put_number(header + 8 + 4 * i, numbers[i], 4);
    AG_TRY(ag_checksummed_put(w, header, sizeof header, err));
    AG_TRY(ag_checksummed_put(w, f->model, strlen(f->model), err));
    if (f->scope) AG_TRY(ag_checksummed_put(w, f->scope, strlen(f->scope), err));
    if (policy) {
        AG_TRY(ag_checksummed_put(w, f->has_evicted ? "+" : "-", 1, err));
        AG_TRY(ag_checksummed_put(w, policy, strlen(policy), err));
    }
    for (size_t i = 0; i < f->ids.n; i++) {
        unsigned char id[4];
        ag_put_number(id, (uint32_t)f->ids.data[i], 4);
        AG_TRY(ag_checksummed_put(w, id, sizeof id, err));
    }
    return AG_OK;
}

ag_status ag_prefix_file_write(const ag_prefix_file *f, const char *path, ag_error *err) {
    ag_checksummed_writer w = {.hooks = NULL};
    ag_status st = ag_checksummed_writer_open(&w, path, err);
    if (st == AG_OK) st = put_metadata(&w, f, err);
    if (st == AG_OK) st = ag_checksummed_writer_commit(&w, err);
    ag_checksummed_writer_close(&w);
    return st;
}

/* ---- reading ---- */

static ag_status get_text(ag_checksummed_reader *r, uint32_t n, char **out, ag_error *err) {
    *out = ag_calloc(1, (size_t)n + 1);
    if (!*out) return AG_FAIL(err, NOMEM, "text of %u bytes", n);
    return ag_checksummed_get(r, *out, n, err);
}

static ag_status get_metadata(ag_checksummed_reader *r, ag_prefix_file *f, ag_error *err) {
    unsigned char header[HEADER_BYTES];
    uint32_t n[N_NUMBERS];
    AG_TRY(ag_checksummed_get(r, header, sizeof header, err));
    for (int i = 0; i < N_NUMBERS; i++) n[i] = (uint32_t)ag_get_number(header + 8 + 4 * i, 4);
    const bool scoped = n[7] != (uint32_t)NO_SCOPE;
    const uint64_t bytes = HEADER_BYTES + (uint64_t)n[6] + (scoped ? n[7] : 0) + n[9] +
                           4 * (uint64_t)n[8] + AG_CHECKSUM_BYTES;
    if (memcmp(header, magic, sizeof magic) != 0 || n[0] != VERSION || bytes != r->size)
        return AG_FAIL(err, FORMAT, "%s: damaged, or written by another version", r->path);
    f->key = (ag_prefix_file_key){n[1], n[2], n[3], n[4], n[5]};
    AG_TRY(get_text(r, n[6], &f->model, err));
    if (scoped) AG_TRY(get_text(r, n[7], &f->scope, err));
    if (n[9]) {
        char evicted;
        AG_TRY(ag_checksummed_get(r, &evicted, 1, err));
        f->has_evicted = evicted == '+';
        if (n[9] > 1) AG_TRY(get_text(r, n[9] - 1, &f->policy, err));
    }
    f->ids = (ag_ids){.data = ag_calloc((size_t)n[8] + 1, sizeof *f->ids.data), .cap = n[8]};
    if (!f->ids.data) return AG_FAIL(err, NOMEM, "list of %u ids", n[8]);
    for (; f->ids.n < n[8]; f->ids.n++) {
        unsigned char id[4];
        AG_TRY(ag_checksummed_get(r, id, sizeof id, err));
        f->ids.data[f->ids.n] = (int32_t)ag_get_number(id, 4);
    }
    return ag_checksummed_reader_check(r, err);
}

ag_status ag_prefix_file_read(const char *path, ag_prefix_file *f, ag_error *err) {
    ag_checksummed_reader r = {.fd = -1};
    ag_status st = ag_checksummed_reader_open(&r, path, err);
    if (st == AG_OK) st = get_metadata(&r, f, err);
    ag_checksummed_reader_close(&r);
    return st;
}
