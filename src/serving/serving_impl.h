/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's inside, for the files that implement it. What is not said to be under the lock
 * belongs to the engine's thread. */
#ifndef AG_SERVING_SERVING_IMPL_H
#define AG_SERVING_SERVING_IMPL_H

#include "cache/sys_monitor.h"
#include "platform/thread.h"
#include "serving/masks.h"

#include <antigravity/serving.h>
#include <stdatomic.h>

enum {
    AG_SERVING_MAX_RUNNING = 256, /* answers at a time */
    AG_SERVING_MAX_MODELS = 128,
    AG_SERVING_EXTEND_TOKENS = 256, /* tokens of an answer without a limit of its own, at a time */
};

/* A client that has requests. It is freed with the last of them. */
typedef struct ag_serving_client {
    struct ag_serving_client *next;
    char *name; /* "": of requests without one */
    /* Under the lock. */
    uint32_t n_requests, n_waiting;
    uint64_t waiting_bytes;
    /* The engine's thread. */
    size_t n_answers; /* answers of running requests */
    size_t n_reading; /* requests whose prompts are incomplete, in this round */
    size_t n_rows;    /* rows of prompts in this step */
    uint64_t served;  /* the turn of its last chunk; 0: none yet */
} ag_serving_client;

struct ag_served_model {
    ag_serving *engine;
    char *name, *path;
    struct ag_served_model_alias {
        struct ag_served_model_alias *next;
        char *name;
    } * aliases; /* under the lock */
    ag_model_params load;
    ag_session_params session;
    ag_model_info info;
    ag_tokenizer *tokenizer;
    ag_chat_format *format; /* NULL: none */
    ag_sampler_params sampling;
    ag_mutex vocab_lock;
    ag_constraint_vocab *vocab; /* under it; NULL: nobody has asked */
    ag_replay_request replay;   /* empty without replays, or without a tokenizer */

    ag_model *model;        /* NULL: not loaded */
    size_t n_requests;      /* that are running on it */
    double used_at;         /* when the last one ended */
    size_t touched_rows;    /* the most that a pass has had: so much of the workspace is resident */
    uint64_t base_bytes;    /* in use of the backend's memory: weights, workspace */
    uint64_t scratch_bytes; /* of the workspace and of operations, as planned */
    uint64_t scratch_left;  /* of it, what was not resident when the weights were loaded */
};

/* One answer to a request: where it stands, and what makes text of it. */
struct ag_answer {
    ag_served_request *request;
    size_t index;
    ag_session *session; /* owned; NULL before the prompt is read and after the end */
    ag_sampler *sampler;
    ag_decoder *decoder;
    ag_text pending; /* decoded, but perhaps the beginning of a stop string */
    ag_ids ids;      /* chosen; all have been fed, but for the last of one that is not late */
    size_t *starts;  /* [ids.cap] bytes of text before each of them */
    size_t n_text;   /* bytes of text so far */
    size_t n_emitted;
    uint64_t n_reserved; /* tokens that there is memory for */
    bool is_late;        /* its logits are there, its mask was not */
    bool ended;
    ag_finish finish;
    size_t stop; /* which stop string ended it */
    double first_at, last_at;
};

struct ag_served_request {
    ag_served_request *next;
    ag_request_id id;
    ag_request_params p; /* its texts and ids are owned copies */
    uint64_t bytes;      /* of these copies */
    ag_serving_client *client;
    bool is_displaced;             /* under the lock: another client has its place in the queue */
    double submitted_at, deadline; /* deadline 0: none */
    atomic_bool cancelled;         /* by any thread */

    double started_at, read_at;
    ag_session *session;      /* reads the prompt; then the first answer's. NULL: not reading */
    size_t n_overtaken;       /* answers of others that began before it, though they came later */
    bool awaits_prefix;       /* it could not begin because of one that is on its way */
    bool may_wait_for_prefix; /* it may wait for another request to read it */
    bool has_fetched;         /* a file was read for it */
    bool has_begun;           /* it counts among those that run */
    bool is_managed;          /* a policy lets tokens leave */
    bool has_evicted;         /* or has inherited a session that did */
    size_t n_cached, n_read;
    uint64_t round;       /* in which it was last looked at */
    uint64_t served;      /* when a chunk of its prompt was last read, in chunks */
    ag_answer *answers;   /* [p.n_answers] */
    size_t n_open;        /* answers that have not ended */
    size_t n_late;        /* answers that wait for the mask thread */
    ag_mask_group *masks; /* NULL: no constraint, or not begun */
    uint64_t kv_reserved, fixed_reserved;
    uint64_t constraint_reserved; /* of what it grows by, with what is there */
    size_t n_pooled;
    double *pooled; /* [hidden_size] of an embedding; NULL: answers are generated */
    ag_status status;
    ag_error error;
};

