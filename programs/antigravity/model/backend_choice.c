/* SPDX-License-Identifier: Apache-2.0 */
/* -b auto: the fastest backend for a model, by decode speeds that are measured once. */
#include "../command.h"
#include "../support/statistics.h"
#include "../support/text_buffer.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "engine.h"
#include "speed_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEVICES = 16,
    WARM_UP_TOKENS = 4, /* they compile kernels and are not timed */
    MIN_STEPS = 3,
    MAX_TOKENS = 100,
    CONTEXT = 128,
};
/* Time of the timed tokens, all backends together. */
static const double measure_s = 2;
/* Layers of the sample take at most these bytes, except a single layer. */
static const uint64_t sample_bytes = (uint64_t)256 << 20;

typedef struct candidate {
    char label[192];     /* "cpu", "opencl (NVIDIA H200)" */
    char device[8];      /* its number; "": the CPU */
    char key[3072];      /* for speed_read() */
    ag_backend *backend; /* owned; NULL: not open */
    double speed;        /* tokens/s; 0: not measured */
    ag_error error;      /* the reason why it cannot be used; status AG_OK: it can */
} candidate;

typedef struct choice {
    const engine *e;
    const model_options *o;
    const char *shape; /* NULL: the model in e->dir */
    const engine_sessions *sessions;
    const ag_backend_params *params;
    ag_model_info info;
    candidate all[1 + MAX_DEVICES]; /* the CPU first */
    size_t n;
    ag_error no_device; /* the reason why there is no OpenCL device */
    char origin[256];   /* "measured, stored": the origin of the speeds */
} choice;

/* ---- candidates ---- */

/* Adds all that the speed of decoding depends on, except engine and device. */
static void add_model(text_buffer *t, const choice *c) {
    const ag_model_info *m = &c->info;
    text_addf(t, "model %s, %u layers of %u, %u tokens, experts %u of %u, %" PRIu64 " bytes\n",
              m->architecture, m->n_layers, m->hidden_size, m->n_vocab, m->n_experts_used,
              m->n_experts, m->active_bytes);
    for (uint32_t i = 0; i < m->n_layer_kinds; i++) {
        const ag_layer_kind *k = &m->layer_kinds[i];
        text_addf(t, "%u %s, heads %u/%u of %u, window %u, channels %u, feed-forward %u\n",
                  k->n_layers, ag_mixer_name(k->mixer), k->n_heads, k->n_kv_heads, k->head_dim,
                  k->window, k->channels, k->intermediate_size);
    }
    for (uint32_t i = 0; i < m->n_types; i++)
        text_addf(t, "%s %" PRIu64 "\n", ag_dtype_name(m->types[i].type), m->types[i].values);
    text_addf(t, "options%s%s%s", c->params->zero_copy ? " zero-copy" : "",
              c->params->host_attention ? " no-gpu-attn" : "",
              c->params->time_launches ? " launches" : "");
}

/* Adds a candidate, unless it is a device equal to an earlier one. Returns false if out of memory.
 */
static bool add_candidate(choice *c, const candidate *given, const char *device) {
    text_buffer key = {0};
    candidate *k = &c->all[c->n];
    *k = *given;
    text_addf(&key, "engine %s\ndevice %s\n", ag_version(), device);
    add_model(&key, c);
    if (!key.failed) snprintf(k->key, sizeof k->key, "%s", key.data);
    text_release(&key);
    if (!k->key[0]) return false;
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->all[i].key, k->key)) return true;
    c->n++;
    return true;
}

/* Returns whether --device means device i. */
static bool is_asked(const char *asked, size_t i, const char *name) {
    if (!asked) return true;
    if (strspn(asked, "0123456789") == strlen(asked)) return strtoull(asked, NULL, 10) == i;
    return strcasestr(name, asked) != NULL;
}

static bool add_devices(choice *c) {
    ag_device_info devices[MAX_DEVICES];
    size_t n = 0;
    if (c->o->eviction.spill.path) {
        snprintf(c->no_device.msg, sizeof c->no_device.msg, "--kv-spill needs host memory");
        return true;
    }
    if (ag_backend_devices("opencl", devices, MAX_DEVICES, &n, &c->no_device) != AG_OK) return true;
    for (size_t i = 0; i < n && i < MAX_DEVICES; i++) {
        const ag_device_info *d = &devices[i];
        char text[512];
        candidate k = {.speed = 0};
        if (!is_asked(c->o->device, i, d->name)) continue;
        snprintf(k.label, sizeof k.label, "opencl (%.127s)", d->name);
        snprintf(k.device, sizeof k.device, "%zu", i);
        snprintf(text, sizeof text, "%.127s, %.191s, %u units, %" PRIu64 " bytes", d->name,
                 d->driver, d->n_units, d->memory_bytes);
        if (!add_candidate(c, &k, text)) return false;
        if (c->o->device) break;
    }
    if (c->n == 1)
        snprintf(c->no_device.msg, sizeof c->no_device.msg,
                 "--device %.60s: no device has this number or name",
                 c->o->device ? c->o->device : "");
    return true;
}

