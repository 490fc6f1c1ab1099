/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"

#include <inttypes.h>
#include <string.h>

#define OPTION_STRUCT bench_options

/* Stores the name only. The file is read after all options were parsed. */
static bool add_recording(void *target, const char *value, char *message) {
    bench_options *o = target;
    if (o->n_recordings == MAX_RECORDINGS)
        return reject(message, "too many recordings: at most %d", MAX_RECORDINGS);
    o->recordings[o->n_recordings++].path = value;
    return true;
}

static const option_def defs[] = {
    {.name = "shape",
     SETS_NAME("NAME", shape),
     .help = "random weights of a known shape instead of a model: llama-3.2-1b, llama-3.2-3b, "
             "llama-3.1-8b, qwen3-30b-a3b, gpt-oss-20b or tiny"},
    {.name = "layers",
     SETS_U32("N", layers, 1, 1024),
     .no_default = true,
     .help = "layers of --shape (default: all of them)"},
    {.name = "n-prompt",
     .letter = 'p',
     SETS_LIST("N[,N...]", n_prompt, 0, INT32_MAX),
     .help = "tokens of the prompts to read, one row pp each; 0: none"},
    {.name = "n-gen",
     .letter = 'n',
     SETS_LIST("N[,N...]", n_gen, 0, INT32_MAX),
     .help = "tokens to decode, one row tg each; 0: none"},
    {.name = "n-depth",
     .letter = 'd',
     SETS_LIST("N[,N...]", depth, 0, INT32_MAX),
     .help = "tokens in the cache before each test: random keys and values, since speed does not "
             "depend on them"},
    {.name = "repetitions",
     .letter = 'r',
     SETS_U32("N", repetitions, 1, MAX_REPETITIONS),
     .help = "measurements per row, after one warm-up"},
    {.name = "threads",
     .letter = 't',
     SETS_LIST("N[,N...]", threads, 0, 1024),
     .no_default = true,
     .help = "CPU threads (default 0: the usable cores)"},
    {.name = "parallel",
     SETS_U32("N", parallel, 1, 256),
     .aliases = {"--np"},
     .help = "sequences decoded together; speeds are totals"},
    {.name = "first-depth",
     SETS_U32("N", first_depth, 1, INT32_MAX),
     .no_default = true,
     .help = "tokens in the cache of the first sequence, with --parallel (default: as the others)"},
    {.name = "replay",
     CALLS("FILE", add_recording),
     .help = "decode a generation recorded by generate --json with and without drafts, "
             "alternating; replaces -p, -n and -d; may be given several times"},
    {.name = "draft-max",
     SETS_U32("N", draft_max, 1, 14),
     .help = "tokens of a draft, with --replay"},
    {.name = "ops",
     SETS_FLAG(ops),
     .help = "print seconds of all repetitions by operation code and by layer, instead of speeds; "
             "an ADD and the NORM of its sum run as one and count as ADD, two PRODUCTS and their "
             "GATE as PRODUCTS; on a device this is slower, because its queue is drained after "
             "each operation"},
    {.name = "launches",
     SETS_FLAG(launches),
     .help = "print seconds of all repetitions on the device by kernel and grid, instead of "
             "speeds; needs -b opencl"},
};

static const char description[] =
    "Measures the speed of reading prompts (pp) and decoding tokens (tg): median, lowest and\n"
    "highest tokens/s. Each row shows the memory read rate of this machine before and after it.\n"
    "For tg it shows the share of that rate that reading weights and cache uses: at most 100 %,\n"
    "unless they fit in the processor's caches. Rows with an unsteady machine are repeated.\n"
    "J/token is the energy of the processor, if its counters (RAPL) can be read.";

static const char examples[] =
    "  antigravity bench --shape llama-3.2-1b\n"
    "  antigravity bench -m ~/models/Llama-3.2-1B -p 512 -n 128 -d 0,4096 -t 1,2,4 -r 3\n"
    "  antigravity bench --shape tiny --parallel 8 -p 0 -o json\n"
    "  antigravity bench --shape llama-3.2-1b --replay edit.json\n"
    "  antigravity bench --shape llama-3.2-1b --ops\n"
    "  antigravity bench --shape llama-3.2-1b -b opencl -n 0 --launches";

