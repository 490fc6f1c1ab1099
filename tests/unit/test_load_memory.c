/* SPDX-License-Identifier: Apache-2.0 */
/* Memory while a mixture of experts is loaded: there is no second copy of its weights. */
#include "support/sanitized.h"
#include "support/seeded_weights.h"
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define MIXTRAL AG_GOLDEN_MODELS "/mixtral"
#define MANIFEST AG_SOURCE_DIR "/tests/data/golden/models/mixtral/"
/* Few large experts: the list of a file's tensors takes memory, too. */
enum { EXPERTS = 32, WIDTH = 512, EXIT_UNKNOWN = 3 };
enum { FIXED = 4 << 20 }; /* bytes: huge pages, stacks, buffers and lists */

static char dir[] = "/tmp/antigravity-load-memory-XXXXXX";

/* ---- a mixture of 51 MB ---- */

static char *at(char path[256], const char *name) {
    snprintf(path, 256, "%s/%s", dir, name);
    return path;
}

/* Adds a tensor; one of expert 0 becomes one of each expert, and other experts are left out. */
static void put_tensor(json_t *tensors, const char *name, json_t *tensor) {
    static const char mark[] = ".experts.";
    const char *expert = strstr(name, mark);
    if (strstr(name, "block_sparse_moe.gate"))
        json_array_set_new(json_object_get(tensor, "shape"), 0, json_integer(EXPERTS));
    if (!expert) {
        json_object_set(tensors, name, tensor);
        return;
    }
    const char *digits = expert + strlen(mark);
    if (strncmp(digits, "0.", 2) != 0) return;
    json_array_set_new(json_object_get(tensor, "shape"), strstr(name, ".w2.") ? 1 : 0,
                       json_integer(WIDTH));
    for (int e = 0; e < EXPERTS; e++) {
        char copy[128];
        snprintf(copy, sizeof copy, "%.*s%d%s", (int)(digits - name), name, e, digits + 1);
        json_object_set(tensors, copy, tensor);
    }
}

static bool write_model(void) {
    char path[256], weights[256];
    json_t *manifest = json_load_file(MANIFEST "weights.json", 0, NULL), *tensor;
    json_t *config = json_load_file(MANIFEST "config.json", 0, NULL), *tensors = json_object();
    const char *name;
    json_object_foreach(json_object_get(manifest, "tensors"), name, tensor)
        put_tensor(tensors, name, tensor);
    json_object_set_new(manifest, "tensors", tensors);
    json_object_set_new(config, "num_local_experts", json_integer(EXPERTS));
    json_object_set_new(config, "intermediate_size", json_integer(WIDTH));
    const bool written = json_dump_file(config, at(path, "config.json"), 0) == 0 &&
                         json_dump_file(manifest, at(weights, "weights.json"), 0) == 0 &&
                         write_seeded_weights(weights, at(path, "model.safetensors"));
    json_decref(manifest);
    json_decref(config);
    return written;
}

/* Runs `work` in a process of its own, whose peak is not that of others. Returns its exit code. */
static int in_child(int (*work)(ag_dtype), ag_dtype type) {
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(work(type));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int write_in_child(ag_dtype type) {
    (void)type;
    return write_model() ? 0 : 1;
}

/* ---- loading ---- */

static ag_model *load(ag_backend *be, const char *path, ag_dtype type) {
    const ag_model_params params = {.weights = type};
    ag_error err;
    ag_model *model = NULL;
    if (ag_model_load(be, path, &params, &model, &err) != AG_OK) fprintf(stderr, "%s\n", err.msg);
    return model;
}

/* Loads a small model first, so that code that is used for the first time does not count. */
static int load_in_child(ag_dtype type) {
    const ag_backend_params params = {.name = "cpu", .n_threads = 2};
    ag_memory_usage before, after;
    ag_backend *be = NULL;
    if (ag_backend_create(&params, &be, NULL) != AG_OK) return 1;
    ag_model_destroy(load(be, MIXTRAL, type));
    if (ag_process_memory(&before) != AG_OK) return EXIT_UNKNOWN;
    ag_model *model = load(be, dir, type);
    if (!model) return 1;
    ag_process_memory(&after);
    const size_t prepared = ag_model_memory_bytes(model);
    const size_t grown = after.peak - before.anonymous - before.file;
    const size_t own = after.anonymous_peak - before.anonymous;
    printf("%s: prepared %zu bytes, peak %zu, of which own %zu\n", ag_dtype_name(type), prepared,
           grown, own);
    fflush(stdout);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    return grown <= prepared + prepared / 20 + FIXED && own >= prepared ? 0 : 2;
}

static void loading_a_mixture_holds_no_second_copy(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_BF16, AG_Q8_0, AG_Q4_0};
    if (SANITIZED) skip();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const int code = in_child(load_in_child, types[i]);
        if (code == EXIT_UNKNOWN) skip();
        assert_int_equal(code, 0);
    }
}

static int prepare(void **state) {
    (void)state;
    return mkdtemp(dir) ? in_child(write_in_child, AG_BF16) : 1;
}

static int clean_up(void **state) {
    (void)state;
    tiny_model_remove(dir);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_a_mixture_holds_no_second_copy),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
