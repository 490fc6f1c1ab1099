/* SPDX-License-Identifier: Apache-2.0 */
/* Serving: an engine thread that batches requests of many clients, caches sessions for prefix
 * reuse, and keeps the process within one memory limit. Knows neither HTTP nor JSON.
 * docs/design/serving.md explains how the parts work together. */
#ifndef ANTIGRAVITY_SERVING_H
#define ANTIGRAVITY_SERVING_H

#include <antigravity/chat.h>
#include <antigravity/constrain.h>
#include <antigravity/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the engine ---- */

/* The engine: a thread that owns a backend and its models. Any thread may call the functions that
 * take an ag_serving. ag_serving_destroy() must not run at the same time as another call.
 * ag_serving_load_model(), ag_serving_view_session() and ag_serving_destroy() wait for the engine,
 * so an event callback must not call them.
 *
 * A request's tokens and logprobs depend on its parameters only, bit for bit, and not on other
 * requests, unless wide_steps is set. They may differ by rounding if part of the prompt came from a
 * cached session (n_cached), and on devices. With an eviction policy, a cached session also depends
 * on the turns in which it was read. */
typedef struct ag_serving ag_serving;

typedef struct ag_serving_params {
    ag_backend_params backend; /* for ag_backend_create() */
    uint64_t memory_limit;     /* bytes for the entire process; 0: no limit */
    /* Returns the bytes that the caller uses now (connections, queued texts), which count towards
     * memory_limit. Called on the engine's thread; may be NULL. */
    uint64_t (*caller_bytes)(void *user);
    void *caller_user;
    uint64_t caller_reserve; /* bytes set aside for the caller; 0. Messages assume that it grows
                              * with memory_limit */
    uint32_t max_running;    /* answers at a time; 64 */
    /* Waiting requests; 256. Their copies may take 64 MiB or 1/64 of memory_limit, at least 2 MiB.
     * Further requests fail with AG_BUSY; a request above the byte limit fails with AG_LIMIT. While
     * other clients wait, one client may use half of the queue, half of its bytes, half of
     * max_running, and half of the prompt rows of a step. A client that used more before loses its
     * newest waiting requests, which end with AG_BUSY, when other clients need the space. */
    uint32_t max_waiting;
    uint32_t step_rows; /* rows of a step; 512. Decoded tokens come first, then chunks of prompts of
                         * at most half of it */
    /* Batches requests even if that changes their rounding. This is faster for many answers on
     * processors with matrix units and on devices, but results then depend, by rounding, on other
     * requests. */
    bool wide_steps;
    /* Memory of cached sessions. UINT64_MAX: what memory_limit leaves; without a limit, a quarter
     * of the memory that the system, the control group and the device would have available without
     * them (1 GiB if it is unknown). */
    uint64_t prefix_bytes;
    /* Directory for cached sessions that are removed from memory, which are found again after a
     * restart; may be NULL. It is created with mode 0700; AG_IO if other users may enter it. Its
     * files contain the scopes. */
    const char *prefix_dir;
    uint64_t prefix_dir_bytes; /* 4 GiB */
    /* Share of tokens to replay for ag_session_compress() of cached sessions without a policy; 0:
     * never. A session is compressed while no request runs: after replay_after_s without use, or at
     * once if three quarters of memory_limit are used. It retains replay_keep_ratio of its tokens
     * or replay_keep_tokens, whichever is fewer. A request cancels a running replay. A replay takes
     * the memory of at most two such sessions, for which another one may be removed. A compressed
     * session can only be continued at its end; prompts that share a shorter prefix are read in
     * full. */
    float replay_share, replay_keep_ratio; /* 0, 0.25 */
    uint32_t replay_keep_tokens;           /* 0: the ratio applies alone */
    uint32_t replay_after_s;               /* 30 */
    /* A load that would free the weights of another model fails with AG_BUSY if two models were
     * loaded in the last swap_period_s, so that clients of models that do not fit together do not
     * load them again and again. 30; 0: no limit */
    double swap_period_s;
    uint64_t reserved[5]; /* must be 0 */
} ag_serving_params;
AG_API ag_serving_params ag_serving_defaults(void);

AG_API ag_status ag_serving_create(const ag_serving_params *params, ag_serving **out,
                                   ag_error *err);
/* Cancels running requests, which end with AG_FINISH_CANCELLED, writes cached sessions to
 * prefix_dir if it is set, and destroys the engine. */
AG_API void ag_serving_destroy(ag_serving *s);

/* ---- models ---- */

typedef struct ag_served_model ag_served_model; /* exists as long as the engine */

