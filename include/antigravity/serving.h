/* SPDX-License-Identifier: Apache-2.0 */
/* Many requests of many clients, in steps of rows: an engine thread that batches them, keeps what
 * they have read for those that come later, and stays within one number of memory. No HTTP and no
 * JSON here; docs/serving.md shows how the parts work together. */
#ifndef ANTIGRAVITY_SERVING_H
#define ANTIGRAVITY_SERVING_H

#include <antigravity/chat.h>
#include <antigravity/constrain.h>
#include <antigravity/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the engine ---- */

/* A thread that owns a backend and the models on it. Functions given an ag_serving may be called
 * from any thread, but ag_serving_destroy() from one that no other races with. Of them the ones
 * that wait, ag_serving_load_model() and ag_serving_destroy(), are not to be called by an event.
 *
 * What a request gets depends on its parameters alone, not on what else is running: its tokens
 * and logprobs are bit for bit those that it gets alone, unless wide_steps. Where part of its
 * prompt was read before (n_cached), and where a device has read it together with others, they are
 * the same but for rounding; where a policy has let tokens leave since, what left depends on the
 * turns in which it was read. */
typedef struct ag_serving ag_serving;

typedef struct ag_serving_params {
    ag_backend_params backend; /* as ag_backend_create() takes them */
    uint64_t memory_limit;     /* bytes that the process may occupy; 0: no limit */
    /* NULL, or asked on the engine's thread how much of that the caller itself occupies by now,
     * which caller_reserve sets aside for it: connections, texts on their way. */
    uint64_t (*caller_bytes)(void *user);
    void *caller_user;
    uint64_t caller_reserve; /* 0; messages take it to grow with memory_limit */
    uint32_t max_running;    /* 64 answers at a time */
    /* 256; beyond them a request is refused with AG_BUSY, and beyond 64 MiB of copies of them, or a
     * 64th of memory_limit, but 2 MiB at least; one that is larger itself with AG_LIMIT. While
     * other clients wait, one client may use half of the places and of the bytes, half of
     * max_running, and half of the prompt rows of a step. A client that used more alone loses its
     * newest waiting requests, which end with AG_BUSY, as other clients need their places. */
    uint32_t max_waiting;
    uint32_t step_rows; /* 512 rows between two tokens of an answer: next tokens first, then
                         * prompts, in chunks of half as many, whoever else is there */
    /* Rows of different requests in one pass also where that rounds otherwise than each alone: more
     * tokens a second of many answers on processors with matrix units, and on devices that are slow
     * to read weights, but what a request gets then depends, by rounding, on what else is running.
     */
    bool wide_steps;
    /* Parked sessions, in memory. UINT64_MAX: as much as the limit leaves; without a limit a
     * quarter of what the system, the control group and the device would have available without
     * them (1 GiB where none of them says). */
    uint64_t prefix_bytes;
    /* NULL, or where parked sessions go that leave memory, to be found again after a restart: made
     * with mode 0700 if need be, AG_IO if others may enter. Scopes are written into its files. */
    const char *prefix_dir;
    uint64_t prefix_dir_bytes; /* 4 GiB */
    /* 0: never. Else parked sessions that no policy manages become smaller while no request runs,
     * each when nobody has gone on with it for replay_after_s, or at once where three quarters of
     * memory_limit are taken: ag_session_compress() with this share of their tokens replayed. What
     * stays are so many of their tokens, the fewer of both. A request ends a replay that is under
     * way. One takes the memory of two such sessions at most, for which another may leave. Such a
     * session is gone on with at its end alone: prompts that have only its beginning in common are
     * read anew. */
    float replay_share, replay_keep_ratio; /* 0, 0.25 */
    uint32_t replay_keep_tokens;           /* 0: the ratio alone */
    uint32_t replay_after_s;               /* 30 */
    uint64_t reserved[6];                  /* 0: what later versions ask for */
} ag_serving_params;
AG_API ag_serving_params ag_serving_defaults(void);

