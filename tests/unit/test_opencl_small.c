/* SPDX-License-Identifier: Apache-2.0 */
/* Devices with less room than a processor has: work-groups and local memory as phones have them
 * are enough, with less there is an error before anything runs, and a weight that fits in no buffer
 * is named. */
#include "unit/opencl_forwarded.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"

static forwarder_controls *forwarder;

static int restore(void **state) {
    (void)state;
    forwarder->max_group = forwarder->local_bytes = forwarder->max_alloc = 0;
    forwarder->sub_groups = 0;
    return 0;
}

/* ---- sizes ---- */

typedef struct room {
    size_t group, local;
} room;

static size_t attention_bytes(const ag_cl_sizes *s) {
    return (256 + 128 + 4) * 4 * s->attention_queries + 16 * s->attention_wg;
}

static void sizes_fit_the_device(void **state) {
    (void)state;
    static const room rooms[] = {{64, 16384},  {64, 65536},  {128, 16384}, {128, 32768},
                                 {200, 32768}, {256, 16384}, {256, 32768}, {1024, 49152}};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        ag_cl_sizes s;
        const ag_cl_device d = {.max_group = rooms[i].group, .local_bytes = rooms[i].local};
        assert_int_equal(ag_cl_sizes_for(&d, &s, NULL), AG_OK);
        assert_true(32 * s.matvec_teams <= d.max_group);
        assert_int_equal(s.matvec_teams * s.matvec_rows, 8);
        assert_true(s.tile_wg <= d.max_group && s.attention_wg <= d.max_group);
        assert_true(s.top_wg >= 64 && s.top_wg <= d.max_group);
        assert_int_equal(s.tile_wg, s.tile_m * s.tile_n / 16);
        assert_true((s.tile_m + s.tile_n + 8) * 32 * sizeof(float) <= d.local_bytes);
        assert_true(attention_bytes(&s) <= d.local_bytes);
    }
}

static void sizes_are_the_largest_where_there_is_room(void **state) {
    (void)state;
    ag_cl_sizes s;
    const ag_cl_device d = {
        .max_group = 1024, .max_item_sizes = {1024, 1024, 64}, .local_bytes = 32768};
    assert_int_equal(ag_cl_sizes_for(&d, &s, NULL), AG_OK);
    assert_int_equal(s.matvec_teams, 4);
    assert_int_equal(s.tile_wg, 256);
    assert_int_equal(s.attention_wg, 128);
    assert_int_equal(s.attention_queries, 16);
    assert_int_equal(s.top_wg, 256);
}

/* ---- a backend ---- */

static void expect_refused(room r, const char *a, const char *b) {
    ag_backend *be;
    ag_error err;
    forwarder->max_group = r.group;
    forwarder->local_bytes = r.local;
    assert_int_equal(ag_cl_backend_create(NULL, &be, &err), AG_UNSUPPORTED);
    assert_null(be);
    if (!strstr(err.msg, a) || !strstr(err.msg, b)) fail_msg("%s", err.msg);
}

static void too_little_room_is_an_error_at_once(void **state) {
    (void)state;
    const size_t n_live = forwarder->n_live, n_launches = forwarder->n_launches;
    expect_refused((room){32, 32768}, "work-groups of 32", "need 64");
    expect_refused((room){256, 8192}, "8192 bytes of local memory", "16384");
    assert_int_equal(forwarder->n_live, n_live);
    assert_int_equal(forwarder->n_launches, n_launches);
}

/* A short text by a small model, on kernels for GPUs. */
static void generate(int32_t *ids, size_t n) {
    ag_error err;
    ag_backend *be;
    ag_model *model;
    ag_session *s;
    const ag_backend_params bp = {.name = "opencl"};
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 64;
    assert_int_equal(ag_backend_create(&bp, &be, &err), AG_OK);
    assert_int_equal(ag_model_load(be, MODEL, NULL, &model, &err), AG_OK);
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_OK);
    const int32_t prompt[] = {3, 40, 77, 5, 6, 9};
    const ag_status st = ag_session_prefill(s, prompt, 6, NULL, NULL, &err);
    if (st != AG_OK) fail_msg("%s", err.msg);
    const size_t n_vocab = ag_model_get_info(model)->n_vocab;
    for (size_t i = 0; i < n; i++) {
        const float *logits = ag_session_logits(s);
        size_t best = 0;
        for (size_t v = 1; v < n_vocab; v++) best = logits[v] > logits[best] ? v : best;
        ids[i] = (int32_t)best;
        if (ag_session_decode(s, ids[i], &err) != AG_OK) fail_msg("%s", err.msg);
    }
    ag_session_destroy(s);
    ag_model_destroy(model);
    ag_backend_destroy(be);
}

static void small_device_generates_equal_text(void **state) {
    (void)state;
    enum { N = 4 };
    int32_t want[N], got[N];
    generate(want, N);
    forwarder->max_group = 64;
    forwarder->local_bytes = 16384;
    generate(got, N);
    assert_memory_equal(got, want, sizeof want);
}

static void finds_sub_groups_that_are_not_listed(void **state) {
    (void)state;
    ag_device_info devices[AG_CL_DEVICES_MAX];
    size_t n;
    forwarder->sub_groups = 8;
    assert_int_equal(ag_cl_backend_devices(devices, AG_CL_DEVICES_MAX, &n, NULL), AG_OK);
    assert_non_null(strstr(devices[0].extensions, "cl_khr_subgroups"));
}

/* ---- buffers ---- */

static void names_a_weight_that_exceeds_the_buffer_limit(void **state) {
    (void)state;
    ag_error err;
    ag_backend *be;
    ag_model *model;
    const ag_backend_params bp = {.name = "opencl"};
    assert_int_equal(ag_backend_create(&bp, &be, &err), AG_OK);
    const size_t n_live = forwarder->n_live;
    forwarder->max_alloc = ag_cl_of(be)->device.max_alloc = 1000;
    assert_int_equal(ag_model_load(be, MODEL, NULL, &model, &err), AG_NOMEM);
    if (!strstr(err.msg, "tensor ") || !strstr(err.msg, "the largest may have 1000")) {
        fail_msg("%s", err.msg);
    }
    print_message("%s\n", err.msg);
    assert_null(model);
    forwarder->max_alloc = 0;
    ag_backend_destroy(be);
    assert_true(forwarder->n_live < n_live);
}

int main(void) {
    setenv("AG_OPENCL_LANES", "1", 1);
    const int unfit = open_forwarded(AG_FORWARDER, &forwarder, NULL);
    if (unfit) return unfit;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_fit_the_device),
        cmocka_unit_test(sizes_are_the_largest_where_there_is_room),
        cmocka_unit_test_teardown(too_little_room_is_an_error_at_once, restore),
        cmocka_unit_test_teardown(small_device_generates_equal_text, restore),
        cmocka_unit_test_teardown(finds_sub_groups_that_are_not_listed, restore),
        cmocka_unit_test_teardown(names_a_weight_that_exceeds_the_buffer_limit, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
