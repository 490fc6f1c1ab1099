/* SPDX-License-Identifier: Apache-2.0 */
/* A backend and a small random model, which is trained for 512 positions, for all tests of a file.
 */
#ifndef AG_TESTS_ONE_MODEL_H
#define AG_TESTS_ONE_MODEL_H

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ONE_MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"

/* Small models wait for a second thread longer than they compute with it; the thread sanitizer
 * watches both. */
#if defined(__SANITIZE_THREAD__)
#define ONE_MODEL_THREADS 2
#else
#define ONE_MODEL_THREADS 1
#endif

static ag_backend *backend;
static ag_model *model;
static size_t n_vocab;

static inline void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s", err->msg);
}

static inline int load_one_model(void **state) {
    (void)state;
    ag_error err;
    const ag_backend_params bp = {.n_threads = ONE_MODEL_THREADS};
    if (ag_backend_create(&bp, &backend, &err) != AG_OK ||
        ag_model_load(backend, ONE_MODEL, NULL, &model, &err) != AG_OK) {
        print_error("%s\n", err.msg);
        return 1;
    }
    n_vocab = ag_model_get_info(model)->n_vocab;
    return 0;
}

static inline int unload_one_model(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static inline ag_session *session_of(const ag_session_params *p) {
    ag_session *s;
    ag_error err;
    must(ag_session_create(model, p, &s, &err), &err);
    return s;
}

#endif
