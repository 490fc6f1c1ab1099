/* SPDX-License-Identifier: Apache-2.0 */
/* Tests models that exceed the memory of a device: loading fails before a weight is read. The
 * message has the needed and the available bytes. */
#include "support/sparse_model.h"
#include "support/tiny_model.h"
#include "unit/opencl_forwarded.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

/* 32 MiB of Q4_0 and more; a full cache of 4096 tokens takes 16 MiB and more. */
static const sparse_model shape = {
    .n_layers = 8, .hidden_size = 512, .intermediate_size = 2048, .vocab_size = 64 * 1024};
static char dir[512];
static forwarder_controls *forwarder;

static ag_backend *open_with(size_t memory_bytes, size_t max_alloc) {
    const ag_backend_params params = {.name = "opencl"};
    ag_backend *be;
    forwarder->memory_bytes = memory_bytes;
    forwarder->max_alloc = max_alloc;
    assert_int_equal(ag_backend_create(&params, &be, NULL), AG_OK);
    forwarder->memory_bytes = forwarder->max_alloc = 0;
    return be;
}

static ag_memory_plan plan_of(ag_backend *be, uint32_t max_seq_len) {
    ag_session_params session = ag_session_defaults();
    session.max_seq_len = max_seq_len;
    ag_memory_plan plan;
    assert_int_equal(ag_memory_plan_make(be, dir, NULL, &session, 1, &plan, NULL), AG_OK);
    return plan;
}

static bool never(void *user, uint64_t done, uint64_t total) {
    (void)user, (void)done, (void)total;
    fail_msg("a weight was converted");
    return false;
}

static void weights_that_do_not_fit_are_not_read(void **state) {
    (void)state;
    const ag_model_params params = {.weights = AG_Q4_0, .progress = never};
    ag_error err;
    ag_model *model;
    ag_backend *be = open_with(20 * MIB, 0);
    const size_t written = forwarder->written_bytes, buffers = forwarder->n_buffers;
    assert_int_equal(ag_model_load(be, dir, &params, &model, &err), AG_NOMEM);
    assert_null(model);
    assert_non_null(strstr(err.msg, "20971520 bytes free of 20971520"));
    ag_memory_plan plan = plan_of(be, 512);
    assert_int_equal(plan.has_bytes, 20 * MIB);
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_NOMEM);
    assert_non_null(strstr(err.msg, "has 20.0 MiB, 20.0 of them free"));
    assert_int_equal(forwarder->written_bytes, written);
    assert_int_equal(forwarder->n_buffers, buffers);
    ag_backend_destroy(be);
}

static void rejects_a_context_that_exceeds_the_memory(void **state) {
    (void)state;
    ag_error err;
    ag_backend *be = open_with(0, 0);
    const ag_memory_plan small = plan_of(be, 256), large = plan_of(be, 4096);
    ag_backend_destroy(be);
    assert_true(small.total_bytes < large.total_bytes);
    be = open_with((size_t)large.total_bytes - 1, 0);
    ag_memory_plan plan = plan_of(be, 4096);
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_NOMEM);
    assert_non_null(strstr(err.msg, "KV cache"));
    plan = plan_of(be, 256);
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_OK);
    /* Memory of another model is not free. */
    ag_model *model;
    assert_int_equal(ag_model_load(be, dir, NULL, &model, &err), AG_OK);
    plan = plan_of(be, 256);
    assert_int_equal(plan.free_bytes, plan.has_bytes - ag_model_memory_bytes(model));
    ag_model_destroy(model);
    ag_backend_destroy(be);
}

/* Many drivers allocate larger buffers than their limit: only a failed allocation counts. */
static void tries_a_buffer_beyond_the_reported_limit(void **state) {
    (void)state;
    enum { LIMIT = 8 * MIB }; /* more than the backend itself allocates */
    ag_error err;
    ag_backend *be = open_with(0, LIMIT);
    ag_memory_plan plan = plan_of(be, 256);
    assert_int_equal(plan.max_buffer_bytes, LIMIT);
    assert_true(plan.largest_bytes > LIMIT);
    const size_t live = forwarder->n_live;
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_OK);
    forwarder->max_alloc = LIMIT;
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_NOMEM);
    assert_non_null(strstr(err.msg, "the largest may have 8388608"));
    forwarder->max_alloc = 0;
    assert_int_equal(forwarder->n_live, live);
    ag_backend_destroy(be);
}

/* The program prints one line and exits with the code of a failure. */
static void program_prints_the_error(void **state) {
    (void)state;
    char command[2048], line[1024] = "", second[64] = "";
    setenv("AG_FORWARDER_MEMORY", "20971520", 1);
    snprintf(command, sizeof command, "%s generate -b opencl -m %s --prompt-ids 1 2>&1", AG_PROGRAM,
             dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_null(fgets(second, sizeof second, f));
    assert_int_equal(pclose(f) >> 8, 1);
    unsetenv("AG_FORWARDER_MEMORY");
    assert_non_null(strstr(line, "antigravity generate: out of memory: "));
    assert_non_null(strstr(line, "MiB are needed (weights "));
    assert_non_null(strstr(line, "has 20.0 MiB, 20.0 of them free\n"));
}

int main(void) {
    const int unfit = open_forwarded(AG_FORWARDER, &forwarder, NULL);
    if (unfit) return unfit;
    if (!sparse_model_write(&shape, dir, sizeof dir)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_that_do_not_fit_are_not_read),
        cmocka_unit_test(rejects_a_context_that_exceeds_the_memory),
        cmocka_unit_test(tries_a_buffer_beyond_the_reported_limit),
        cmocka_unit_test(program_prints_the_error),
    };
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_model_remove(dir);
    return code;
}