AG_API ag_status ag_serving_create(const ag_serving_params *params, ag_serving **out,
                                   ag_error *err);
/* Running requests end with AG_FINISH_CANCELLED first; with prefix_dir what is parked is written.
 */
AG_API void ag_serving_destroy(ag_serving *s);

/* ---- models ---- */

typedef struct ag_served_model ag_served_model; /* lives as long as the engine */

typedef struct ag_served_model_params {
    const char *name;          /* what requests call it; further names by ag_serving_add_alias() */
    const char *path;          /* as ag_model_load() takes it */
    ag_model_params model;     /* progress, too */
    ag_session_params session; /* what a request's begins with: context, types, policy */
    const char *chat_template; /* NULL: the model's own */
    uint64_t reserved[4];      /* 0: what later versions ask for */
} ag_served_model_params;

/* Reads configuration, tokenizer and template; weights are loaded by the first request that needs
 * them, and dropped again where another model needs the memory. AG_INVALID if the name is taken. */
AG_API ag_status ag_serving_add_model(ag_serving *s, const ag_served_model_params *params,
                                      ag_served_model **out, ag_error *err);
AG_API ag_status ag_serving_add_alias(ag_serving *s, ag_served_model *m, const char *name,
                                      ag_error *err);
/* NULL: none of this name. NULL as name: the first that was added. */
AG_API ag_served_model *ag_serving_model(ag_serving *s, const char *name);
AG_API size_t ag_serving_n_models(const ag_serving *s);
AG_API ag_served_model *ag_serving_model_at(ag_serving *s, size_t i);
/* Loads the weights now, and waits for it; a start that fails here fails early. */
AG_API ag_status ag_serving_load_model(ag_serving *s, ag_served_model *m, ag_error *err);

/* What stands beside the weights: immutable, for any thread. */
AG_API const char *ag_served_model_name(const ag_served_model *m);
AG_API const ag_model_info *ag_served_model_info(const ag_served_model *m);
/* NULL: the model has none; requests are answered with ids and without text then. */
AG_API const ag_tokenizer *ag_served_model_tokenizer(const ag_served_model *m);
/* NULL: the model has no chat template. */
AG_API const ag_chat_format *ag_served_model_format(const ag_served_model *m);
/* The model's own defaults. */
AG_API const ag_sampler_params *ag_served_model_sampling(const ag_served_model *m);
AG_API const ag_session_params *ag_served_model_session(const ag_served_model *m);
/* Made when first asked for; then shared. */
AG_API ag_status ag_served_model_vocab(ag_served_model *m, const ag_constraint_vocab **out,
                                       ag_error *err);

/* ---- requests ---- */

typedef enum ag_request_kind {
    AG_REQUEST_GENERATE,
    AG_REQUEST_EMBED, /* one vector for the prompt */
} ag_request_kind;

/* Which of the final hidden states become the vector of a text. */
typedef enum ag_embedding_pooling {
    AG_EMBEDDING_MEAN, /* of all tokens */
    AG_EMBEDDING_LAST, /* of the last token */
    AG_EMBEDDING_FIRST,
} ag_embedding_pooling;

typedef struct ag_logprob {
    int32_t id;
    float logprob; /* natural, of the model's distribution before any sampling parameter */
} ag_logprob;

typedef enum ag_request_event_kind {
    AG_REQUEST_STARTED,  /* n_prompt and n_cached are known; the prompt is about to be read */
    AG_REQUEST_READ,     /* more of the prompt has been read: n_read of n_prompt */
    AG_REQUEST_TOKEN,    /* of one answer */
    AG_REQUEST_ANSWERED, /* one answer has ended: finish and its figures */
    AG_REQUEST_EMBEDDED,
    AG_REQUEST_ENDED, /* the last event, always: status and, if that is not AG_OK, error */
} ag_request_event_kind;