typedef enum ag_prefix_state {
    AG_PREFIX_RESIDENT,
    AG_PREFIX_QUEUED,  /* it waits to be written, and may stay after all */
    AG_PREFIX_WRITING, /* just now: it is gone afterwards, and may be forked until then */
} ag_prefix_state;

/* A session that no request uses. */
typedef struct ag_prefix_entry {
    struct ag_prefix_entry *next;
    uint64_t id;
    ag_served_model *model;
    char *scope; /* NULL: of requests without one */
    ag_session *session;
    ag_session_params params;
    ag_ids ids;                   /* that it has consumed */
    ag_resident_session resident; /* its figures, which do not change; without scope */
    bool has_evicted;
    bool pinned;        /* about to be used */
    bool is_compressed; /* a replay has made it so, or could not */
    double retry_at;    /* there was no room for a replay: not again until then */
    ag_prefix_state state;
    double used_at;
} ag_prefix_entry;

typedef struct ag_prefix_file ag_prefix_file;

/* A session that is to come from its file for a request that waits for it: one at a time. */
typedef struct ag_prefix_fetch {
    ag_prefix_file *file; /* NULL: none */
    ag_served_request as; /* whose it will be: id, model, session and a scope of its own */
    uint64_t bytes;       /* that it will take, and are spared for it */
} ag_prefix_fetch;

/* What others wait for: the thread that writes and reads files of sessions has sessions, models and
 * lists to itself while it has the floor, which the engine's thread gives it between two steps. It
 * gives it back wherever it waits for the disk. Under the lock. */
typedef struct ag_engine_lock {
    ag_os_thread thread;
    bool has_thread;
    bool has_work, is_ending, has_ended;
    bool is_requested, is_held;
    ag_condition changed;
    double write_until;              /* what is not written by then is not written; 0: ever */
    void (*before_disk)(void *user); /* for tests; NULL: none */
    void *before_disk_user;
} ag_engine_lock;

/* Work that a caller waits for while the engine's thread does it, between two steps. */
typedef struct ag_serving_job {
    struct ag_serving_job *next;
    ag_status (*run)(ag_serving *s, struct ag_serving_job *job, ag_error *err);
    ag_served_model *model; /* to be loaded */
    void *user;             /* what other work is about */
    ag_status status;
    ag_error error;
    bool done;
} ag_serving_job;

typedef struct ag_session_list ag_session_list;

struct ag_serving {
    ag_serving_params params;
    ag_backend *backend;
    ag_os_thread thread;
    ag_mutex lock;
    ag_condition work, done;
    /* Under the lock. The running list is changed by the engine's thread alone, which may therefore
     * read it without. */
    bool stopping;
    ag_served_request *waiting, *running;
    uint32_t n_waiting;                 /* without those that are displaced */
    atomic_uint_fast64_t waiting_bytes; /* of their copies; read without the lock, too */
    ag_serving_client *clients;
    ag_serving_job *jobs;
    ag_request_id last_id;
    ag_serving_stats stats; /* as last published */
    uint64_t max_published; /* the highest memory_used of which somebody was told */
    uint64_t n_submitted, n_rejected;
    uint64_t n_seen; /* n_submitted when the engine last read the queue */
    ag_session_list *sessions;

    /* Grows under the lock; what is there stays. */
    ag_served_model *models[AG_SERVING_MAX_MODELS];
    atomic_size_t n_models;

    ag_serving_stats now; /* the engine's own figures */
    size_t n_answers;     /* of running requests */
    uint32_t chunk;       /* tokens of a prompt in a step */
    uint64_t n_chunks, round, n_turns;
    bool is_fetching; /* a session from a file is being parked */
    bool has_warned;  /* sessions that watch memory */
    bool is_blocked;  /* what waits, waits for a file */
    ag_prefix_entry *prefixes;
    size_t n_writing;             /* of these, by way of files */
    char *prefix_dir;             /* a copy; NULL: none */
    struct ag_prefix_file *files; /* of what was parked and has left memory */
    ag_prefix_fetch fetch;
    bool has_failed_writing; /* the last time, and the log has it */
    ag_engine_lock engine_lock;
    ag_mask_thread masks;
    ag_sys_monitor *monitor; /* NULL: something else bounds what is parked */
    double published_at;
};

/* serving.c. Has the job run, and waits for it; what it returns. */
ag_status ag_serving_run_job(ag_serving *s, ag_serving_job *job, ag_error *err);

/* models.c */
void ag_served_model_destroy(ag_served_model *m);
/* On the engine's thread: weights are there when it returns AG_OK. */
ag_status ag_served_model_ensure_loaded(ag_serving *s, ag_served_model *m, ag_error *err);
void ag_served_model_unload(ag_serving *s, ag_served_model *m);

