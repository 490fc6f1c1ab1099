/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity doctor: describes what this machine offers, and what is missing or slow. */
#include "../command.h"
#include "../model/model_dir.h"
#include "../models.h"
#include "../options/options.h"
#include "../support/version.h"
#include "../terminal/output.h"
#include "advice.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BACKENDS = 8 };

typedef struct checkup {
    backend_entry backends[MAX_BACKENDS];
    size_t n_backends;
    ag_memory_plan memory; /* sizes of the machine's memory only */
    model_store store;
    json_t *models, *drivers, *advice; /* lists; NULL if out of memory */
} checkup;

typedef struct doctor_options {
    const char *root;
    bool json;
} doctor_options;

void advise(json_t **list, const char *about, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_printable(text);
    json_append(list, JSON_OBJECT({"about", json_string(about)}, {"text", json_string(text)}));
}

/* ---- checks ---- */

static backend_entry *find_backend(checkup *c, const char *name) {
    for (size_t i = 0; i < c->n_backends; i++)
        if (!strcmp(c->backends[i].name, name)) return &c->backends[i];
    return NULL;
}

static int check_backends(checkup *c) {
    int code = EXIT_DONE;
    for (; c->n_backends < MAX_BACKENDS && ag_backend_list(c->n_backends); c->n_backends++) {
        code = backend_entry_open(&c->backends[c->n_backends], ag_backend_list(c->n_backends));
        if (code != EXIT_DONE) return code;
    }
    return code;
}

static void check_cpu(checkup *c, ag_backend *cpu) {
    const char *text = ag_backend_describe(cpu), *machine = strstr(text, "this machine: ");
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t threads = ag_backend_threads(cpu);
    if (getenv("AG_CPU_ISA"))
        advise(&c->advice, "cpu", "AG_CPU_ISA=%s limits the instruction sets: unset it",
               getenv("AG_CPU_ISA"));
    if (!machine) machine = text;
#if defined(__x86_64__)
    if (!strstr(machine, "avx2"))
        advise(&c->advice, "cpu",
               "slow: the processor or virtual machine has no AVX2, so portable kernels run");
#elif defined(__aarch64__)
    if (!strstr(machine, "neon_dotprod"))
        advise(&c->advice, "cpu",
               "slow: the processor has no dot product instructions (Armv8.2 dotprod)");
#endif
    if (online > 0 && threads < (unsigned long)online)
        advise(&c->advice, "cpu",
               "%" PRIu32
               " of %ld cores compute: affinity, a CPU quota or little cores limit them; "
               "-t sets another number",
               threads, online);
}

/* Reads the sizes of the machine's memory by a plan for the smallest synthetic model. */
static int check_memory(checkup *c, ag_backend *cpu) {
    ag_error err;
    ag_status st = ag_memory_plan_synthetic(cpu, "tiny", NULL, NULL, 1, &c->memory, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

static void check_model(checkup *c, ag_backend *cpu, const store_entry *e) {
    char path[PATH_MAX], needs[32], has[32];
    ag_memory_plan plan;
    ag_model_info info;
    ag_error err;
    if (e->is_part) {
        advise(&c->advice, "store", "%s is incomplete: 'antigravity pull' resumes it", e->name);
        return;
    }
    if (!store_model_path(&c->store, e, path)) return;
    if (ag_model_inspect(path, NULL, &info, &err) != AG_OK ||
        ag_memory_plan_make(cpu, path, NULL, NULL, 1, &plan, &err) != AG_OK) {
        advise(&c->advice, "store", "%s", err.msg);
        return;
    }
    format_bytes((double)plan.min_bytes, needs, sizeof needs);
    if (plan.has_bytes && plan.min_bytes > plan.has_bytes)
        advise(&c->advice, "memory", "%s needs %s, %s has %s: use a smaller type or model", e->name,
               needs, plan.memory, format_bytes((double)plan.has_bytes, has, sizeof has));
    else if (plan.free_bytes && plan.min_bytes > plan.free_bytes)
        advise(&c->advice, "memory", "%s needs %s, of which %s is free: it will swap or fail",
               e->name, needs, format_bytes((double)plan.free_bytes, has, sizeof has));
    if (plan.weights_mixed)
        advise(
            &c->advice, "store",
            "%s starts slowly, because its weights are converted each time: 'antigravity quantize' "
            "converts them once",
            e->name);
}

static int check_store(checkup *c, ag_backend *cpu) {
    if (!store_locate(c->store.path)) return EXIT_DONE;
    int code = store_open(&c->store);
    for (size_t i = 0; i < c->store.n && code == EXIT_DONE; i++) {
        json_append(&c->models, models_row(&c->store, &c->store.entries[i], true));
        check_model(c, cpu, &c->store.entries[i]);
    }
    if (code == EXIT_DONE && !c->store.n)
        advise(&c->advice, "store",
               "no models yet: 'antigravity pull ORG/NAME' fetches one; until "
               "then commands use the demo model, which tells fairy tales");
    return code;
}

/* ---- report ---- */

static void print_list(const char *label, const json_t *list, const char *key) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        printf("%-8s %s\n", label, json_string_value(key ? json_object_get(item, key) : item));
    }
}

