/* SPDX-License-Identifier: Apache-2.0 */
/* Saved caches. The first byte selects a session, the second how the remaining bytes become a file:
 * unchanged, or after a valid header, with the length that their slots need and a correct checksum,
 * so that mutations pass the checksums. The target uses a restored session: it decodes tokens,
 * truncates, saves and restores again. */
#include "fuzz.h"

#include "cache/saved_state.h"
#include "formats/checksummed_file.h"
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SESSIONS = 3, HEAD_BYTES = 24, STATE_BYTES = 16, LAYERS = TINY_LAYERS, MOST = 1 << 20 };
enum { AS_IT_STANDS = 1, SAVE_AGAIN = 2 }; /* bits of the second byte */

static char dir[512], path[600];
static ag_backend *backend;
static ag_model *model;
static ag_session *sessions[N_SESSIONS];
static unsigned char *heads[N_SESSIONS]; /* valid headers of these sessions' files */
static size_t n_heads[N_SESSIONS];

static void must(bool ok) {
    if (!ok) abort();
}

static void clean_up(void) {
    for (int i = 0; i < N_SESSIONS; i++) {
        ag_session_destroy(sessions[i]);
        free(heads[i]);
    }
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    unlink(path);
    tiny_model_remove(dir);
}

static void make_session(int i) {
    static const char *const policies[N_SESSIONS] = {"none", "h2o", "keydiff"};
    static const ag_dtype types[N_SESSIONS][2] = {
        {AG_F16, AG_F16}, {AG_Q8_0, AG_Q4_0}, {AG_Q4_0, AG_F32}};
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 160;
    p.prefill_chunk = 16;
    p.k_type = types[i][0];
    p.v_type = types[i][1];
    p.eviction.policy = ag_eviction_policy_find(policies[i]);
    p.eviction.budget_tokens = 40;
    p.eviction.recent = 8;
    p.eviction.slack = 4;
    must(ag_session_create(model, &p, &sessions[i], NULL) == AG_OK);
    must(ag_session_save(sessions[i], path, NULL, NULL, 0, NULL) == AG_OK);
    FILE *f = fopen(path, "rb");
    unsigned char head[HEAD_BYTES];
    must(f && fread(head, 1, sizeof head, f) == sizeof head);
    n_heads[i] = HEAD_BYTES + (head[12] | (size_t)head[13] << 8);
    heads[i] = malloc(n_heads[i]);
    must(heads[i] && fseek(f, 0, SEEK_SET) == 0);
    must(fread(heads[i], 1, n_heads[i], f) == n_heads[i]);
    fclose(f);
}

static void set_up(void) {
    const tiny_model tiny = {.dtype = "F32"};
    ag_backend_params one = {.n_threads = 1};
    must(tiny_model_write(&tiny, dir, sizeof dir));
    snprintf(path, sizeof path, "%s/saved", dir);
    must(ag_backend_create(&one, &backend, NULL) == AG_OK);
    must(ag_model_load(backend, dir, NULL, &model, NULL) == AG_OK);
    for (int i = 0; i < N_SESSIONS; i++) make_session(i);
    atexit(clean_up);
}

static uint32_t number_at(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Returns the length that the numbers in `rest` imply; n if they ask for too much. */
static size_t length_of(ag_session *s, const uint8_t *rest, size_t n) {
    const ag_kv_params *p = ag_kv_cache_params(ag_session_kv_cache(s));
    uint32_t n_slots[LAYERS * 4];
    size_t count = (size_t)p->n_layers * p->n_kv_heads, fixed = STATE_BYTES + 4 * count;
    must(count <= LAYERS * 4);
    if (n < fixed) return n;
    for (size_t i = 0; i < count; i++) n_slots[i] = number_at(rest + STATE_BYTES + 4 * i);
    uint64_t all = fixed + 4 * (uint64_t)number_at(rest + 4);
    uint32_t flags = number_at(rest + 8);
    if (flags & 1) all += 4 * TINY_VOCAB;
    for (size_t i = 0; i < count && flags & 2; i++) all += 4 * (uint64_t)n_slots[i];
    uint64_t cache = ag_kv_cache_saved_bytes(p, n_slots);
    return cache < MOST && all + cache < MOST ? (size_t)(all + cache) : n;
}

static void put_number(unsigned char *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static void add(ag_checksum *sum, FILE *f, const void *bytes, size_t n) {
    ag_checksum_add(sum, bytes, n);
    must(fwrite(bytes, 1, n, f) == n);
}

static void write_checksummed(int which, const uint8_t *rest, size_t n) {
    size_t want = length_of(sessions[which], rest, n);
    unsigned char seal[AG_CHECKSUM_BYTES], *head = heads[which];
    unsigned char *body = calloc(1, want + 1);
    FILE *f = fopen(path, "wb");
    ag_checksum sum;
    must(body && f);
    memcpy(body, rest, n < want ? n : want);
    put_number(head + 16, n_heads[which] + want + 2 * sizeof seal);
    ag_checksum_begin(&sum);
    add(&sum, f, head, n_heads[which]);
    put_number(seal, ag_checksum_value(&sum));
    add(&sum, f, seal, sizeof seal);
    add(&sum, f, body, want);
    put_number(seal, ag_checksum_value(&sum));
    add(&sum, f, seal, sizeof seal);
    must(fclose(f) == 0);
    free(body);
}

static void write_plain(const uint8_t *data, size_t n) {
    FILE *f = fopen(path, "wb");
    must(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* Decodes from restored values, which may be anything: failing is allowed. */
static void use(ag_session *s, bool save_again) {
    ag_error err;
    uint32_t begin = ag_session_position(s);
    for (int32_t id = 1; id < 8; id++) {
        if (ag_session_decode(s, id, &err) != AG_OK) break;
    }
    uint32_t now = ag_session_position(s), back = now > begin + 2 ? now - 2 : begin;
    must(ag_session_truncate(s, back, &err) == AG_OK);
    if (ag_session_capacity_left(s)) (void)ag_session_decode(s, 9, &err);
    if (!save_again) return;
    must(ag_session_save(s, path, NULL, NULL, 0, &err) == AG_OK);
    must(ag_session_restore(s, path, NULL, NULL, &err) == AG_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!model) set_up();
    if (n < 2) return 0;
    int which = data[0] % N_SESSIONS;
    ag_session *s = sessions[which];
    if (data[1] & AS_IT_STANDS) write_plain(data + 2, n - 2);
    else write_checksummed(which, data + 2, n - 2);
    ag_error err;
    ag_ids ids = {0};
    ag_session_reset(s);
    if (ag_session_restore(s, path, NULL, &ids, &err) == AG_OK) {
        must(!ids.n || ids.n == ag_session_position(s));
        use(s, data[1] & SAVE_AGAIN);
    } else {
        must(ag_session_position(s) == 0 && !ids.n && err.msg[0]);
    }
    ag_ids_free(&ids);
    return 0;
}