typedef struct ag_request_event {
    ag_request_event_kind kind;
    size_t n_prompt, n_cached, n_read;
    size_t answer;    /* TOKEN, ANSWERED: which one, from 0 */
    int32_t id;       /* TOKEN; -1: text that was waiting for more */
    const char *text; /* TOKEN: [len] what became certain by this token, whole characters */
    size_t len;
    float logprob;         /* TOKEN, if asked for: of the token */
    const ag_logprob *top; /* [n_top] the most likely instead */
    size_t n_top;
    ag_finish finish;   /* ANSWERED */
    size_t stop;        /* ANSWERED by a stop string: which one */
    size_t n_generated; /* ANSWERED: an eos that ended the text is not counted */
    const int32_t *ids; /* ANSWERED: [n_ids] what was sampled, without what ended the answer */
    size_t n_ids;
    double queue_s, prefill_s, first_token_s, decode_s; /* ANSWERED */
    const float *embedding;                             /* EMBEDDED: [n_embedding], of length 1 */
    size_t n_embedding;
    /* ENDED. AG_CANCELLED: by ag_serving_cancel(), its deadline or the engine's end; AG_NOMEM: it
     * does not fit into the memory limit; AG_BUSY: another client needed its place in the queue. */
    ag_status status;
    const ag_error *error;
    uint64_t reserved[4];
} ag_request_event;

/* Called on the engine's thread; must not wait. What the event points to is valid for the call. */
typedef void (*ag_request_fn)(void *user, const ag_request_event *event);

typedef struct ag_request_params {
    ag_request_kind kind;
    ag_served_model *model;
    const char *scope;     /* whose parked sessions it may use and leave: a client's key; NULL:
                            * those of requests without one */
    const char *client;    /* copied; whose share of the queue and of the steps the request uses:
                            * see max_waiting. NULL: that of `scope` */
    const int32_t *prompt; /* [n_prompt] copied */
    size_t n_prompt;
    size_t n_answers; /* 1; each with a seed of its own: sampling.seed + i */
    ag_sampler_params sampling;
    /* NULL, or transferred: each answer obeys it. It goes to the engine's threads, so no clone of
     * it may be used by another one. AG_LIMIT ends a request whose constraint is too expensive: see
     * max_work of ag_constraint_params. */
    ag_constraint *constraint;
    int64_t max_tokens; /* of each answer; -1: as many as fit */
    bool ignore_eos;
    const char *const *stop; /* [n_stop] copied; not emitted; 256 of 1024 bytes at most */
    size_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] copied; end an answer as the model's own eos ids do */
    size_t n_stop_ids;
    bool keep_special; /* special tokens appear in the text */
    bool logprobs;
    uint32_t n_top; /* the so many most likely of each token, 20 at most; with logprobs */
    ag_embedding_pooling pooling; /* EMBED */
    /* Context, types of the cache, policy and budget of this request. prefill_chunk is the
     * engine's: half of step_rows. */
    ag_session_params session;
    bool no_prefix;    /* neither uses what is parked nor leaves anything */
    uint32_t n_system; /* tokens at the beginning that never leave, where a policy evicts; 0:
                        * as session.eviction says */
    double deadline_s; /* 0: none; from now on: then it ends like a cancelled one */
    ag_request_fn event;
    void *user;
    uint64_t reserved[7]; /* 0: what later versions ask for */
} ag_request_params;
AG_API ag_request_params ag_request_defaults(ag_served_model *m);

typedef uint64_t ag_request_id; /* never given twice */

/* Checks the request and puts it into the queue. On error nothing is owned and no event comes:
 * AG_INVALID names what is wrong, AG_LIMIT what is too long, AG_BUSY says how many are waiting. */
AG_API ag_status ag_serving_submit(ag_serving *s, const ag_request_params *params,
                                   ag_request_id *id, ag_error *err);
/* It ends after the step that is running, at the latest, with its events; one that has ended is
 * left alone. Does not wait. */