typedef struct ag_served_model_params {
    const char *name;          /* name in requests; ag_serving_add_alias() adds others */
    const char *path;          /* for ag_model_load() */
    ag_model_params model;     /* including progress */
    ag_session_params session; /* defaults of its requests: context, types, policy */
    const char *chat_template; /* NULL: the model's own */
    double keep_alive_s;       /* as of ag_serving_keep_alive(), after each load; 0: INFINITY */
    uint64_t reserved[3];      /* must be 0 */
} ag_served_model_params;

/* Adds a model: reads configuration, tokenizer and template. The first request that needs the
 * weights loads them. On the CPU a thread of low priority loads them beside the engine's thread,
 * and calls progress and log; requests of other models continue. Weights are freed when another
 * model needs the memory, the least recently used ones first. Fails with AG_INVALID if the name is
 * in use, and with AG_LIMIT if there are 128 models. */
AG_API ag_status ag_serving_add_model(ag_serving *s, const ag_served_model_params *params,
                                      ag_served_model **out, ag_error *err);
AG_API ag_status ag_serving_add_alias(ag_serving *s, ag_served_model *m, const char *name,
                                      ag_error *err);
/* Returns the model of this name or alias, NULL if there is none. The name NULL selects the first
 * model. */
AG_API ag_served_model *ag_serving_model(ag_serving *s, const char *name);
AG_API size_t ag_serving_n_models(const ag_serving *s);
AG_API ag_served_model *ag_serving_model_at(ag_serving *s, size_t i);
/* Removes a model: its names are free, it is in no list, and its weights are freed after the
 * requests that were submitted. `m` stays valid until the engine is destroyed, with its tokenizer
 * and template, but requests of it fail with AG_NOT_FOUND. */
AG_API void ag_serving_remove_model(ag_serving *s, ag_served_model *m);
/* Loads the weights now and waits for the result, so that errors appear at the start. AG_BUSY: see
 * swap_period_s. */
AG_API ag_status ag_serving_load_model(ag_serving *s, ag_served_model *m, ag_error *err);
/* Returns the seconds until a load may free the weights of another model; 0: it may now. */
AG_API double ag_serving_swap_wait(const ag_serving *s);

/* Frees the weights, and the cached sessions of the model, `seconds` after the end of its last
 * request: at once if that has passed. INFINITY: when another model needs the memory. Applies until
 * the weights are freed. The next request loads the weights again. Does not wait. */
AG_API void ag_serving_keep_alive(ag_serving *s, ag_served_model *m, double seconds);
/* Returns whether the weights are in memory. */
AG_API bool ag_served_model_is_loaded(const ag_served_model *m);
/* Returns whether the last load failed for another reason than memory: the files are wrong. */
AG_API bool ag_served_model_is_broken(const ag_served_model *m);
/* Returns the seconds until the weights are freed if no request comes; INFINITY: no time is set. */
AG_API double ag_served_model_expires_in(const ag_served_model *m);

/* Properties of a model besides its weights. Immutable; any thread may use them. */
AG_API const char *ag_served_model_name(const ag_served_model *m);
AG_API const ag_model_info *ag_served_model_info(const ag_served_model *m);
/* Returns the tokenizer, NULL if the model has none; its answers are then ids without text. */
AG_API const ag_tokenizer *ag_served_model_tokenizer(const ag_served_model *m);
/* Returns the chat format, NULL if the model has no chat template. */
AG_API const ag_chat_format *ag_served_model_format(const ag_served_model *m);
/* Return the model's defaults. */
AG_API const ag_sampler_params *ag_served_model_sampling(const ag_served_model *m);
AG_API const ag_session_params *ag_served_model_session(const ag_served_model *m);
/* Returns the vocabulary for constraints, which is created by the first call and then shared. */
AG_API ag_status ag_served_model_vocab(ag_served_model *m, const ag_constraint_vocab **out,
                                       ag_error *err);

/* ---- requests ---- */

typedef enum ag_request_kind {
    AG_REQUEST_GENERATE,
    AG_REQUEST_EMBED, /* one vector for the prompt */
} ag_request_kind;

/* Combination of final hidden states into the vector of a text. */
typedef enum ag_embedding_pooling {
    AG_EMBEDDING_MEAN, /* mean over all tokens */
    AG_EMBEDDING_LAST, /* the last token */
    AG_EMBEDDING_FIRST,
} ag_embedding_pooling;

typedef struct ag_logprob {
    int32_t id;
    float logprob; /* natural logarithm; of the model's distribution before sampling parameters */
} ag_logprob;