/* queue.c */
void ag_served_request_destroy(ag_served_request *r);
/* Takes a request out of a list under the lock. */
void ag_serving_unlink(ag_serving *s, ag_served_request **list, ag_served_request *r);
/* From those that wait to the end of those that run. */
void ag_serving_start(ag_serving *s, ag_served_request *r);

/* Bytes that waiting requests may take together. */
uint64_t ag_serving_max_waiting_bytes(uint64_t memory_limit);

/* clients.c. The first four: under the lock. */
/* Returns the client of this name, for one request more. NULL: no memory. */
ag_serving_client *ag_client_acquire(ag_serving *s, const char *name);
void ag_client_release(ag_serving *s, ag_serving_client *c);
/* Reserves a place in the queue. Fails with AG_BUSY if the client has its share, or all places are
 * taken and no other client exceeds its share. */
ag_status ag_client_reserve_place(ag_serving *s, ag_serving_client *c, uint64_t bytes,
                                  ag_error *err);
void ag_client_release_place(ag_serving *s, const ag_served_request *r);
/* Returns whether the request must leave the free places of running answers to other clients. */
bool ag_client_must_wait(ag_serving *s, const ag_served_request *r);
void ag_client_begin_step(ag_serving *s);
/* Returns the number of requests that still read a prompt, and sets n_reading of each client. */
size_t ag_client_count_readers(ag_serving *s, const ag_served_model *m);
/* Counts n prompt rows of the request. Fails if they exceed the share of its client while others of
 * the n_readers are of other clients. */
bool ag_client_reserve_rows(ag_serving *s, const ag_served_request *r, size_t n_readers, size_t n);

/* request.c */
/* Takes the first waiting one into the step: memory, prefix, session. AG_BUSY: not now. */
ag_status ag_request_begin(ag_serving *s, ag_served_request *r, ag_error *err);
/* The prompt has been read: answers begin. */
ag_status ag_request_prompt_read(ag_serving *s, ag_served_request *r, ag_error *err);
/* What is still open ends as cancelled or failed; the request's last event. It is not in a list any
 * more and is destroyed. */
void ag_request_end(ag_serving *s, ag_served_request *r, ag_status st, const ag_error *err);
void ag_request_send_event(const ag_served_request *r, ag_request_event *e);

/* answer.c */
ag_status ag_answer_create(ag_answer *a, ag_served_request *r, size_t index, ag_error *err);
void ag_answer_release(ag_answer *a);
/* Chooses the next token from the session's logits and shows it; ends the answer if it was the
 * last. */
ag_status ag_answer_choose(ag_serving *s, ag_answer *a, ag_error *err);
/* Shows what was waiting, tells the figures, parks the session. */
ag_status ag_answer_end(ag_serving *s, ag_answer *a, ag_finish reason, ag_error *err);
/* Tokens that the session has consumed; data is the caller's. */
ag_status ag_answer_tokens(const ag_answer *a, ag_ids *out, ag_error *err);

/* embed.c */
/* The request gets no answers, but a vector. */
ag_status ag_embedding_begin(ag_served_request *r, ag_error *err);
/* An ag_logits_fn: a token's hidden state joins those of the request `user`. */
bool ag_embedding_add_row(void *user, size_t i, const float *hidden);
/* The prompt has been read. */
ag_status ag_embedding_end(ag_served_request *r, ag_error *err);

/* logprobs.c. The logarithm of the probability of `id`, and the n most likely. */
float ag_logprob_of(const float *logits, size_t n_vocab, int32_t id, ag_logprob *top, size_t n);

/* scheduler.c. One step of every running request, at most step_rows rows. */
void ag_serving_step(ag_serving *s);

/* prefix_store.c */
/* What a request can go on from. */
typedef struct ag_prefix {
    ag_prefix_entry *entry; /* NULL: the session of a running request, or none */
    ag_session *session;    /* borrowed; NULL: none */
    size_t n;               /* tokens of the prompt that need not be read */
    bool is_full_match;     /* all that the session has consumed */
    bool has_evicted;
} ag_prefix;
/* AG_BUSY: it is on its way, from a file or through another request. */
ag_status ag_prefix_find(ag_serving *s, ag_served_request *r, ag_prefix *out, ag_error *err);
/* What whoever goes on from it need not take anew. */
uint64_t ag_prefix_shared_bytes(const ag_prefix *from);
/* A session that stands behind the prefix. */
ag_status ag_prefix_acquire(ag_serving *s, ag_prefix *from, ag_session **out, ag_error *err);
/* Transfers session and ids; without ids, and without memory for the rest, they are dropped. */
void ag_prefix_store_session(ag_serving *s, const ag_served_request *r, ag_session *session,
                             ag_ids *ids);