AG_API void ag_serving_cancel(ag_serving *s, ag_request_id id);

/* ---- what it is doing ---- */

typedef struct ag_serving_stats {
    uint32_t n_running, n_waiting, n_prefix_entries;
    uint64_t n_requests, n_refused, n_cancelled, n_failed;
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens, n_steps, n_rows;
    double busy_s;                                   /* of the engine's thread */
    uint64_t memory_limit, memory_used, memory_peak; /* what the limit is about */
    uint64_t weight_bytes, kv_bytes, prefix_bytes, workspace_bytes, device_bytes, caller_bytes;
    uint64_t file_bytes; /* resident pages of files: not counted */
    /* Sessions in prefix_dir, and what could not be written or read: the log says why. */
    uint64_t n_prefix_written, n_prefix_read, n_prefix_failed;
    uint64_t n_models_loaded; /* whose weights are in memory */
    /* Of parked sessions: whole ones, those that failed, and bytes that the former gave back. */
    uint64_t n_replays, n_replays_failed, replay_bytes;
    uint64_t reserved[1];
} ag_serving_stats;
AG_API void ag_serving_get_stats(ag_serving *s, ag_serving_stats *out);

/* One session that is held, running or parked. */
typedef struct ag_resident_session {
    uint64_t id;
    const char *model, *scope;
    bool is_running;
    uint32_t n_tokens; /* that it has consumed */
    uint32_t n_slots;  /* of the fullest head */
    /* Shared: of a parked one, when it was parked or another one last began with it. */
    uint64_t kv_bytes, shared_bytes;
    const char *policy;
    uint64_t n_evicted;
    double idle_s;
    uint64_t reserved[4];
} ag_resident_session;
/* Calls each(user, session) for each, on the calling thread; false ends it. */
AG_API void ag_serving_each_session(ag_serving *s,
                                    bool (*each)(void *user, const ag_resident_session *h),
                                    void *user);

/* Which tokens the heads of one held session retain. */
typedef struct ag_cache_run {
    uint32_t position, n; /* the positions [position, position + n) */
} ag_cache_run;

typedef struct ag_cache_head_view {
    size_t first_run, n_runs; /* of the view's runs; heads that retain the same may share them */
} ag_cache_head_view;

typedef struct ag_cache_layer_view {
    uint32_t first_head, n_heads; /* of the view's heads; 0: the layer has no cache of its own */
    uint32_t window;              /* newest positions that a query sees; 0: all */
} ag_cache_layer_view;

typedef struct ag_cache_view {
    uint64_t id;
    const ag_served_model *model;
    bool is_running;
    uint32_t n_tokens; /* that it has consumed */
    ag_dtype k_type, v_type;
    const char *policy;
    uint32_t budget, n_protected; /* tokens of a head, of them attention sinks; 0: none leave */
    uint64_t n_evictions, n_evicted, kv_bytes, shared_bytes;
    uint32_t n_layers, n_heads; /* heads of all layers */
    size_t n_runs, n_ids;
    const ag_cache_layer_view *layers; /* [n_layers] */
    const ag_cache_head_view *heads;   /* [n_heads] */
    const ag_cache_run *runs;          /* [n_runs] of a head ascending, and apart from each other */
    const int32_t *ids;                /* [n_ids] the tokens, from position 0 on */
    uint64_t reserved[4];
} ag_cache_view;

/* Waits until the engine is between two steps: not to be called by an event. AG_NOT_FOUND if
 * nothing is held by that id, or it is of another scope: which of these, nobody is told. AG_LIMIT
 * if the session has more than a million runs. */
AG_API ag_status ag_serving_view_session(ag_serving *s, uint64_t id, const char *scope,
                                         ag_cache_view **out, ag_error *err);
AG_API void ag_cache_view_destroy(ag_cache_view *v);

#ifdef __cplusplus
}
#endif
#endif