static int add_candidates(choice *c) {
    ag_error err;
    candidate cpu = {.label = "cpu"};
    ag_backend_params params = *c->params;
    params.name = cpu.label;
    params.device = NULL;
    if (ag_backend_create(&params, &cpu.backend, &err) != AG_OK) return complain_error(&err);
    const bool ok = add_candidate(c, &cpu, ag_backend_describe(cpu.backend)) && add_devices(c);
    if (!c->n) ag_backend_destroy(cpu.backend);
    return ok ? EXIT_DONE : complain_no_memory();
}

/* Opens a device that has memory for the model and the sessions, unless it is open. Returns false
 * with k->error. */
static bool open_candidate(const choice *c, candidate *k) {
    ag_error err;
    ag_memory_plan plan;
    ag_backend_params params = *c->params;
    params.name = "opencl";
    params.device = k->device;
    if (k->backend) return true;
    ag_status status = ag_backend_create(&params, &k->backend, &err);
    /* Settings that no backend accepts are reported later. */
    if (status == AG_OK &&
        engine_make_plan(c->e, k->backend, c->o, c->shape, c->sessions, &plan, NULL) == AG_OK)
        status = ag_memory_plan_check(&plan, k->backend, &err);
    if (status == AG_OK) return true;
    k->error = err;
    k->error.status = status;
    ag_backend_destroy(k->backend);
    k->backend = NULL;
    return false;
}

/* ---- measuring ---- */

/* Makes a model of random weights with the first layers of the model. */
static ag_status make_sample(const choice *c, ag_backend *be, ag_model **out, ag_error *err) {
    char name[96];
    ag_model_params params = model_params(c->o);
    params.progress = progress_update;
    const double layers = (double)c->info.n_layers * sample_bytes / (double)c->info.weight_bytes;
    const uint32_t n = layers >= c->info.n_layers ? c->info.n_layers
                       : layers >= 1              ? (uint32_t)layers
                                                  : 1;
    if (!c->shape) return ag_model_synthetic_like(be, c->e->dir, &params, n, out, err);
    snprintf(name, sizeof name, "%.*s:%u", (int)strcspn(c->shape, ":"), c->shape, n);
    return ag_model_synthetic(be, name, &params, out, err);
}

typedef struct token_times {
    double limit_s;           /* for all steps */
    double begin, last;       /* times of the first and the last token; 0: none yet */
    double steps[MAX_TOKENS]; /* seconds from a token to the next */
    size_t n;                 /* number of steps */
} token_times;

static bool add_token(void *user, int32_t id, const char *text, size_t len) {
    (void)text, (void)len;
    token_times *t = user;
    const double now = clock_s();
    if (id < 0) return true;
    if (t->last > 0) t->steps[t->n++] = now - t->last;
    else t->begin = now;
    t->last = now;
    return (t->n < MIN_STEPS || now - t->begin < t->limit_s) && progress_update(NULL, 0, 0);
}

static ag_status decode(ag_session *s, ag_sampler *greedy, int64_t n, token_times *times,
                        ag_error *err) {
    const int32_t id = 0;
    ag_generate_stats stats;
    ag_generate_params p = ag_generate_defaults();
    p.max_tokens = n;
    p.ignore_eos = true;
    p.sampler = greedy;
    p.speculate = AG_SPECULATE_OFF;
    p.on_token = add_token;
    p.on_token_user = times;
    return ag_session_generate(s, &id, 1, &p, &stats, err);
}

/* Sets the speed by the median time of a token of the sample, measured for at most limit_s. The
 * model takes longer by the ratio of the bytes that a token reads. */
static ag_status time_sample(const choice *c, candidate *k, double limit_s, ag_error *err) {
    ag_model *model = NULL;
    ag_session *session = NULL;
    ag_sampler *greedy = NULL;
    token_times warm_up = {.limit_s = INFINITY}, times = {.limit_s = limit_s};
    ag_session_params params = ag_session_defaults();
    ag_sampler_params sampling = ag_sampler_defaults();
    params.max_seq_len = CONTEXT < c->info.max_positions ? CONTEXT : c->info.max_positions;
    sampling.temperature = 0;
    ag_status status = make_sample(c, k->backend, &model, err);
    if (status == AG_OK) status = ag_session_create(model, &params, &session, err);
    if (status == AG_OK)
        status = ag_sampler_create(&sampling, (int32_t)c->info.n_vocab, &greedy, err);
    if (status == AG_OK) status = decode(session, greedy, WARM_UP_TOKENS, &warm_up, err);
    if (status == AG_OK) status = decode(session, greedy, MAX_TOKENS, &times, err);
    if (status == AG_OK && times.n) {
        sort_ascending(times.steps, times.n);
        k->speed = (double)ag_model_bytes_per_token(model) / (double)c->info.active_bytes /
                   percentile(times.steps, times.n, 0.5);
    }
    ag_sampler_destroy(greedy);
    ag_session_destroy(session);
    ag_model_destroy(model);
    return status;
}

