/* SPDX-License-Identifier: Apache-2.0 */
/* Session, for the files that implement it. */
#ifndef AG_SESSION_SESSION_IMPL_H
#define AG_SESSION_SESSION_IMPL_H

#include "cache/cache_manager.h"
#include "core/top_k.h"
#include "models/model_impl.h"
#include "session/speculate.h"
#include "text/random.h"

#include <antigravity/sampler.h>
#include <antigravity/session.h>
#include <stdatomic.h>

/* Location of the logits that follow the newest token. */
typedef enum ag_logits_location {
    AG_LOGITS_ABSENT,    /* no token yet, or none were requested */
    AG_LOGITS_ON_DEVICE, /* in `on_device` only */
    AG_LOGITS_ON_HOST,   /* in `host` */
} ag_logits_location;

struct ag_session {
    ag_model *model; /* borrowed */
    uint64_t serial; /* unique in the process */
    ag_session_params params;
    ag_kv_cache *cache;
    ag_layer_state *state;     /* owned; NULL: every layer has keys and values */
    ag_cache_manager *manager; /* owned; NULL: no eviction policy */
    uint32_t position;         /* logical position of the next token */
    bool is_ragged;            /* a compression left heads with different numbers of slots */
    bool is_long;              /* uses longrope's frequencies for long texts, from position 0 on */
    size_t prompt_remaining;   /* tokens of the announced prompt that are not fed yet */
    struct {
        ag_logits_location location;
        ag_tensor row; /* [1, n_vocab] in the backend's memory */
        ag_buffer *owner;
        ag_tensor on_device; /* `row` or a row of the model's logit_rows */
        float *host;         /* the caller's logits: row itself, or `copied` */
        float *copied;       /* owned; NULL if the host can read the backend's memory */
        bool chosen_later;   /* stay on the device without a sampler in the step, too */
        /* Top-k query for the next row and, if top.known, its result for the row on the device. */
        ag_top_k top;
        int32_t top_ids[AG_TOP_K_IDS];
    } logits;
    atomic_bool cancelled;
    bool choice_ended;           /* on_chosen has ended the choices of the current step */
    ag_random random_before;     /* random state of the sampler before the current step */
    ag_speculation *speculation; /* owned; NULL until drafts are first used */
};

/* session.c. Plans like ag_session_plan_memory(). *largest: bytes of the largest buffer besides
 * caches, which divide theirs. */
ag_status ag_session_plan_largest(const ag_model_info *info, const ag_session_params *params,
                                  ag_session_plan *out, size_t *largest, ag_error *err);

/* Repeats an eviction that failed after the last step. Call it before the cache is read in full. */
ag_status ag_session_settle(ag_session *s, ag_error *err);

/* Returns whether heads may have different numbers of slots, by a compression or by head budgets.
 */
bool ag_session_is_ragged(const ag_session *s);

/* Creates the state of the model's layers at position 0; NULL if none has one. */
ag_status ag_session_make_state(const ag_session *s, ag_layer_state **out, ag_error *err);

/* Rows of logits that are computed at a time; 64 on devices that choose tokens, because each group
 * costs a query. With a vocabulary of 128k tokens a row has 0.5 MB. */
enum { AG_LOGIT_ROWS = 16, AG_LOGIT_ROWS_DEVICE = 64 };
/* Returns the bytes of the rows, which all sessions of a model share. be NULL: on the host. */
size_t ag_logit_rows_bytes(const ag_backend *be, const ag_model_info *info);
/* generate_drafts.c. Returns the bytes of a session's n-gram lookup. params are complete. */
size_t ag_draft_tables_bytes(const ag_session_params *params);

/* Reserves memory for steps of n_rows rows, all with logits, so that no step allocates. */
ag_status ag_session_reserve_rows(ag_session *s, uint32_t n_rows, ag_error *err);
/* step_logits.c. Allocates the model's rows of logits unless they exist. */
ag_status ag_session_make_logit_rows(ag_session *s, ag_error *err);
/* Removes a session that is destroyed from the users of the model's rows. */
void ag_session_leave_logit_rows(const ag_session *s);
/* step.c. Checks that n more tokens fit and are in the vocabulary. */
ag_status ag_session_check_ids(const ag_session *s, const int32_t *ids, size_t n, ag_error *err);
/* Returns how many tokens a step of AG_PHASE_VERIFY may feed so that each row has the same bits as
 * when decoded alone. At least 1: such a token is decoded. */
size_t ag_session_max_verify_rows(const ag_session *s);

/* saved.c. Save and restore like the public functions, with hooks around disk I/O. Inside a hook
 * the session may be forked and read, but not changed. */
typedef struct ag_io_hooks ag_io_hooks;
ag_status ag_session_save_with_hooks(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                                     const int32_t *ids, size_t n_ids, const ag_io_hooks *hooks,
                                     ag_error *err);
ag_status ag_session_restore_with_hooks(ag_session *s, const char *path,
                                        const ag_tokenizer *tokenizer, ag_ids *ids,
                                        const ag_io_hooks *hooks, ag_error *err);

/* choose.c. Returns whether rows that are only sampled from stay on the device. */
bool ag_session_chooses_on_device(const ag_session *s);
/* Sets whether the session's rows stay on the device, if it can choose, although a step has no
 * sampler: the caller chooses after the step. Such a step waits for the device. */
void ag_session_choose_later(ag_session *s, bool later);
/* Writes the sampler's query for the next row, with the filter's mask, to logits.top. Returns false
 * if the sampler needs all logits or none. */
bool ag_session_request_top(ag_session *s, const ag_sampler *sampler);
/* Copies the logits to the host if they are only on the device. */
ag_status ag_session_fetch_logits(ag_session *s, ag_error *err);
/* Chooses a token as ag_sampler_sample() does. The session must have logits. */
ag_status ag_session_choose(ag_session *s, ag_sampler *sampler, int32_t *id, ag_error *err);

/* step_logits.c. Returns whether the device keeps the item's logits. */
bool ag_step_keeps_on_device(const ag_step_item *item);
/* Finds in one query what samplers need to choose for n sessions of a model. Leaves out sessions
 * whose logits are not in the model's rows: their choices have queries of their own. */
ag_status ag_session_find_tops(ag_session *const sessions[], ag_sampler *const samplers[], size_t n,
                               ag_error *err);
/* Computes the logits of all output rows, in groups, and delivers
 * them to callbacks and samplers. `computed`: the pass has already computed the logits of the last
 * row of each item. */
ag_status ag_step_deliver_logits(const ag_step_item *items, size_t n, bool computed, ag_error *err);
/* Computes the logits of the item's last row from the hidden states of the pass. `seq` is the item
 * in that pass. */
ag_status ag_step_compute_row(const ag_step_item *item, const ag_sequence *seq, ag_error *err);
/* Delivers the hidden state of every row to items with a `hidden` callback. */
ag_status ag_step_deliver_hidden(const ag_step_item *items, size_t n, ag_error *err);

#endif
