/* SPDX-License-Identifier: Apache-2.0 */
/* Saved caches with spilled blocks. The first byte selects a session and whether the checksums are
 * corrected. The remaining bytes are edits of the file that this session saved. A restored session
 * is used: tokens reload blocks, some tokens are removed, and it is saved and restored again. */
#include "edits.h"
#include "fuzz.h"

#include "formats/checksummed_file.h"
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SESSIONS = 3, HEAD_BYTES = 24, N_TOKENS = 90, UNSEALED = 128, SAVE_AGAIN = 64 };

static char dir[512], path[600];
static ag_backend *backend;
static ag_model *model;
static ag_session *sessions[N_SESSIONS];
static edited_file files[N_SESSIONS];
static size_t first_seal[N_SESSIONS]; /* where the seal of the beginning is */

static void must(bool ok) {
    if (!ok) abort();
}

static void clean_up(void) {
    for (int i = 0; i < N_SESSIONS; i++) {
        ag_session_destroy(sessions[i]);
        free(files[i].data);
    }
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    unlink(path);
    tiny_model_remove(dir);
}

static void make_session(int i) {
    static const char *const policies[N_SESSIONS] = {"h2o", "keydiff", "streaming"};
    static const ag_dtype types[N_SESSIONS] = {AG_F32, AG_F16, AG_Q8_0};
    ag_session_params p = ag_session_defaults();
    ag_spill_params spill = {.path = dir, .block = 8, .exact = i == 1};
    p.max_seq_len = 200;
    p.prefill_chunk = 16;
    p.k_type = p.v_type = types[i];
    p.eviction.policy = ag_eviction_policy_find(policies[i]);
    p.eviction.budget_tokens = 24;
    p.eviction.recent = 4;
    p.eviction.slack = 4;
    p.eviction.spill = &spill;
    ag_error err;
    if (!p.eviction.policy || ag_session_create(model, &p, &sessions[i], &err) != AG_OK) {
        fprintf(stderr, "%s: %s\n", policies[i], p.eviction.policy ? err.msg : "no such policy");
        abort();
    }
    for (int32_t t = 0; t < N_TOKENS; t++)
        must(ag_session_decode(sessions[i], 1 + t * 7 % 200, NULL) == AG_OK);
    ag_spill_stats stats;
    ag_session_spilled(sessions[i], &stats);
    must(stats.n_spilled > 0);
    must(ag_session_save(sessions[i], path, NULL, NULL, 0, NULL) == AG_OK);
    files[i] = edited_file_read(path);
    first_seal[i] = HEAD_BYTES + (size_t)edited_number(files[i].data + 12, 4);
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

/* Values may be anything, so decoding may fail; it may not do more than that. */
static void use(ag_session *s, bool save_again) {
    ag_error err;
    const uint32_t begin = ag_session_position(s);
    for (int32_t id = 1; id < 6; id++) {
        if (ag_session_decode(s, id, &err) != AG_OK) break;
    }
    const uint32_t now = ag_session_position(s), back = now > begin + 2 ? now - 2 : begin;
    must(ag_session_truncate(s, back, &err) == AG_OK || err.msg[0]);
    if (ag_session_capacity_left(s)) (void)ag_session_decode(s, 9, &err);
    if (!save_again) return;
    must(ag_session_save(s, path, NULL, NULL, 0, &err) == AG_OK);
    must(ag_session_restore(s, path, NULL, NULL, &err) == AG_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!model) set_up();
    if (n < 1) return 0;
    const int which = data[0] % UNSEALED % SAVE_AGAIN % N_SESSIONS;
    ag_session *s = sessions[which];
    edited_file file = edited_file_copy(&files[which]);
    const size_t after = first_seal[which] + AG_CHECKSUM_BYTES;
    edited_file_apply(&file, data[0] & UNSEALED ? 0 : after, data + 1, n - 1);
    if (!(data[0] & UNSEALED) && file.n > after + AG_CHECKSUM_BYTES) {
        edited_set_number(file.data + 16, 8, file.n);
        edited_file_seal(&file, first_seal[which]);
        edited_file_seal(&file, file.n - AG_CHECKSUM_BYTES);
    }
    edited_file_write(&file, path);
    free(file.data);
    ag_error err;
    ag_session_reset(s);
    const bool is_restored = ag_session_restore(s, path, NULL, NULL, &err) == AG_OK;
    must(is_restored || n > 1); /* without edits the file is good */
    if (is_restored) use(s, data[0] & SAVE_AGAIN);
    else must(ag_session_position(s) == 0 && err.msg[0]);
    return 0;
}