static int check(const bench_options *o) {
    if (!max_number(&o->n_prompt) && !max_number(&o->n_gen))
        return complain_usage("nothing to measure: both -p and -n are 0");
    if (o->layers && !o->shape) return complain_usage("--layers needs --shape");
    if (o->first_depth && o->parallel == 1)
        return complain_usage("--first-depth needs --parallel of 2 or more");
    if (o->shape && o->model.dir) return complain_usage("--shape and -m exclude each other");
    if (o->ops + o->launches + (o->n_recordings > 0) > 1)
        return complain_usage("--ops, --launches and --replay exclude each other");
    return EXIT_DONE;
}

/* Returns the tokens of the longest prompt or generation. */
static uint32_t max_tokens(const bench_options *o) {
    const uint32_t read = max_number(&o->n_prompt), decoded = max_number(&o->n_gen);
    uint32_t max_tokens = o->n_recordings ? 0 : read > decoded ? read : decoded;
    for (size_t i = 0; i < o->n_recordings; i++) {
        const size_t n = o->recordings[i].prompt.n + o->recordings[i].ids.n;
        if (n > max_tokens) max_tokens = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    }
    return max_tokens;
}

/* Returns the most tokens in a cache before a test. */
static uint32_t max_depth(const bench_options *o) {
    const uint32_t depth = max_number(&o->depth);
    return depth > o->first_depth ? depth : o->first_depth;
}

/* Returns the sessions of the row with most tokens. */
static engine_sessions largest_sessions(const bench_options *o) {
    return (engine_sessions){session_params(&o->model, max_depth(o) + max_tokens(o)), o->parallel};
}

/* Checks that every row fits, before the first one is measured. */
static int check_lengths(const bench_options *o, const ag_model_info *info) {
    const uint32_t depth = max_depth(o);
    if ((uint64_t)depth + max_tokens(o) <= info->max_positions) return EXIT_DONE;
    return complain_usage("the test is too long: %" PRIu32 " tokens at depth %" PRIu32
                          "; the model was trained for %" PRIu32,
                          max_tokens(o), depth, info->max_positions);
}

static int open_model(bench *b) {
    const bench_options *o = b->o;
    const engine_sessions sessions = largest_sessions(o);
    engine *e = &b->engine;
    if (!o->shape) {
        int code = engine_inspect(e, &o->model);
        if (code == EXIT_DONE) code = check_lengths(o, &e->info);
        if (code == EXIT_DONE) code = engine_load(e, &o->model, &sessions);
        const char *slash = e->dir ? strrchr(e->dir, '/') : NULL;
        b->name = slash && slash[1] ? slash + 1 : e->dir;
        return code;
    }
    ag_error err;
    ag_model_params params = model_params(&o->model);
    params.progress = progress_update;
    snprintf(b->shape, sizeof b->shape, o->layers ? "%s:%" PRIu32 : "%s", o->shape, o->layers);
    b->name = b->shape;
    int code = engine_open_backend(e, &o->model, b->shape, &sessions);
    if (code == EXIT_DONE) code = engine_plan(e, &o->model, b->shape, &sessions);
    if (code != EXIT_DONE) return code;
    progress_begin("making weights");
    ag_status status = ag_model_synthetic(e->backend, b->shape, &params, &e->model, &err);
    progress_end();
    if (status != AG_OK) return complain_error(&err);
    e->info = *ag_model_get_info(e->model);
    return check_lengths(o, &e->info);
}

static int add_row(bench *b, bench_table *table, uint32_t n_prompt, uint32_t n_gen,
                   uint32_t depth) {
    bench_row row = {
        .n_prompt = n_prompt,
        .n_gen = n_gen,
        .depth = depth,
        .first_depth = b->o->first_depth ? b->o->first_depth : depth,
        .parallel = b->o->parallel,
        .threads = ag_backend_threads(b->engine.backend),
    };
    int code = bench_measure(b, &row);
    if (code != EXIT_DONE) return code;
    if (!bench_table_add(table, b, &row)) return complain_no_memory();
    return output_failed() ? EXIT_FAILED : EXIT_DONE; /* Reported when the command ends. */
}

