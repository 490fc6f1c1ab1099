/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "head_file.h"
#include "model_dir.h"
#include "truncated_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints library log messages; without --verbose only warnings. `user` is the model_options. */
static void log_message(void *user, ag_log_level level, const char *msg) {
    const model_options *o = user;
    if (level == AG_LOG_STATUS) progress_note(msg);
    if (level == AG_LOG_WARN || o->verbose) complain("%s", msg);
}

int engine_inspect(engine *e, const model_options *o) {
    ag_error err;
    int code = model_dir_find(o->dir, o->quiet, &e->dir);
    if (code != EXIT_DONE) return code;
    ag_model_params params = model_params(o);
    if (ag_model_inspect(e->dir, &params, &e->info, &err) != AG_OK) return complain_settings(&err);
    context_report(o, &e->info, e->dir);
    ag_status status = ag_tokenizer_load(e->dir, &e->tokenizer, &err);
    if (status != AG_OK && status != AG_NOT_FOUND) return complain_error(&err);
    return EXIT_DONE;
}

int engine_need_tokenizer(const engine *e, const char *instead) {
    if (e->tokenizer) return EXIT_DONE;
    return complain_usage("%s: no tokenizer.json: %s", e->dir, instead);
}

int engine_encode(const engine *e, prompt *p, const prompt_options *o) {
    int code = EXIT_DONE;
    if (p->text) code = engine_need_tokenizer(e, "give --prompt-ids instead of a text");
    if (p->text && code == EXIT_DONE) code = prompt_encode(p, o, e->tokenizer);
    return code == EXIT_DONE ? prompt_check_ids(p, e->info.n_vocab) : code;
}

static bool has_gpu(void) {
    ag_device_info devices[32];
    const size_t cap = sizeof devices / sizeof devices[0];
    size_t n;
    if (ag_backend_devices("opencl", devices, cap, &n, NULL) != AG_OK) return false;
    for (size_t i = 0; i < n && i < cap; i++)
        if (!strcmp(devices[i].kind, "gpu")) return true;
    return false;
}

/* Opens a GPU when no backend was named. Returns false if there is none: the CPU is used. */
static bool open_gpu(engine *e, const model_options *o, ag_backend_params params) {
    ag_error err;
    if (!o->device && !has_gpu()) {
        if (!o->quiet) complain("no GPU here: running on the CPU");
        return false;
    }
    params.name = "opencl";
    if (ag_backend_create(&params, &e->backend, &err) == AG_OK) return true;
    if (!o->quiet) complain("%s: running on the CPU", err.msg);
    return false;
}

int engine_open_backend(engine *e, const model_options *o, const char *shape,
                        const engine_sessions *s) {
    ag_error err;
    ag_backend_params params = {
        .name = o->backend,
        .n_threads = o->threads,
        .log = o->quiet ? NULL : log_message,
        .log_user = (void *)(uintptr_t)o, /* read only */
        .device = o->device,
        .zero_copy = o->zero_copy,
        .host_attention = o->host_attention,
        .time_launches = o->time_launches,
    };
    int code = EXIT_DONE;
    const bool tries_gpu = !o->backend && (o->wants_gpu || o->device);
    if (chooses_backend(o)) code = engine_choose_backend(e, o, shape, s, &params);
    else if (!(tries_gpu && open_gpu(e, o, params)) &&
             ag_backend_create(&params, &e->backend, &err) != AG_OK)
        code = complain_error(&err);
    if (code == EXIT_DONE && o->verbose) complain("backend: %s", ag_backend_describe(e->backend));
    return code;
}

/* Writes "KV cache 10.62 MiB for 2048 tokens", with the state of layers without a KV cache. */
static void describe_caches(const ag_memory_plan *p, const engine_sessions *s, char *out,
                            size_t cap) {
    char size[32], each[32] = "", state[48] = "";
    if (s->n > 1) snprintf(each, sizeof each, "%zu times ", s->n);
    if (p->state_bytes) {
        snprintf(state, sizeof state, ", state %s",
                 format_bytes((double)p->state_bytes, size, sizeof size));
    }
    snprintf(out, cap, "KV cache %s for %s%" PRIu32 " tokens%s",
             format_bytes((double)p->kv_bytes, size, sizeof size), each, s->params.max_seq_len,
             state);
}

