/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that read one text, for tests of compression. */
#ifndef AG_TESTS_UNIT_COMPRESSED_SESSION_H
#define AG_TESTS_UNIT_COMPRESSED_SESSION_H

#include "cache/kv_cache.h"
#include "session/replay.h"
#include "support/named_backend.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"
enum { N = 150, CHUNK = 60, KV_HEADS = 2, HEADS = 6, SINKS = 4 };

static const char *device; /* NULL: the CPU */
static ag_backend *backend;
static ag_model *model;
static int32_t text[N];

static const int32_t request[] = {7, 8, 9}, next_request[] = {7, 8, 10, 11}, suffix[] = {12, 13};

static inline ag_model *load(ag_backend *be, const char *path) {
    ag_model_params p = ag_model_defaults();
    ag_model *m;
    ag_error err;
    p.weights = AG_F32;
    if (ag_model_load(be, path, &p, &m, &err) != AG_OK) fail_msg("%s", err.msg);
    return m;
}

static inline int set_up(void **state) {
    (void)state;
    for (size_t i = 0; i < N; i++)
        text[i] = (int32_t)((i * 7 + i * i % 61 + i * i * i % 17) % 300) + 3;
    backend = open_backend(device, 2);
    if (!backend) return 1;
    model = load(backend, MODEL);
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static inline ag_session_params session_params(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 400;
    p.prefill_chunk = 32;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = N;
    p.eviction.recent = 8;
    p.eviction.slack = 4;
    p.eviction.snapkv_window = 8;
    return p;
}

/* Creates a session that has read the text. */
static inline ag_session *reader_of(ag_model *m, const char *policy) {
    const ag_session_params p = session_params(policy);
    ag_session *s;
    ag_error err;
    if (ag_session_create(m, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_session_prefill(s, text, N, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static inline ag_compress_params params(float keep_ratio, float share) {
    ag_compress_params p = ag_compress_defaults();
    p.keep_ratio = keep_ratio;
    p.replay = share;
    p.chunk = CHUNK;
    p.instruction = request;
    p.n_instruction = 3;
    p.instruction_next = next_request;
    p.n_instruction_next = 4;
    p.suffix = suffix;
    p.n_suffix = 2;
    return p;
}

static inline ag_compress_report compress(ag_session *s, float keep_ratio, float share) {
    const ag_compress_params p = params(keep_ratio, share);
    ag_compress_report report;
    ag_error err;
    if (ag_session_compress(s, text, N, &p, &report, &err) != AG_OK) fail_msg("%s", err.msg);
    return report;
}

static inline uint32_t n_slots(ag_session *s, uint32_t head) {
    return ag_kv_cache_n_slots(ag_session_kv_cache(s), head / KV_HEADS, head % KV_HEADS);
}

static inline uint32_t position(ag_session *s, uint32_t head, uint32_t slot) {
    return ag_kv_cache_position(ag_session_kv_cache(s), head / KV_HEADS, head % KV_HEADS, slot);
}

static inline size_t all_slots(ag_session *s) {
    size_t n = 0;
    for (uint32_t head = 0; head < HEADS; head++) n += n_slots(s, head);
    return n;
}

static inline void feed(ag_session *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)(ag_session_position(s) * 11 % 300) + 3;
        ag_error err;
        if (ag_session_decode(s, id, &err) != AG_OK) fail_msg("%s", err.msg);
    }
}

#endif
