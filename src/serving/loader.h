/* SPDX-License-Identifier: Apache-2.0 */
/* Loader: loads the weights of one model at a time, and makes its workspace, on a thread of its
 * own, while the engine thread runs requests of other models. Its threads have a low priority, so
 * that those requests keep most of the cores. A backend that prepares weights only on the engine's
 * thread blocks it for the load. Functions and fields belong to the engine thread unless they say
 * otherwise. */
#ifndef AG_SERVING_LOADER_H
#define AG_SERVING_LOADER_H

#include "serving/model.h"

#include <antigravity/model.h>
#include <antigravity/serving.h>
#include <stdatomic.h>

typedef struct ag_model_loader {
    ag_backend *backend;    /* the engine's; borrowed, as the next two */
    ag_mutex *mutex;        /* guards is_done */
    ag_condition *work;     /* wakes the engine thread */
    ag_served_model *model; /* NULL: no load */
    uint64_t n_bytes;       /* planned bytes of the weights */
    size_t rows, seqs;      /* size of the workspace */
    ag_os_thread thread;
    bool has_thread, is_done;
    ag_progress_fn progress; /* the caller's; NULL: none */
    void *progress_user;
    /* Written by the thread of the load. */
    _Atomic double share; /* part of the weights that is resident */
    atomic_bool cancelled;
    ag_model *loaded;
    ag_status status;
    ag_error error;
} ag_model_loader;

/* Starts to load the model's weights. No load may be running. */
ag_status ag_model_loader_start(ag_model_loader *l, ag_served_model *m, uint64_t n_bytes,
                                ag_error *err);
/* Returns whether the load has ended and has not been finished. The caller holds the mutex. */
bool ag_model_loader_is_done(const ag_model_loader *l);
/* Ends a load that is done. Returns its status; *out owns the model. */
ag_status ag_model_loader_finish(ag_model_loader *l, ag_model **out, ag_error *err);
/* Return the bytes of weights that the load has made resident, and the bytes of weights and
 * workspace that it has not; 0 without a load. */
uint64_t ag_model_loader_resident(const ag_model_loader *l);
uint64_t ag_model_loader_outstanding(const ag_model_loader *l);
/* Cancels the load, if one is running, and waits for its end. */
void ag_model_loader_close(ag_model_loader *l);

#endif