static void print_plan(const ag_memory_plan *p, const model_options *o, const engine_sessions *s) {
    char total[32], weights[32], caches[128], workspace[32], machine_text[32], free_text[32],
        memory[256] = "";
    describe_caches(p, s, caches, sizeof caches);
    if (p->has_bytes) {
        snprintf(memory, sizeof memory, "; %s has %s, %s free", p->memory,
                 format_bytes((double)p->has_bytes, machine_text, sizeof machine_text),
                 format_bytes((double)p->free_bytes, free_text, sizeof free_text));
    }
    const bool as_is = (unsigned)o->weights == DTYPE_AS_IS || p->weights_as_is;
    complain("memory: %s%s (weights %s as %s, %s, workspace %s)%s", p->on_device ? "" : "up to ",
             format_bytes((double)p->total_bytes, total, sizeof total),
             format_bytes((double)p->weight_bytes, weights, sizeof weights),
             as_is              ? "they are"
             : p->weights_mixed ? "mix"
                                : ag_dtype_name(p->weight_type),
             caches,
             format_bytes((double)(p->workspace_bytes + p->eviction_bytes + p->draft_bytes),
                          workspace, sizeof workspace),
             memory);
}

ag_status engine_make_plan(const engine *e, ag_backend *be, const model_options *o,
                           const char *shape, const engine_sessions *s, ag_memory_plan *plan,
                           ag_error *err) {
    const ag_model_params params = model_params(o);
    const ag_status st = budget_check(o, &s->params, err);
    if (st != AG_OK) return st;
    return shape ? ag_memory_plan_synthetic(be, shape, &params, &s->params, s->n, plan, err)
                 : ag_memory_plan_make(be, e->dir, &params, &s->params, s->n, plan, err);
}

int engine_plan(engine *e, const model_options *o, const char *shape, const engine_sessions *s) {
    ag_error err;
    ag_memory_plan plan;
    const int fits = shape ? EXIT_DONE : head_file_fits(&s->params.eviction, &e->info);
    if (fits != EXIT_DONE) return fits;
    ag_status status = engine_make_plan(e, e->backend, o, shape, s, &plan, &err);
    if (status == AG_NOT_FOUND && shape) {
        complain_error(&err);
        return EXIT_USAGE;
    }
    const uint32_t smallest = status == AG_INVALID && !shape ? min_context(&e->info, s->params) : 0;
    if (smallest)
        return complain_usage("%s; use a context of at least %" PRIu32 " tokens (-c)", err.msg,
                              smallest);
    if (status != AG_OK) return complain_settings(&err);
    if (ag_memory_plan_check(&plan, e->backend, &err) != AG_OK) return complain_error(&err);
    if (!o->quiet && (o->verbose || !o->is_brief)) print_plan(&plan, o, s);
    return EXIT_DONE;
}

int engine_read_model(const engine *e, const char *dir, ag_model_params params, const char *what,
                      ag_model **out) {
    ag_error err;
    params.progress = progress_update;
    progress_begin(what);
    truncated_file_watch(dir);
    ag_status status = ag_model_load(e->backend, dir, &params, out, &err);
    truncated_file_watch(NULL);
    progress_end();
    return status == AG_OK ? EXIT_DONE : complain_error(&err);
}

int engine_load(engine *e, const model_options *o, const engine_sessions *s) {
    double begin = clock_s();
    int code = engine_open_backend(e, o, NULL, s);
    if (code == EXIT_DONE) code = engine_plan(e, o, NULL, s);
    if (code != EXIT_DONE) return code;
    code = engine_read_model(e, e->dir, model_params(o), "loading", &e->model);
    if (code != EXIT_DONE) return code;
    e->load_s = clock_s() - begin;
    if (o->verbose) complain("%s: loaded in %.2f s", e->dir, e->load_s);
    return EXIT_DONE;
}

int engine_load_session(engine *e, const model_options *o, uint32_t n_context) {
    ag_error err;
    ag_session_params params = session_params(o, n_context);
    const engine_sessions one = {params, 1};
    int code = engine_load(e, o, &one);
    if (code != EXIT_DONE) return code;
    if (o->verbose) params.eviction.on_eviction = eviction_report;
    /* Invalid options are EXIT_USAGE, although only the model shows them. */
    ag_status status = ag_session_create(e->model, &params, &e->session, &err);
    interrupt_register(e->session);
    return status == AG_OK ? EXIT_DONE : complain_settings(&err);
}

void engine_unload(engine *e) {
    interrupt_unregister(e->session);
    ag_session_destroy(e->session);
    ag_model_destroy(e->model);
    ag_backend_destroy(e->backend);
    e->session = NULL;
    e->model = NULL;
    e->backend = NULL;
}

void engine_close(engine *e) {
    engine_unload(e);
    ag_tokenizer_destroy(e->tokenizer);
    free(e->dir);
}