static void print_memory(const ag_memory_plan *m) {
    char has[32], left[32];
    if (!m->has_bytes) {
        printf("memory   unknown\n");
        return;
    }
    printf("memory   %s has %s, %s free\n", m->memory,
           format_bytes((double)m->has_bytes, has, sizeof has),
           format_bytes((double)m->free_bytes, left, sizeof left));
}

static int print_text(const checkup *c) {
    char size[32], name[NAME_MAX + 1];
    version_print();
    for (size_t i = 0; i < c->n_backends; i++) backend_entry_print(&c->backends[i]);
    print_list("driver", c->drivers, NULL);
    print_memory(&c->memory);
    if (c->store.path[0]) printf("store    %s, %zu models\n", c->store.path, c->store.n);
    else puts("store    none: set HOME or ANTIGRAVITY_MODELS");
    for (size_t i = 0; i < json_array_size(c->models); i++) {
        const json_t *row = json_array_get(c->models, i);
        snprintf(name, sizeof name, "%s", json_string_value(json_object_get(row, "name")));
        printf("model    %s: %s, %s\n", make_printable(name),
               json_string_value(json_object_get(row, "kind")),
               format_bytes(json_number_value(json_object_get(row, "bytes")), size, sizeof size));
    }
    printf("\n%s\n", json_array_size(c->advice) ? "Advice" : "No advice: nothing is missing.");
    for (size_t i = 0; i < json_array_size(c->advice); i++) {
        const json_t *a = json_array_get(c->advice, i);
        printf("%-8s %s\n", json_string_value(json_object_get(a, "about")),
               json_string_value(json_object_get(a, "text")));
    }
    return EXIT_DONE;
}

static int print_json(const checkup *c) {
    json_t *backends = json_array();
    for (size_t i = 0; i < c->n_backends; i++)
        json_append(&backends, backend_entry_json(&c->backends[i]));
    const ag_memory_plan *m = &c->memory;
    json_t *memory = JSON_OBJECT({"of", json_string(m->memory)},
                                 {"bytes", json_integer((json_int_t)m->has_bytes)},
                                 {"free_bytes", json_integer((json_int_t)m->free_bytes)});
    return json_print(
        JSON_OBJECT({"version", json_string(ag_version())},
                    {"built_without", json_string(version_absent_parts())}, {"backends", backends},
                    {"drivers", json_incref(c->drivers)}, {"memory", memory},
                    {"store", json_text(c->store.path, strlen(c->store.path))},
                    {"models", json_incref(c->models)}, {"advice", json_incref(c->advice)}));
}

static int examine(checkup *c, const doctor_options *o) {
    *c = (checkup){
        .models = json_array(), .drivers = opencl_drivers(o->root), .advice = json_array()};
    int code = check_backends(c);
    if (code != EXIT_DONE) return code;
    ag_backend *cpu = find_backend(c, "cpu")->backend;
    check_cpu(c, cpu);
    code = check_memory(c, cpu);
    if (code == EXIT_DONE) code = check_store(c, cpu);
    if (code != EXIT_DONE) return code;
    advise_on_gpus(&c->advice, o->root, find_backend(c, "opencl"));
    return c->models && c->drivers && c->advice ? EXIT_DONE : complain_no_memory();
}

#define OPTION_STRUCT doctor_options
static const option_def defs[] = {
    {.name = "json", SETS_FLAG(json), .help = "print one object"},
    {.name = "root",
     SETS_NAME("DIR", root),
     .help = "look for GPUs and their drivers in DIR/sys, DIR/dev and DIR/etc"},
};

int command_doctor(int argc, char **argv) {
    doctor_options o = {.root = ""};
    command_line line = {
        .usage = "doctor [OPTION]...",
        .description = "Describes this machine: instruction sets, memory and its limits, OpenCL\n"
                       "drivers and devices, models of the store. Then gives advice: what is\n"
                       "missing or slow, why, and which package or setting helps.",
        .examples = "  antigravity doctor",
        .groups = {OPTION_GROUP("Options", defs, &o)},
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    checkup c;
    code = examine(&c, &o);
    if (code == EXIT_DONE) code = o.json ? print_json(&c) : print_text(&c);
    for (size_t i = 0; i < c.n_backends; i++) backend_entry_close(&c.backends[i]);
    store_close(&c.store);
    json_decref(c.models);
    json_decref(c.drivers);
    json_decref(c.advice);
    return code;
}
