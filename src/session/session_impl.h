/* SPDX-License-Identifier: Apache-2.0 */
/* A session's inside, for the files that implement it. */
#ifndef AG_SESSION_SESSION_IMPL_H
#define AG_SESSION_SESSION_IMPL_H

#include "cache/cache_manager.h"
#include "core/top_k.h"
#include "models/model_impl.h"
#include "session/speculate.h"

#include <antigravity/sampler.h>
#include <antigravity/session.h>
#include <stdatomic.h>

/* Where the logits that follow the newest token are. */
typedef enum ag_logits_location {
    AG_LOGITS_ABSENT,    /* no token yet, or nobody asked for them */
    AG_LOGITS_ON_DEVICE, /* in `row` alone: nobody has needed all of them */
    AG_LOGITS_ON_HOST,   /* in `host` */
} ag_logits_location;

struct ag_session {
    ag_model *model; /* borrowed */
    uint64_t serial; /* no other session of the process has it */
    ag_session_params params;
    ag_kv_cache *cache;
    ag_layer_state *state;     /* owned; NULL: every layer has keys and values */
    ag_cache_manager *manager; /* owned; NULL: nothing ever leaves the cache */
    uint32_t position;         /* logical, of the next token */
    bool is_ragged;            /* a compression has left heads with different numbers of slots */
    bool is_long;              /* turns by the frequencies for long texts, from its beginning on */
    size_t prompt_left;        /* tokens of a prompt that its next steps will bring */
    struct {
        ag_logits_location location;
        ag_tensor row; /* [1, n_vocab] in the backend's memory */
        ag_buffer *owner;
        float *host;   /* what the caller reads: row itself, or `copied` */
        float *copied; /* owned; NULL if the backend's memory is the host's */
        /* What the next step is asked for, and with top.known what it answered. Of a row on the
         * device. */
        ag_top_k top;
        int32_t top_ids[AG_TOP_K_IDS];
    } logits;
    atomic_bool cancelled;
    bool choice_ended;           /* in the step that goes on: on_chosen wants no further choice */
    ag_speculation *speculation; /* owned; NULL: nobody has asked for drafts yet */
};

/* session.c. ag_session_plan_memory, and the bytes of the largest buffer on a device; caches divide
 * theirs. */
ag_status ag_session_plan_largest(const ag_model_info *info, const ag_session_params *params,
                                  ag_session_plan *out, size_t *largest, ag_error *err);

/* Does an eviction that failed behind the last step. What reads the cache as a whole begins so. */
ag_status ag_session_settle(ag_session *s, ag_error *err);

/* Heads may hold different numbers of slots: by a compression, or by the budget of each. */
bool ag_session_is_ragged(const ag_session *s);

/* A state for the session's model, at its beginning; NULL if no layer has one. */
ag_status ag_session_make_state(const ag_session *s, ag_layer_state **out, ag_error *err);

/* Rows of logits that are taken at a time where several are wanted: 8 MB for a vocabulary of 128k.
 */
enum { AG_LOGIT_ROWS = 16 };
/* The memory of them, which a model's sessions share. */
size_t ag_logit_rows_bytes(const ag_model_info *info);
/* generate_drafts.c. What a session remembers of its text for drafts. params are complete. */
size_t ag_draft_tables_bytes(const ag_session_params *params);

/* Takes what steps of so many rows need, all of them wanted, so that none of them allocates. */
ag_status ag_session_reserve_rows(ag_session *s, uint32_t n_rows, ag_error *err);
/* step_logits.c. Of it, the logits. */
ag_status ag_session_make_logit_rows(ag_session *s, ag_error *err);
/* step.c. Whether n more tokens fit, and whether they are in the vocabulary. */
ag_status ag_session_check_ids(const ag_session *s, const int32_t *ids, size_t n, ag_error *err);
/* How many tokens one step of AG_PHASE_VERIFY may bring and give each the bits that it would have
 * alone: at least 1, which is to be decoded. */
size_t ag_session_max_verify_rows(const ag_session *s);

/* saved.c. As ag_session_save() and ag_session_restore(), which pause where a disk is waited for.
 * Meanwhile the session may be forked and looked at, and nothing else. */
typedef struct ag_io_hooks ag_io_hooks;
ag_status ag_session_save_with_hooks(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                                     const int32_t *ids, size_t n_ids, const ag_io_hooks *hooks,
                                     ag_error *err);
ag_status ag_session_restore_with_hooks(ag_session *s, const char *path,
                                        const ag_tokenizer *tokenizer, ag_ids *ids,
                                        const ag_io_hooks *hooks, ag_error *err);

/* choose.c. Whether rows that are only sampled from stay on the device. */
bool ag_session_chooses_on_device(const ag_session *s);
/* Writes what the sampler will ask of the next row to logits.top; false: the whole row. */
bool ag_session_request_top(ag_session *s, const ag_sampler *sampler);
/* Brings the logits to the host if they are only on the device. */
ag_status ag_session_fetch_logits(ag_session *s, ag_error *err);
/* What ag_sampler_sample() chooses from the session's logits, which are somewhere. */
ag_status ag_session_choose(ag_session *s, ag_sampler *sampler, int32_t *id, ag_error *err);

#endif
