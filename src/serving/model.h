/* SPDX-License-Identifier: Apache-2.0 */
/* Served model: a model under its names, with tokenizer and chat template. Its weights are loaded
 * when a request needs them and unloaded when another model needs the memory. */
#ifndef AG_SERVING_MODEL_H
#define AG_SERVING_MODEL_H

#include "platform/thread.h"

#include <antigravity/serving.h>
#include <stdatomic.h>

enum { AG_SERVING_MAX_MODELS = 128 }; /* models that are not removed */

struct ag_served_model {
    ag_serving *engine;
    ag_served_model *_Atomic next; /* in the engine's list; NULL at its end */
    char *name, *path;
    struct ag_served_model_alias {
        struct ag_served_model_alias *next;
        char *name;
    } * aliases; /* guarded by the engine's mutex */
    ag_model_params load;
    ag_session_params session;
    ag_model_info info;
    ag_tokenizer *tokenizer; /* NULL: none */
    ag_chat_format *format;  /* NULL: none */
    ag_sampler_params sampling;
    double default_keep_alive_s; /* keep_alive_s after a load */
    uint64_t weight_bytes;       /* bytes of the weights when they are loaded */
    ag_mutex vocab_lock;
    ag_constraint_vocab *vocab; /* guarded by vocab_lock; NULL until first use */
    ag_replay_request replay;   /* empty without replays or without a tokenizer */

    /* Any thread reads these. */
    atomic_bool is_loaded;       /* the engine thread sets it */
    atomic_bool is_broken;       /* the last load failed because of the files */
    atomic_bool is_removed;      /* changes under the engine's mutex */
    _Atomic double keep_alive_s; /* seconds after used_at; INFINITY: no time is set */
    atomic_size_t n_requests;    /* running requests and one reload from a file */
    _Atomic double used_at;      /* when the last request ended, in ag_now_s() */

    /* Engine thread. */
    ag_model *model;            /* NULL: not loaded */
    double failed_at;           /* end of the last failed load, in ag_now_s(); 0: none; INFINITY:
                                 * every load would fail, because the files have changed */
    ag_error load_error;        /* its error */
    size_t touched_rows;        /* largest pass so far: this part of the workspace is resident */
    uint64_t base_bytes;        /* bytes in use of the backend's memory: weights, workspace */
    uint64_t scratch_bytes;     /* planned bytes of the workspace and of operations */
    uint64_t scratch_remaining; /* scratch_bytes that were not resident after loading */
};

/* List of all models, in the order in which they were added. Grows under the engine's mutex, and
 * any thread may walk it: models stay in it until the engine is destroyed, removed ones too. */
typedef struct ag_served_models {
    ag_served_model *_Atomic first;
} ag_served_models;

/* Frees the model and its names. Its weights must be unloaded. */
void ag_served_model_destroy(ag_served_model *m);
/* Returns whether `name` is the model's name or an alias. The caller holds the engine's mutex. */
bool ag_served_model_has_name(const ag_served_model *m, const char *name);
/* Frees the weights. No session of the model may exist. */
void ag_served_model_unload(ag_served_model *m);
/* Returns whether sessions cannot go back to any earlier position: then a copy of each is cached
 * where its prompt ends. */
bool ag_model_needs_prompt_copies(const ag_model_info *info);

#endif
