/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the machine: threads, cores, backend, device. */
#include "../command.h"
#include "../terminal/output.h"
#include "model_options.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_STRUCT model_options

static bool backend_known(const char *name) {
    for (size_t i = 0; ag_backend_list(i); i++)
        if (!strcmp(ag_backend_list(i), name)) return true;
    return false;
}

static bool set_backend(void *target, const char *value, char *message) {
    if (value[0] && strspn(value, "0123456789") == strlen(value))
        return reject(message,
                      "'%.20s': unknown backend; for the batch size use --prefill-chunk %.20s",
                      value, value);
    if (backend_known(value) || !strcmp(value, "auto")) {
        ((model_options *)target)->backend = value;
        return true;
    }
    size_t n =
        (size_t)snprintf(message, MESSAGE_SIZE, "'%.60s': unknown backend; this build has ", value);
    for (size_t i = 0; ag_backend_list(i) && n < MESSAGE_SIZE; i++)
        n += (size_t)snprintf(message + n, MESSAGE_SIZE - n, "%s, ", ag_backend_list(i));
    if (n < MESSAGE_SIZE) snprintf(message + n, MESSAGE_SIZE - n, "auto");
    return false;
}

static bool set_gpu_layers(void *target, const char *value, char *message) {
    int64_t n = 1;
    bool word = !strcmp(value, "all") || !strcmp(value, "auto");
    if (!word && !parse_integer(value, -1, INT32_MAX, &n, message)) return false;
    ((model_options *)target)->wants_gpu = n != 0;
    return true;
}

/* Parses hexadecimal digits; the last one is cores 0 to 3. */
static bool read_mask(const char *value, cpu_set_t *set, char *message) {
    const char *digits = value + (!strncmp(value, "0x", 2) || !strncmp(value, "0X", 2) ? 2 : 0);
    size_t n = strlen(digits);
    CPU_ZERO(set);
    if (!n || n > CPU_SETSIZE / 4 || strspn(digits, "0123456789abcdefABCDEF") != n)
        return reject(message, "'%.60s' is not a hexadecimal number of up to %d cores", value,
                      CPU_SETSIZE);
    for (size_t i = 0; i < n; i++) {
        const char digit[] = {digits[n - 1 - i], '\0'};
        const long bits = strtol(digit, NULL, 16);
        for (size_t b = 0; b < 4; b++) {
            if (bits >> b & 1) CPU_SET(4 * i + b, set);
        }
    }
    return true;
}

/* Sets the affinity immediately, for this process and its future threads. */
static bool set_cpu_mask(void *target, const char *value, char *message) {
    (void)target;
    cpu_set_t set;
    if (!read_mask(value, &set, message)) return false;
    if (sched_setaffinity(0, sizeof set, &set) == 0) return true;
    return reject(message, "'%.60s': no usable core", value);
}

static const option_def thread_defs[] = {
    {.name = "threads",
     .letter = 't',
     SETS_U32("N", threads, 0, 1024),
     .no_default = true,
     .help = "CPU threads (default 0: the usable cores; if they differ, the big ones)"},
};

option_group threads_group(model_options *o) { return OPTION_GROUP("Machine", thread_defs, o); }

static const option_def machine_defs[] = {
    {.name = "cpu-mask",
     .letter = 'C',
     CALLS("HEX", set_cpu_mask),
     .help = "cores to use, one bit each: 0xf0 is 4 to 7 (default: every core of the process)"},
    {.name = "backend",
     .letter = 'b',
     CALLS("NAME|auto", set_backend),
     .help = "backend; 'antigravity devices' lists them; auto: the one that decodes the model "
             "fastest, measured once for each device and model (default cpu)"},
    {.name = "device",
     SETS_NAME("N|NAME", device),
     .no_default = true,
     .help = "number or part of the name of an OpenCL device (default: the first GPU)"},
    {.name = "prefill-chunk",
     SETS_U32("N", prefill_chunk, 1, 65536),
     .aliases = {"batch-size", "ubatch-size", "--ub"},
     .no_default = true,
     .help = "prompt tokens computed at a time (default 512, with -b opencl 1024; eval kl: 64)"},
    {.name = "gpu-layers",
     CALLS("N", set_gpu_layers),
     .aliases = {"--ngl", "n-gpu-layers"},
     .help = "0: the CPU; more: a GPU, if there is one"},
    {.name = "zero-copy",
     SETS_FLAG(zero_copy),
     .help = "GPU and CPU share memory (opencl backend)"},
    {.name = "gpu-attn",
     SETS_FLAG(gpu_attention),
     .help = "attention on the GPU: the default of the opencl backend"},
    {.name = "no-gpu-attn",
     SETS_FLAG(host_attention),
     .help = "attention on the CPU (opencl backend)"},
};

option_group machine_group(model_options *o) { return OPTION_GROUP("Machine", machine_defs, o); }

bool names_opencl(const model_options *o) { return o->backend && !strcmp(o->backend, "opencl"); }
bool chooses_backend(const model_options *o) { return o->backend && !strcmp(o->backend, "auto"); }

/* Checks that options of the opencl backend are given only where it can be chosen. Sets the prefill
 * chunk unless it was given. */
int machine_options_check(model_options *o) {
    enum { LONG_CHUNK = 1024 };
    if (!o->prefill_chunk) {
        o->prefill_chunk = names_opencl(o) ? LONG_CHUNK : ag_session_defaults().prefill_chunk;
    }
    const char *given = o->device           ? "--device"
                        : o->zero_copy      ? "--zero-copy"
                        : o->gpu_attention  ? "--gpu-attn"
                        : o->host_attention ? "--no-gpu-attn"
                                            : NULL;
    if (!given) return EXIT_DONE;
    if (!backend_known("opencl"))
        return complain_usage("%s needs the opencl backend, which is not in this build", given);
    const bool may_choose =
        chooses_backend(o) || names_opencl(o) || (!o->backend && (o->wants_gpu || o->device));
    if (!may_choose) return complain_usage("%s needs the opencl backend: -b opencl", given);
    if (o->gpu_attention && o->host_attention)
        return complain_usage("--gpu-attn and --no-gpu-attn exclude each other");
    return EXIT_DONE;
}