typedef enum ag_request_event_kind {
    AG_REQUEST_STARTED,      /* n_prompt and n_cached are valid; the prompt is read next */
    AG_REQUEST_READ,         /* n_read of n_prompt tokens of the prompt have been read */
    AG_REQUEST_PROMPT_TOKEN, /* with prompt_logprobs: a token of the prompt, in order */
    AG_REQUEST_TOKEN,        /* a token of one answer */
    AG_REQUEST_ANSWERED,     /* one answer has ended: finish and its statistics */
    AG_REQUEST_EMBEDDED,
    AG_REQUEST_ENDED, /* always the last event: status and, unless that is AG_OK, error */
} ag_request_event_kind;

typedef struct ag_request_event {
    ag_request_event_kind kind;
    size_t n_prompt, n_cached, n_read;
    size_t answer;    /* TOKEN, ANSWERED: index of the answer, from 0 */
    int32_t id;       /* TOKEN, PROMPT_TOKEN; -1: remaining text at the end of the answer */
    const char *text; /* TOKEN: [len] text that this token completes, complete characters */
    size_t len;
    float logprob; /* TOKEN, PROMPT_TOKEN, with params.logprobs: of the token. NAN: the prompt's
                    * first token, which nothing precedes */
    const ag_logprob *top; /* TOKEN, PROMPT_TOKEN: [n_top] the most likely tokens */
    size_t n_top;
    ag_finish finish;   /* ANSWERED */
    size_t stop;        /* ANSWERED by a stop string: its index */
    size_t n_generated; /* ANSWERED: tokens without a final EOS */
    const int32_t *ids; /* ANSWERED: [n_ids] sampled ids without the stop token */
    size_t n_ids;
    double queue_s, prefill_s, first_token_s, decode_s; /* ANSWERED */
    const float *embedding;                             /* EMBEDDED: [n_embedding], norm 1 */
    size_t n_embedding;
    /* ENDED. AG_CANCELLED: by ag_serving_cancel(), the deadline or ag_serving_destroy(); AG_NOMEM:
     * it does not fit in memory_limit; AG_BUSY: another client needed its space in the queue, or
     * swap_wait_s is positive: the model may be loaded after these seconds (swap_period_s). */
    ag_status status;
    const ag_error *error;
    double swap_wait_s;
    uint64_t reserved[3];
} ag_request_event;

/* Receives an event. Called on the engine's thread; must not wait. The event's pointers are valid
 * for the call. */
typedef void (*ag_request_fn)(void *user, const ag_request_event *event);

typedef struct ag_request_params {
    ag_request_kind kind;
    ag_served_model *model;
    const char *scope;     /* isolates cached sessions: only requests of equal scope share them (as
                            * vLLM's cache_salt); NULL: the scope of requests without one */
    const char *client;    /* copied; the client whose share of queue and steps is used: see
                            * max_waiting. NULL: `scope` */
    const int32_t *prompt; /* [n_prompt] copied */
    size_t n_prompt;
    size_t n_answers; /* 1; answer i uses the seed sampling.seed + i */
    ag_sampler_params sampling;
    /* A constraint for each answer, transferred; may be NULL. The engine's threads use it, so other
     * threads must not use a clone of it. AG_LIMIT ends a request whose constraint is too
     * expensive: see max_work of ag_constraint_params. */
    ag_constraint *constraint;
    int64_t max_tokens; /* maximum of each answer; -1: no limit */
    bool ignore_eos;
    const char *const *stop; /* [n_stop] copied; not emitted; at most 256 of 1024 bytes */
    size_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] copied; end an answer like the model's EOS ids */
    size_t n_stop_ids;
    bool keep_special; /* write special tokens as text */
    bool logprobs;
    /* Report each token of the prompt too, and the token that ends an answer, which has no text.
     * Needs logprobs. Reads the entire prompt: no part comes from a cached session. */
    bool prompt_logprobs;
    uint32_t n_top; /* most likely alternatives of each token, at most 20; needs logprobs */
    ag_embedding_pooling pooling; /* EMBED */
    /* Context, types of the cache, policy and budget of this request. prefill_chunk is ignored: the
     * engine uses half of step_rows. */
    ag_session_params session;
    bool no_prefix;    /* neither use nor leave a cached session */
    uint32_t n_system; /* first tokens that a policy never evicts; 0: session.eviction applies */
    double deadline_s; /* seconds from now after which the request is cancelled; 0: none */
    ag_request_fn event;
    void *user;
    uint64_t reserved[7]; /* must be 0 */
} ag_request_params;
AG_API ag_request_params ag_request_defaults(ag_served_model *m);