static int run_rows(bench *b, bench_table *table) {
    const bench_options *o = b->o;
    int code = EXIT_DONE;
    for (size_t d = 0; d < o->depth.n && code == EXIT_DONE; d++) {
        for (size_t i = 0; i < o->n_prompt.n && code == EXIT_DONE; i++)
            if (o->n_prompt.v[i]) code = add_row(b, table, o->n_prompt.v[i], 0, o->depth.v[d]);
        for (size_t i = 0; i < o->n_gen.n && code == EXIT_DONE; i++)
            if (o->n_gen.v[i]) code = add_row(b, table, 0, o->n_gen.v[i], o->depth.v[d]);
    }
    return code;
}

/* The number of threads of a backend is fixed: each number loads the model again. */
static int run_threads(bench_options *o, bench_table *table) {
    int code = EXIT_DONE;
    for (size_t i = 0; i < o->threads.n && code == EXIT_DONE; i++) {
        bench b = {.o = o};
        o->model.threads = o->threads.v[i];
        code = open_model(&b);
        if (code == EXIT_DONE) {
            ag_backend *be = b.engine.backend;
            if (!strcmp(ag_backend_name(be), "cpu") && !o->ops)
                b.bandwidth = bandwidth_create(ag_backend_threads(be));
            if (o->ops) b.ops = bench_ops_create(b.engine.model);
            if (o->launches) b.launches = bench_launches_create();
            const bool has_parts = (!o->ops || b.ops) && (!o->launches || b.launches);
            code = has_parts ? run_rows(&b, table) : complain_no_memory();
        }
        bandwidth_destroy(b.bandwidth);
        bench_ops_destroy(b.ops);
        bench_launches_destroy(b.launches);
        engine_close(&b.engine);
    }
    return code;
}

/* ---- recordings ---- */

static int replay_threads(bench_options *o) {
    result_table table = bench_replay_table(o->format);
    int code = EXIT_DONE;
    for (size_t i = 0; i < o->n_recordings && code == EXIT_DONE; i++)
        code = bench_recording_read(o->recordings[i].path, &o->recordings[i]);
    for (size_t i = 0; i < o->threads.n && code == EXIT_DONE; i++) {
        bench b = {.o = o};
        o->model.threads = o->threads.v[i];
        code = open_model(&b);
        for (size_t k = 0; k < o->n_recordings && code == EXIT_DONE; k++)
            code = bench_replay(&b, &o->recordings[k], &table);
        engine_close(&b.engine);
    }
    for (size_t i = 0; i < o->n_recordings; i++) bench_recording_free(&o->recordings[i]);
    return table_finish(&table, json_object(), code);
}

int command_bench(int argc, char **argv) {
    bench_options o = {
        .model = model_options_defaults(),
        .n_prompt = {{512}, 1},
        .n_gen = {{128}, 1},
        .depth = {{0}, 1},
        .threads = {{0}, 1},
        .repetitions = 5,
        .parallel = 1,
        .draft_max = 7,
    };
    command_line line = {
        .usage = "bench [--shape NAME | -m MODEL] [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {OPTION_GROUP("Measurements", defs, &o), table_group(&o.format),
                   model_group(&o.model), kv_type_group(&o.model),
                   k_rotation_group(&o.model.k_rotation), machine_group(&o.model),
                   message_group(&o.model)},
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = model_options_check(&o.model);
    if (code == EXIT_DONE) code = check(&o);
    if (code != EXIT_DONE) return code;
    o.model.time_launches = o.launches;
    interrupt_install();
    if (o.n_recordings) return replay_threads(&o);
    bench_table *table = bench_table_create(&o);
    if (!table) return complain_no_memory();
    return bench_table_finish(table, run_threads(&o, table));
}
