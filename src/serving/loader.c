/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/loader.h"

#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"

#include <string.h>

/* Called on the thread of the load. */
static bool report_progress(void *user, uint64_t done, uint64_t total) {
    ag_model_loader *l = user;
    atomic_store(&l->share, total ? (double)done / (double)total : 1);
    if (atomic_load(&l->cancelled)) return false;
    return !l->progress || l->progress(l->progress_user, done, total);
}

/* Loads the weights with `backend`, and makes the workspace. */
static void load(ag_model_loader *l, ag_backend *backend) {
    ag_model_params params = l->model->load;
    params.progress = report_progress;
    params.progress_user = l;
    l->status = ag_model_load(backend, l->model->path, &params, &l->loaded, &l->error);
    if (l->status != AG_OK) return;
    ag_model_set_backend(l->loaded, l->backend);
    l->status = ag_model_reserve(l->loaded, l->rows, l->seqs, &l->error);
    if (l->status == AG_OK) return;
    ag_model_destroy(l->loaded);
    l->loaded = NULL;
}

static void end_load(ag_model_loader *l) {
    ag_mutex_lock(l->mutex);
    l->is_done = true;
    ag_condition_broadcast(l->work);
    ag_mutex_unlock(l->mutex);
}

static void *loader_main(void *user) {
    ag_model_loader *l = user;
    ag_backend *backend;
    ag_os_thread_lower_priority(); /* also of the backend's threads */
    l->status = ag_backend_open_loader(l->backend, &backend, &l->error);
    if (l->status == AG_OK) load(l, backend);
    ag_backend_destroy(backend);
    end_load(l);
    return NULL;
}

ag_status ag_model_loader_start(ag_model_loader *l, ag_served_model *m, uint64_t n_bytes,
                                ag_error *err) {
    l->model = m;
    l->n_bytes = n_bytes;
    l->loaded = NULL;
    l->is_done = l->has_thread = false;
    l->progress = m->load.progress;
    l->progress_user = m->load.progress_user;
    atomic_store(&l->share, 0);
    if (!ag_backend_has_loader(l->backend)) {
        load(l, l->backend);
        end_load(l);
        return AG_OK;
    }
    const int failed = ag_os_thread_start(&l->thread, loader_main, l);
    l->has_thread = !failed;
    if (!failed) return AG_OK;
    l->model = NULL;
    return AG_FAIL(err, NOMEM, "thread that loads a model: error %d", failed);
}

bool ag_model_loader_is_done(const ag_model_loader *l) { return l->model && l->is_done; }

ag_status ag_model_loader_finish(ag_model_loader *l, ag_model **out, ag_error *err) {
    if (l->has_thread) ag_os_thread_join(&l->thread);
    *out = l->loaded;
    if (l->status != AG_OK && err) *err = l->error;
    l->model = NULL;
    return l->status;
}

uint64_t ag_model_loader_resident(const ag_model_loader *l) {
    return l->model ? (uint64_t)((double)l->n_bytes * atomic_load(&l->share)) : 0;
}

uint64_t ag_model_loader_outstanding(const ag_model_loader *l) {
    return l->model ? l->n_bytes - ag_model_loader_resident(l) + l->model->scratch_bytes : 0;
}

void ag_model_loader_close(ag_model_loader *l) {
    ag_model *loaded;
    if (!l->model) return;
    atomic_store(&l->cancelled, true);
    ag_model_loader_finish(l, &loaded, NULL);
    ag_model_destroy(loaded);
}