typedef uint64_t ag_request_id; /* never reused */

/* Checks a request and queues it. On error the constraint stays the caller's and no event is sent.
 * AG_INVALID names the invalid parameter, AG_LIMIT what is too long, AG_BUSY how many requests are
 * waiting. */
AG_API ag_status ag_serving_submit(ag_serving *s, const ag_request_params *params,
                                   ag_request_id *id, ag_error *err);
/* Cancels a request: it ends, with its events, after the running step at the latest. Ignores a
 * request that has ended. Does not wait. */
AG_API void ag_serving_cancel(ag_serving *s, ag_request_id id);

/* ---- state of the engine ---- */

typedef struct ag_serving_stats {
    uint32_t n_running, n_waiting, n_prefix_entries;
    uint64_t n_requests, n_refused, n_cancelled, n_failed;
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens, n_steps, n_rows;
    double busy_s;                                   /* time the engine's thread was computing */
    uint64_t memory_limit, memory_used, memory_peak; /* bytes that count towards the limit */
    uint64_t weight_bytes, kv_bytes, prefix_bytes, workspace_bytes, device_bytes, caller_bytes;
    uint64_t file_bytes; /* resident pages of files, which do not count */
    /* Files in prefix_dir that were written, read, or failed; the log has the reason. */
    uint64_t n_prefix_written, n_prefix_read, n_prefix_failed;
    uint64_t n_models_loaded; /* models with weights in memory */
    /* Compressions of cached sessions: completed, failed, bytes freed. */
    uint64_t n_replays, n_replays_failed, replay_bytes;
    uint64_t reserved[1];
} ag_serving_stats;
AG_API void ag_serving_get_stats(ag_serving *s, ag_serving_stats *out);

/* A session in memory: a running one or a cached one. */
typedef struct ag_resident_session {
    uint64_t id;
    const char *model, *scope;
    bool is_running;
    uint32_t n_tokens; /* consumed tokens */
    uint32_t n_slots;  /* slots of the fullest head */
    /* shared_bytes of a cached session is as of when it was cached or last forked. */
    uint64_t kv_bytes, shared_bytes;
    const char *policy;
    uint64_t n_evicted;
    double idle_s;
    uint64_t reserved[4];
} ag_resident_session;
/* Calls each(user, session) for each session in memory, on the calling thread, until `each` returns
 * false. */
AG_API void ag_serving_each_session(ag_serving *s,
                                    bool (*each)(void *user, const ag_resident_session *h),
                                    void *user);

/* A range of retained tokens. */
typedef struct ag_cache_run {
    uint32_t position, n; /* the positions [position, position + n) */
} ag_cache_run;

typedef struct ag_cache_head_view {
    size_t first_run, n_runs; /* range in the view's runs; heads with equal runs may share them */
} ag_cache_head_view;

typedef struct ag_cache_layer_view {
    uint32_t first_head, n_heads; /* range in the view's heads; 0: no cache of its own */
    uint32_t window;              /* newest positions that a query attends to; 0: all */
} ag_cache_layer_view;

/* The tokens that each head of a session retains. */
typedef struct ag_cache_view {
    uint64_t id;
    const ag_served_model *model;
    bool is_running;
    uint32_t n_tokens; /* consumed tokens */
    ag_dtype k_type, v_type;
    const char *policy;
    uint32_t budget, n_protected; /* tokens of a head, protected tokens; 0 without a policy */
    uint64_t n_evictions, n_evicted, kv_bytes, shared_bytes;
    uint32_t n_layers, n_heads; /* heads of all layers */
    size_t n_runs, n_ids;
    const ag_cache_layer_view *layers; /* [n_layers] */
    const ag_cache_head_view *heads;   /* [n_heads] */
    const ag_cache_run *runs;          /* [n_runs] ascending within a head, without overlap */
    const int32_t *ids;                /* [n_ids] token ids from position 0 on */
    uint64_t reserved[4];
} ag_cache_view;

/* Creates a view of a session. Waits until the engine is between two steps, so an event callback
 * must not call it. Fails with AG_NOT_FOUND if no session in memory has that id and scope; the
 * message does not tell which of both differs. Fails with AG_LIMIT for more than a million runs. */
AG_API ag_status ag_serving_view_session(ag_serving *s, uint64_t id, const char *scope,
                                         ag_cache_view **out, ag_error *err);
AG_API void ag_cache_view_destroy(ag_cache_view *v);

#ifdef __cplusplus
}
#endif
#endif
