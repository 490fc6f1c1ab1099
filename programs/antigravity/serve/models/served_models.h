/* SPDX-License-Identifier: Apache-2.0 */
/* Models that the server has: from -m, from a directory of models, and those that clients add to
 * that directory. */
#ifndef ANTIGRAVITY_SERVE_MODELS_SERVED_MODELS_H
#define ANTIGRAVITY_SERVE_MODELS_SERVED_MODELS_H

#include "../../options/model_options.h"
#include "model_list.h"

#include <limits.h>
#include <pthread.h>

typedef struct served_models {
    ag_serving *engine;
    const model_options *options; /* borrowed; settings of all models */
    double keep_alive_s;          /* time after which models of the directory are unloaded */
    char store[PATH_MAX];         /* the directory of models, which clients may change */
    uint64_t store_limit;         /* maximum bytes of the store after a pull; 0: no limit */
    pthread_mutex_t changing;     /* held by a request that changes the store */
    model_list *list;             /* owned */
} served_models;

/* Adds the model at `path`. template_file: NULL for its own template. Reports a failure and returns
 * an exit code; *out, which may be NULL, receives the entry. */
int served_models_add(served_models *s, const char *path, const char *template_file,
                      double keep_alive_s, const model_entry **out);
/* Reads digest and time of change of a model in the list again, after a pull. */
void served_models_refresh(served_models *s, const model_entry *m, const char *path);
/* Adds another name of the model. Reports a failure and returns an exit code. */
int served_models_add_alias(served_models *s, const model_entry *of, const char *name);
/* Returns whether the path is a directory that contains models, and is not itself one. */
bool served_models_is_directory(const served_models *s, const char *path);
/* Adds the models of a directory. Reports those that do not load. Returns an exit code. */
int served_models_add_directory(served_models *s, const char *path);

#endif