/* The one that is least worth keeping leaves, or begins to; false: there is none that stays. */
bool ag_prefix_evict_one(ag_serving *s);
/* At once, without a file. */
void ag_prefix_drop(ag_serving *s, ag_prefix_entry *k);
void ag_prefix_drop_all(ag_serving *s, const ag_served_model *of);
void ag_prefix_set_state(ag_serving *s, ag_prefix_entry *k, ag_prefix_state state);
bool ag_prefix_has(const ag_serving *s, const ag_served_model *m);
uint64_t ag_prefix_bytes(const ag_serving *s);
/* Of those that are leaving. */
uint64_t ag_prefix_writing_bytes(const ag_serving *s);
/* Parameters of the session that the request needs. */
ag_session_params ag_request_session_params(const ag_serving *s, const ag_served_request *r);

/* prefix_files.c. Nothing of it does anything without params.prefix_dir. */
ag_status ag_prefix_files_open(ag_serving *s, ag_error *err);
void ag_prefix_files_release(ag_serving *s);
/* All that are parked are to be written, if they are worth it. */
void ag_prefix_files_queue_all(ag_serving *s);
/* Whether a session that is to leave memory is to be written before. */
bool ag_prefix_files_should_write(ag_serving *s, const ag_prefix_entry *k);
/* AG_BUSY: a session that has clearly more tokens in common with the request's prompt comes from a
 * file, or will when another one has come. AG_OK: there is none, or the request has had one. */
ag_status ag_prefix_files_fetch(ag_serving *s, ag_served_request *r, size_t better_than,
                                ag_error *err);
/* With the floor: reads or writes one; false: there is nothing to do. */
bool ag_prefix_files_run_next(ag_serving *s);

/* prefix_thread.c */
ag_status ag_engine_lock_open(ag_serving *s, ag_error *err);
/* There is something to be read or written. */
void ag_engine_lock_notify(ag_serving *s);
/* Gives the floor to who wants it, and waits until it is given back. */
void ag_engine_lock_yield(ag_serving *s);
/* The same, and waits until somebody wants it. */
void ag_engine_lock_wait(ag_serving *s);
/* Writes what is parked, newest first, as far as it comes in half a minute, and ends the thread.
 * The engine's own has ended. */
void ag_engine_lock_close(ag_serving *s);
/* For the thread of the files: around whatever waits for the disk. user: the ag_serving. */
void ag_engine_lock_release(void *user);
void ag_engine_lock_acquire(void *user);

/* governor.c */
/* A session that cannot go back leaves a copy where its prompt ends. */
bool ag_model_needs_prompt_copies(const ag_model_info *info);
/* Makes room for so many bytes more: AG_NOMEM, with the numbers, if there is none. */
ag_status ag_memory_budget_reserve(ag_serving *s, uint64_t bytes, const ag_served_model *keep,
                                   const char *what, ag_error *err);
/* The same for a model's weights, what its steps need, and one small request. */
ag_status ag_memory_budget_reserve_weights(ag_serving *s, ag_served_model *m, uint64_t weights,
                                           ag_error *err);
/* What the limit is about, now. */
uint64_t ag_memory_budget_used(const ag_serving *s);
/* What a model takes beside its weights, and until it is resident. */
uint64_t ag_memory_budget_scratch(const ag_serving *s, const ag_served_model *m, ag_error *err);
/* Fills in what the request will take at most; `cached` tokens are there already. */
ag_status ag_memory_budget_plan_request(const ag_serving *s, ag_served_request *r, ag_error *err);
/* Before a request's constraint grows: more for it, if what was promised runs short. */
ag_status ag_memory_budget_extend_constraint(ag_serving *s, ag_served_request *r, ag_error *err);
/* Returns the bytes of a request's constraint from which on it must grow first. */
uint64_t ag_memory_budget_constraint_limit(const ag_serving *s, const ag_served_request *r);
/* Tokens more for an answer that has no limit of its own; false: there is no memory. */
bool ag_memory_budget_extend_answer(ag_serving *s, ag_answer *a);

/* What there is too little of for so many bytes more, if nothing is given up for them. */
uint64_t ag_memory_budget_shortfall(const ag_serving *s, uint64_t bytes);

/* idle.c */
/* When something is to be done that can wait; INFINITY: there is nothing. */
double ag_idle_due(const ag_serving *s);
/* Does it, if that is now and as long as nothing else comes. */
void ag_idle_work(ag_serving *s);

/* stats.c */
/* Its figures, without scope and as if just used. */
ag_resident_session ag_resident_session_of(ag_session *session, uint64_t id,
                                           const ag_served_model *m,
                                           const ag_session_params *params);
void ag_serving_publish(ag_serving *s, bool always);
void ag_session_list_release(ag_serving *s, ag_session_list *list);

#endif