/* Measures and stores the speed of an open candidate. Returns an exit code. */
static int measure(choice *c, candidate *k, const char *dir, double limit_s) {
    ag_error err;
    progress_begin("measuring");
    const ag_status status = time_sample(c, k, limit_s, &err);
    progress_end();
    if (interrupted()) return complain_error(&(ag_error){.status = AG_CANCELLED});
    if (status != AG_OK) k->error = err;
    else if (dir && speed_write(dir, k->key, k->speed))
        snprintf(c->origin, sizeof c->origin, "measured, stored");
    else
        snprintf(c->origin, sizeof c->origin, "measured, not stored%s%.128s: %s", dir ? " in " : "",
                 dir ? dir : "", dir ? strerror(errno) : "no cache directory");
    return EXIT_DONE;
}

/* Finds the speeds of all candidates: reads those that are stored and measures the others. The CPU
 * comes last, and only if a device can be used. */
static int find_speeds(choice *c) {
    char path[PATH_MAX];
    const char *dir = speed_directory(path) ? path : NULL;
    size_t n_absent = 0, n_devices = 0;
    int code = EXIT_DONE;
    for (size_t i = 0; i < c->n; i++)
        n_absent += !dir || !speed_read(dir, c->all[i].key, &c->all[i].speed);
    snprintf(c->origin, sizeof c->origin, "measured before");
    for (size_t i = 1; i <= c->n && code == EXIT_DONE; i++) {
        candidate *k = &c->all[i % c->n];
        if (i == c->n && !n_devices) break;
        if (k->speed <= 0 && open_candidate(c, k)) code = measure(c, k, dir, measure_s / n_absent);
        n_devices += k->error.status == AG_OK;
    }
    return code;
}

/* ---- the choice ---- */

/* Returns the fastest candidate, and opens it. */
static candidate *open_fastest(choice *c) {
    for (;;) {
        candidate *best = &c->all[0];
        for (size_t i = 1; i < c->n; i++) {
            candidate *k = &c->all[i];
            if (k->error.status == AG_OK && (best->error.status != AG_OK || k->speed > best->speed))
                best = k;
        }
        if (open_candidate(c, best)) return best;
    }
}

static void add_speed(text_buffer *t, const char *between, double speed) {
    if (speed > 0)
        text_addf(t, speed < 1000 ? "%sabout %.3g tokens/s" : "%sabout %.0f tokens/s", between,
                  speed);
}

static void report(const choice *c, const candidate *chosen) {
    text_buffer line = {0};
    bool has_speed = false;
    text_add(&line, chosen->label);
    add_speed(&line, ", ", chosen->speed);
    for (size_t i = 0; i < c->n; i++) {
        const candidate *k = &c->all[i];
        has_speed |= k->speed > 0;
        if (k == chosen) continue;
        text_addf(&line, "; %s", k->label);
        if (k->error.status != AG_OK) text_addf(&line, ": %s", k->error.msg);
        else add_speed(&line, " ", k->speed);
    }
    if (c->n == 1) text_addf(&line, "; opencl: %s", c->no_device.msg);
    if (has_speed) text_addf(&line, " (%s)", c->origin);
    if (!line.failed) complain("backend: %s", line.data);
    text_release(&line);
}

int engine_choose_backend(engine *e, const model_options *o, const char *shape,
                          const engine_sessions *s, const ag_backend_params *params) {
    ag_error err;
    const ag_model_params model = model_params(o);
    choice c = {.e = e, .o = o, .shape = shape, .sessions = s, .params = params, .info = e->info};
    if (shape && ag_model_inspect_synthetic(shape, &model, &c.info, &err) != AG_OK) {
        complain_error(&err);
        return EXIT_USAGE;
    }
    int code = add_candidates(&c);
    if (code == EXIT_DONE && c.n > 1) code = find_speeds(&c);
    if (code == EXIT_DONE) {
        candidate *chosen = open_fastest(&c);
        if (!o->quiet) report(&c, chosen);
        snprintf(e->device, sizeof e->device, "%s", chosen->device);
        e->backend = chosen->backend;
        chosen->backend = NULL;
    }
    for (size_t i = 0; i < c.n; i++) ag_backend_destroy(c.all[i].backend);
    return code;
}
