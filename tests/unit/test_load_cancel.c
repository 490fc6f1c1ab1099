/* SPDX-License-Identifier: Apache-2.0 */
/* Loading tells how far it is and can be given up in the middle of a large tensor. The backend's
 * name is the argument. */
#include "support/named_backend.h"
#include "support/sparse_model.h"
#include "support/tiny_model.h"

#include <antigravity/expert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MB = 1 << 20 };

/* The output, the largest tensor and the last, has 40 MB in the file. */
static const sparse_model shape = {
    .n_layers = 1, .hidden_size = 512, .intermediate_size = 1024, .vocab_size = 40 * 1024};

static const char *backend_name = "cpu";
static char dir[512];

/* ---- progress reports ---- */

typedef struct listener {
    uint64_t stop_at; /* bytes; UINT64_MAX: never */
    uint64_t done, total, largest_step;
    bool backwards;
} listener;

static bool listen(void *user, uint64_t done, uint64_t total) {
    listener *l = user;
    if (done < l->done || done > total) l->backwards = true;
    else if (done - l->done > l->largest_step) l->largest_step = done - l->done;
    l->done = done;
    l->total = total;
    return done < l->stop_at;
}

static ag_status load(ag_backend *be, ag_dtype weights, listener *l, ag_error *err) {
    const ag_model_params params = {.weights = weights, .progress = listen, .progress_user = l};
    ag_model *model;
    ag_status st = ag_model_load(be, dir, &params, &model, err);
    assert_int_equal(model != NULL, st == AG_OK);
    ag_model_destroy(model);
    return st;
}

/* Returns the most bytes that all threads convert between two calls. */
static uint64_t most_between_calls(uint32_t threads) { return (uint64_t)threads * 8 * MB; }

static const ag_dtype types[] = {AG_Q4_0, AG_Q8_0, AG_BF16};
enum { N_TYPES = sizeof types / sizeof types[0] };

static void reports_progress_inside_a_large_tensor(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        ag_backend *be = open_backend(backend_name, threads);
        for (size_t i = 0; i < N_TYPES; i++) {
            listener l = {.stop_at = UINT64_MAX};
            assert_int_equal(load(be, types[i], &l, NULL), AG_OK);
            assert_false(l.backwards);
            assert_int_equal(l.done, l.total);
            /* Other threads than the caller's may continue for a while. */
            if (threads == 1) assert_in_range(l.largest_step, 1, most_between_calls(1));
        }
        ag_backend_destroy(be);
    }
}

static void cancels_inside_a_large_tensor(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        ag_backend *be = open_backend(backend_name, threads);
        const size_t in_use = ag_memory_bytes_in_use(ag_backend_memory(be));
        for (size_t i = 0; i < N_TYPES; i++) {
            listener l = {.stop_at = 20 * MB};
            ag_error err;
            assert_int_equal(load(be, types[i], &l, &err), AG_CANCELLED);
            assert_string_equal(err.msg, "loading was cancelled at model.embed_tokens.weight");
            if (threads == 1) assert_true(l.done < l.stop_at + most_between_calls(1));
            assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(be)), in_use);
        }
        ag_backend_destroy(be);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) backend_name = argv[1];
    ag_backend *be = open_backend(backend_name, 1);
    if (!be) return EXIT_SKIPPED;
    ag_backend_destroy(be);
    if (!sparse_model_write(&shape, dir, sizeof dir)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_progress_inside_a_large_tensor),
        cmocka_unit_test(cancels_inside_a_large_tensor),
    };
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_model_remove(dir);
    return code;
}
