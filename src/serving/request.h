/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and their answers, from submission to the last event. */
#ifndef AG_SERVING_REQUEST_H
#define AG_SERVING_REQUEST_H

#include "serving/masks.h"

#include <antigravity/serving.h>
#include <stdatomic.h>

/* Tokens for which memory is reserved at a time, for an answer without max_tokens. */
enum { AG_SERVING_EXTEND_TOKENS = 256 };

typedef struct ag_served_request ag_served_request;
typedef struct ag_serving_client ag_serving_client;

/* One of the answers to a request. */
typedef struct ag_answer {
    ag_served_request *request;
    size_t index;
    ag_session *session; /* owned; NULL before the prompt is read and after the end */
    ag_sampler *sampler;
    ag_decoder *decoder;
    ag_text pending; /* decoded text that may be the start of a stop string */
    ag_ids ids;      /* chosen tokens; all are fed, but for the last one unless is_late */
    size_t *starts;  /* [ids.n] offset in the text of each token */
    size_t starts_cap;
    size_t n_text; /* bytes of text so far */
    size_t n_emitted;
    uint64_t n_reserved; /* tokens that memory is reserved for */
    bool is_late;        /* it has logits, but no mask yet */
    int32_t pending_id;  /* sampled token that fires a trigger, not accepted yet; -1: none */
    int32_t chosen;      /* token that the step has chosen on the device; -1: none */
    bool ended;
    ag_finish finish;
    size_t stop; /* index of the stop string that ended it */
    double first_at, last_at;
} ag_answer;

struct ag_served_request {
    ag_served_request *next;
    ag_request_id id;
    ag_request_params p; /* texts and ids are owned copies; p.session is complete */
    uint64_t bytes;      /* bytes of these copies */
    ag_serving_client *client;
    bool
        is_displaced; /* another client has its place in the queue; guarded by the engine's mutex */
    double submitted_at, deadline; /* deadline 0: none */
    atomic_bool cancelled;         /* set by any thread */

    /* Engine thread. */
    double started_at, read_at;
    ag_session *session; /* reads the prompt, then becomes the first answer's; NULL: not reading */
    size_t n_overtaken;  /* answers of later requests that began before it */
    bool awaits_prefix;  /* it could not begin: its prefix is being read or reloaded */
    bool awaits_load;    /* it could not begin: a model is being loaded */
    double swap_wait_s;  /* positive: its model may only be loaded later, so it ends */
    bool may_wait_for_prefix; /* it may wait for a prefix that another request is reading */
    bool has_fetched;         /* a file was reloaded for it */
    bool has_begun;           /* it counts among the running requests */
    bool is_managed;          /* a policy evicts tokens */
    bool has_evicted;         /* its session inherited one that has lost tokens */
    size_t n_cached, n_read;  /* tokens of the prompt: from the cache; so far */
    size_t n_scored;          /* tokens of the prompt that were reported, with prompt_logprobs */
    uint64_t round;           /* the last round of prompt chunks that considered it */
    uint64_t served;          /* number of the last chunk that was read of its prompt */
    ag_answer *answers;       /* [p.n_answers] */
    size_t n_open;            /* answers that have not ended */
    size_t n_late;            /* answers that wait for the mask thread */
    ag_mask_group *masks;     /* NULL: no constraint, or not begun */
    uint64_t kv_reserved, fixed_reserved; /* bytes */
    uint64_t constraint_reserved;         /* bytes, including what the constraint uses */
    size_t n_pooled;                      /* tokens whose hidden states are in `pooled` */
    double *pooled; /* [hidden_size] sums of an embedding; NULL: answers are generated */
    ag_status status;
    ag_error error;
};

/* Returns the bytes of the copies that a request makes of its parameters. */
uint64_t ag_served_request_bytes(const ag_request_params *p);
/* Returns the name of the client that the request counts for; "": none was given. */
const char *ag_request_client_name(const ag_request_params *p);
/* Copies the parameters, except the constraint. Its session will read prompts in chunks of `chunk`
 * tokens. */
ag_status ag_served_request_create(const ag_request_params *params, uint32_t chunk,
                                   ag_served_request **out, ag_error *err);
/* Frees the request with its answers, sessions, constraint and masks. */
void ag_served_request_destroy(ag_served_request *r);
/* Completes the event with the request's token counts and reports it to the caller. */
void ag_request_send_event(const ag_served_request *r, ag_request_event *e);

#endif
