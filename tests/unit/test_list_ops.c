/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the operations listed without loading a model with those of the loaded model. */
#include "support/failing_allocator.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#define MODELS AG_GOLDEN_MODELS

static ag_backend *backend;

typedef struct listing {
    char text[1 << 16];
    size_t n, n_ops;
} listing;

static void add_op(void *user, const ag_op_info *op) {
    listing *l = user;
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s %d: %s\n", op->code,
                             (int)op->layer, op->text);
    l->n_ops++;
    assert_true(l->n < sizeof l->text);
}

static void compare(const char *name, const ag_model_params *params) {
    static listing inspected, loaded;
    char path[512];
    ag_model *model;
    ag_error err;
    inspected = loaded = (listing){0};
    snprintf(path, sizeof path, "%s/%s", MODELS, name);
    if (ag_model_inspect_ops(path, params, add_op, &inspected, &err) != AG_OK)
        fail_msg("%s: %s", name, err.msg);
    if (ag_model_load(backend, path, params, &model, &err) != AG_OK)
        fail_msg("%s: %s", name, err.msg);
    ag_model_list_ops(model, add_op, &loaded);
    assert_true(loaded.n_ops > 10);
    assert_string_equal(inspected.text, loaded.text);
    ag_model_destroy(model);
}

static void files_and_loaded_model_list_equal_operations(void **state) {
    (void)state;
    static const ag_tensor_type down = {"ffn_down", AG_Q8_0};
    const ag_model_params params[] = {
        {.weights = AG_Q4_0, .tensor_types = &down, .n_tensor_types = 1},
        {.weights = AG_WEIGHTS_MIX},
        {.weights = AG_WEIGHTS_AUTO, .as_is = true}};
    size_t n = 0;
    DIR *d = opendir(MODELS);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)); n++) {
        if (e->d_name[0] != '.') compare(e->d_name, &params[n % 3]);
    }
    closedir(d);
    assert_true(n >= 20);
}

static void shows_equal_types_once(void **state) {
    (void)state;
    static const ag_tensor_type values = {"attn_v", AG_Q8_0};
    ag_model_params params = {.weights = AG_Q4_0};
    static listing l;
    ag_error err;
    l = (listing){0};
    assert_int_equal(ag_model_inspect_ops(MODELS "/qwen3", &params, add_op, &l, &err), AG_OK);
    assert_non_null(strstr(l.text, "PRODUCTS 0: 1  0  PRODUCTS wq,wk,wv  normed["));
    assert_non_null(strstr(l.text, "]  q4_0\n"));
    assert_null(strstr(l.text, "q4_0,"));
    assert_non_null(strstr(l.text, "NORM -1: 0  -  NORM attention_norm  stream["));
    l = (listing){0};
    params.tensor_types = &values;
    params.n_tensor_types = 1;
    assert_int_equal(ag_model_inspect_ops(MODELS "/qwen3", &params, add_op, &l, &err), AG_OK);
    assert_non_null(strstr(l.text, "]  q4_0,q4_0,q8_0\n"));
}

static void count(void *user, const ag_op_info *op) {
    (void)op;
    ++*(size_t *)user;
}

static void fails_for_unreadable_files(void **state) {
    (void)state;
    const ag_model_params bad = {.weights = (ag_dtype)77};
    size_t n = 0;
    ag_error err;
    assert_int_equal(ag_model_inspect_ops(MODELS "/absent", NULL, count, &n, &err), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "absent"));
    assert_int_equal(ag_model_inspect_ops(MODELS "/qwen3", &bad, count, &n, &err), AG_UNSUPPORTED);
    assert_int_equal(n, 0);
    assert_int_equal(ag_model_inspect_ops(MODELS "/qwen3", NULL, count, &n, &err), AG_OK);
    assert_true(n > 0);
}

static void failed_allocation_is_reported(void **state) {
    (void)state;
    failing_allocator memory;
    ag_status st = AG_NOMEM;
    size_t nth = 0;
    for (; st == AG_NOMEM; nth++) {
        ag_error err = {0};
        size_t n = 0;
        failing_install(&memory, nth);
        st = ag_model_inspect_ops(MODELS "/gemma4", NULL, count, &n, &err);
        assert_int_equal(atomic_load(&memory.in_use), 0);
        ag_set_allocator(NULL);
        assert_true(st == AG_OK ? n > 0 && !atomic_load(&memory.failed) : n == 0 && err.msg[0]);
    }
    assert_int_equal(st, AG_OK);
    assert_true(nth > 20);
}

static int open_backend(void **state) {
    (void)state;
    const ag_backend_params params = {.n_threads = 2};
    return ag_backend_create(&params, &backend, NULL) != AG_OK;
}

static int close_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_loaded_model_list_equal_operations),
        cmocka_unit_test(shows_equal_types_once),
        cmocka_unit_test(fails_for_unreadable_files),
        cmocka_unit_test(failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
