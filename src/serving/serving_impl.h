/* SPDX-License-Identifier: Apache-2.0 */
/* Serving engine, for the files that implement it. Fields and functions belong to the engine thread
 * unless they say otherwise. */
#ifndef AG_SERVING_SERVING_IMPL_H
#define AG_SERVING_SERVING_IMPL_H

#include "serving/memory_budget.h"

enum {
    AG_SERVING_MAX_RUNNING = 256, /* answers at a time */
    AG_SERVING_MAX_LOADS = 2,     /* loads in params.swap_period_s before one is rejected */
};

/* Work that a caller waits for while the engine thread does it, between two steps. */
typedef struct ag_serving_job {
    struct ag_serving_job *next;
    ag_status (*run)(ag_serving *s, struct ag_serving_job *job, ag_error *err);
    ag_served_model *model; /* to be loaded; NULL: none */
    void *user;             /* data of other work */
    double since;           /* start of the job, in ag_now_s() */
    bool must_retry;        /* run() could not finish: it is called again */
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
    ag_condition work, done; /* the engine thread has work; a job is done */
    ag_request_queue queue;
    ag_served_models models;
    ag_mask_thread masks;
    ag_engine_lock engine_lock;
    ag_prefix_cache prefixes;
    ag_memory_budget budget;
    ag_model_loader loader;
    /* Guarded by `lock`. */
    ag_serving_job *jobs;
    bool has_new_keep_alive; /* the engine thread must check the models */
    ag_serving_stats stats;  /* last published statistics */
    uint64_t max_published;  /* highest memory_used that a caller has read */
    ag_session_list *sessions;
    /* Engine thread. */
    ag_serving_stats now;    /* current values of the statistics */
    ag_serving_job *retried; /* jobs that wait, for instance for a load */
    uint64_t n_chunks, round;
    _Atomic double load_times[AG_SERVING_MAX_LOADS]; /* starts of the last loads, oldest first */
    bool is_blocked;                                 /* a waiting request cannot begin yet */
    double published_at;
};

/* serving.c. Any thread but the engine's: runs the job on the engine thread and waits for it.
 * Returns the job's status. */
ag_status ag_serving_run_job(ag_serving *s, ag_serving_job *job, ag_error *err);

/* models.c */
/* Starts to load the weights unless they are loaded. AG_BUSY: they are being loaded, after those of
 * another model or after sessions have been written; or, with *swap_wait_s, they may be loaded
 * later. since: a load that failed after this time, in ag_now_s(), is not repeated. */
ag_status ag_served_model_ensure_loaded(ag_serving *s, ag_served_model *m, double since,
                                        double *swap_wait_s, ag_error *err);
/* Finishes the load that has ended, if there is one. */
void ag_models_finish_load(ag_serving *s);

/* Returns when weights expire next, in ag_now_s(); INFINITY: never. */
double ag_models_expiry(const ag_serving *s);
/* Frees the weights of models whose keep-alive has passed. */
void ag_models_unload_expired(ag_serving *s);

/* prefix_find.c */
/* Finds the longest prefix that the request can continue. AG_BUSY: a longer one is being reloaded
 * from a file, or read by another request. */
ag_status ag_prefix_find(ag_serving *s, ag_served_request *r, ag_prefix *out, ag_error *err);

/* run_request.c */
/* Begins a waiting request: memory, prefix, session. AG_BUSY: not now. */
ag_status ag_request_begin(ag_serving *s, ag_served_request *r, ag_error *err);
/* Begins the answers. The prompt has been read. */
ag_status ag_request_prompt_read(ag_serving *s, ag_served_request *r, ag_error *err);
/* Ends open answers as cancelled, reports the last event and destroys the request, which is in no
 * list. */
void ag_request_end(ag_serving *s, ag_served_request *r, ag_status st, const ag_error *err);

/* answer.c */
/* Creates sampler and decoder of answer `index`, with the seed of that answer. */
ag_status ag_answer_create(ag_answer *a, ag_served_request *r, size_t index, ag_error *err);
/* Chooses the next token of an answer that has logits, and emits it. Without a mask yet, it marks
 * the answer as late. */
ag_status ag_answer_choose_or_wait(ag_serving *s, ag_answer *a, ag_error *err);
/* Chooses the next tokens of late answers whose masks are made. Fails if a mask has failed. */
ag_status ag_request_choose_late(ag_serving *s, ag_served_request *r, ag_error *err);
/* Emits pending text, reports the end and caches the session. */
ag_status ag_answer_end(ag_serving *s, ag_answer *a, ag_finish reason, ag_error *err);
/* Writes the tokens that the session has consumed; the caller frees them. */
ag_status ag_answer_tokens(const ag_answer *a, ag_ids *out, ag_error *err);

/* embed.c */
/* Prepares the request for an embedding, in place of answers. */
ag_status ag_embedding_begin(ag_served_request *r, ag_error *err);
/* Adds a token's hidden state to the request `user`. An ag_logits_fn. */
bool ag_embedding_add_row(void *user, size_t i, const float *hidden);
/* Reports the embedding. The prompt has been read. */
ag_status ag_embedding_end(ag_served_request *r, ag_error *err);

/* scheduler.c. Runs one step of every running request, at most step_rows rows. */
void ag_serving_step(ag_serving *s);

/* idle.c */
/* Returns when a cached session should be compressed, in ag_now_s(); INFINITY: never. */
double ag_idle_due(const ag_serving *s);
/* Compresses a cached session if one is due. Stops as soon as other work arrives. */
void ag_idle_work(ag_serving *s);

/* stats.c */
/* Publishes statistics and the list of sessions: always, or if the last ones are old. */
void ag_serving_publish(ag_serving *s, bool always);
/* Drops a reference; the last one frees the list. NULL: nothing. */
void ag_session_list_release(ag_serving *s, ag_session_list *list);

#endif
