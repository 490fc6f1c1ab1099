/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity quantize SOURCE FILE.gguf TYPE: writes a model as one GGUF file. */
#include "clock.h"
#include "command.h"
#include "model/model_dir.h"
#include "options/model_options.h"
#include "support/input.h"
#include "support/json_out.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/progress.h"

#include <antigravity/antigravity.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct quantize_options {
    const char *type, *imatrix, *pre;
    tensor_types tensor_types;
    bool force, requantize, json;
    model_options run; /* threads and messages */
} quantize_options;

static bool add_tensor_type(void *target, const char *value, char *message) {
    quantize_options *o = target;
    return tensor_types_add(&o->tensor_types, value, message);
}

#define OPTION_STRUCT quantize_options
static const option_def defs[] = {
    {.name = "type",
     SETS_NAME("TYPE", type),
     .help = "TYPE as an option. Of the matrices: q2_k, q2_k_s, q3_k_s, q3_k_m, q3_k_l, q4_0, "
             "q4_1, iq4_nl, mxfp4_moe, q4_k_s, q4_k_m, q5_0, q5_1, q5_k_s, q5_k_m, q6_k, q8_0, "
             "f16, bf16 or f32, as llama.cpp names them; rows that do not fit a type's blocks get "
             "the next one, and vectors stay f32"},
    {.name = "tensor-type",
     CALLS("PATTERN=TYPE", add_tensor_type),
     .help = "type of matrices whose names match PATTERN, such as ffn_down, output or "
             "blk.[0-3].attn_v; may be given several times"},
    {.name = "imatrix",
     SETS_NAME("FILE", imatrix),
     .help = "importance of the columns, as measured by 'antigravity imatrix' or llama.cpp"},
    {.name = "pre",
     SETS_NAME("NAME", pre),
     .help = "value of tokenizer.ggml.pre for a directory's model with an unknown tokenizer"},
    {.name = "requantize",
     SETS_FLAG(requantize),
     .help = "allow quantised weights to be rounded again",
     .aliases = {"allow-requantize"}},
    {.name = "force", SETS_FLAG(force), .help = "replace FILE"},
    {.name = "json",
     SETS_FLAG(json),
     .help = "print one JSON object: tensors, parameters, bytes, bits_per_weight, types, ..."},
};

static void log_message(void *user, ag_log_level level, const char *msg) {
    const quantize_options *o = user;
    if (level == AG_LOG_WARN ? !o->run.quiet : o->run.verbose) complain("%s", msg);
}

static double bits_per_weight(const ag_quantize_report *r) {
    return r->n_parameters ? 8 * (double)r->bytes / (double)r->n_parameters : 0;
}

static int print_json(const ag_quantize_report *r, double seconds) {
    json_t *types = json_object();
    for (int t = 0; t < AG_DTYPE_COUNT; t++) {
        if (!r->bytes_of[t]) continue;
        json_object_set_new(types, ag_dtype_name((ag_dtype)t),
                            json_integer((json_int_t)r->bytes_of[t]));
    }
    const json_field fields[] = {
        {"tensors", json_integer((json_int_t)r->n_tensors)},
        {"fallbacks", json_integer((json_int_t)r->n_fallback)},
        {"parameters", json_integer((json_int_t)r->n_parameters)},
        {"source_bytes", json_integer((json_int_t)r->source_bytes)},
        {"bytes", json_integer((json_int_t)r->bytes)},
        {"file_bytes", json_integer((json_int_t)r->file_bytes)},
        {"bits_per_weight", json_real(bits_per_weight(r))},
        {"types", types},
        {"seconds", json_real(seconds)},
    };
    return json_print(JSON_FIELDS(fields));
}

static int print_report(const char *path, const ag_quantize_report *r, double seconds) {
    char from[32], to[32];
    printf("%s: %zu tensors, %s from %s, %.2f bits a weight, %.1f s\n", path, r->n_tensors,
           format_bytes((double)r->file_bytes, to, sizeof to),
           format_bytes((double)r->source_bytes, from, sizeof from), bits_per_weight(r), seconds);
    for (int t = 0; t < AG_DTYPE_COUNT; t++) {
        if (!r->bytes_of[t]) continue;
        printf("  %-6s %5.1f %%\n", ag_dtype_name((ag_dtype)t),
               100 * (double)r->bytes_of[t] / (double)r->bytes);
    }
    if (r->n_fallback) {
        printf("%zu tensors got another type than they should, because of their shape: -v names "
               "them\n",
               r->n_fallback);
    }
    return EXIT_DONE;
}

static int run(const char *source, const char *path, const quantize_options *o) {
    ag_error err;
    ag_quantize_report report;
    const double begin = clock_s();
    const ag_quantize_params params = {
        .type = o->type,
        .tensor_types = o->tensor_types.v,
        .n_tensor_types = o->tensor_types.n,
        .imatrix = o->imatrix,
        .pre = o->pre,
        .overwrite = o->force,
        .requantize = o->requantize,
        .n_threads = o->run.threads,
        .progress = progress_update,
        .log = log_message,
        .log_user = (void *)(uintptr_t)o, /* read only */
    };
    if (o->run.quiet) progress_silence();
    progress_begin("quantising");
    const ag_status status = ag_quantize(source, path, &params, &report, &err);
    progress_end();
    if (status != AG_OK) return complain_settings(&err);
    const double seconds = clock_s() - begin;
    return o->json ? print_json(&report, seconds) : print_report(path, &report, seconds);
}

/* Takes SOURCE FILE TYPE [THREADS]. */
static int take_operands(const command_line *line, quantize_options *o) {
    char message[MESSAGE_SIZE];
    const option_group threads = threads_group(&o->run);
    if (line->n_operands > 2 && o->type)
        return complain_usage("two types given: '%s' and --type %s; give one", line->operands[2],
                              o->type);
    if (line->n_operands > 2) o->type = line->operands[2];
    if (line->n_operands < 2 || !o->type)
        return complain_usage("%s is missing; see 'antigravity quantize --help'",
                              line->n_operands == 0   ? "SOURCE"
                              : line->n_operands == 1 ? "FILE.gguf"
                                                      : "TYPE");
    if (line->n_operands < 4) return EXIT_DONE;
    if (!option_set(&threads.defs[0], threads.target, line->operands[3], message))
        return complain_usage("THREADS: %s", message);
    return EXIT_DONE;
}

int command_quantize(int argc, char **argv) {
    quantize_options o = {0};
    command_line line = {
        .usage = "quantize SOURCE FILE.gguf TYPE [THREADS] [OPTION]...",
        .description = "Writes a model, a Hugging Face directory, a GGUF file or a name that\n"
                       "'antigravity models' lists, as one GGUF file. FILE appears only when it\n"
                       "is complete: an interrupted conversion leaves nothing.",
        .examples =
            "  antigravity quantize ~/models/Llama-3.2-1B llama-1b-q4_k_m.gguf q4_k_m\n"
            "  antigravity quantize model-f16.gguf model-q4_0.gguf q4_0 --tensor-type attn_v=q6_k",
        .groups = {OPTION_GROUP("Quantisation", defs, &o), threads_group(&o.run),
                   message_group(&o.run)},
        .max_operands = 4,
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    char *source = NULL;
    code = take_operands(&line, &o);
    if (code == EXIT_DONE && o.imatrix)
        code = input_check("imatrix", o.imatrix, "'antigravity imatrix' writes such a file");
    if (code == EXIT_DONE) code = model_dir_find(line.operands[0], o.run.quiet, &source);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    code = run(source, line.operands[1], &o);
    free(source);
    return code;
}
