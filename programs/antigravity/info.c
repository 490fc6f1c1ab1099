/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity info: describes a model and its memory plan without loading it. */
#include "command.h"
#include "model/engine.h"
#include "model/model_dir.h"
#include "support/json_out.h"
#include "terminal/output.h"

#include <antigravity/antigravity.h>
#include <inttypes.h>
#include <string.h>

typedef struct model_report {
    model_options o;
    engine engine;
    uint32_t n_context;
    ag_memory_plan plan;
    bool chat;
    char not_probed[80]; /* reason; "": the template was probed, or there is none */
} model_report;

/* Returns the tokenizer's kind, guessed from its vocabulary. */
static const char *tokenizer_kind(const ag_tokenizer *t) {
    static const char byte_level_space[] = "\xc4\xa0", sentencepiece_byte[] = "<0x0A>";
    if (!t) return "none";
    if (ag_tokenizer_id(t, sentencepiece_byte, strlen(sentencepiece_byte)) >= 0)
        return "BPE with byte fallback";
    if (ag_tokenizer_id(t, byte_level_space, strlen(byte_level_space)) >= 0)
        return "byte-level BPE";
    return "BPE";
}

static size_t count_special(const ag_tokenizer *t) {
    size_t n = 0;
    for (int32_t id = 0; t && id < ag_tokenizer_vocab_size(t); id++)
        n += ag_tokenizer_is_special(t, id);
    return n;
}

/* Returns " <|begin_of_text|>"; "" if the id has no spelling. */
static const char *spell(const ag_tokenizer *t, int32_t id, char *buf, size_t cap) {
    size_t len = 0;
    const char *text = t && id >= 0 ? ag_tokenizer_token(t, id, &len) : NULL;
    buf[0] = '\0';
    if (text) snprintf(buf, cap, " %.*s", (int)(len < 60 ? len : 60), text);
    return make_printable(buf);
}

/* Prints a line per kind of layer if there are several kinds, or one with a window. */
static void print_heads(const ag_model_info *i) {
    const bool plain = i->n_layer_kinds == 1 && !i->layer_kinds[0].window;
    char label[32] = "heads", window[64] = "no window", shared[64] = "";
    for (uint32_t n = 0; n < i->n_layer_kinds; n++) {
        const ag_layer_kind *k = &i->layer_kinds[n];
        if (!plain) snprintf(label, sizeof label, "  %" PRIu32 " of them", k->n_layers);
        if (k->mixer == AG_MIXER_SHORT_CONV) {
            printf("%-14s short convolutions of %" PRIu32 " channels\n", label, k->channels);
            continue;
        }
        if (k->mixer == AG_MIXER_DELTA_NET) {
            printf("%-14s gated delta nets, %" PRIu32 " heads for %" PRIu32 " keys, values %" PRIu32
                   " wide\n",
                   label, k->n_heads, k->n_kv_heads, k->head_dim);
            continue;
        }
        snprintf(window, sizeof window, "no window");
        if (k->window) snprintf(window, sizeof window, "window of %" PRIu32 " tokens", k->window);
        shared[0] = '\0';
        if (k->n_kv_layers < k->n_layers) {
            snprintf(shared, sizeof shared, ", keys and values of earlier layers in %" PRIu32,
                     k->n_layers - k->n_kv_layers);
        }
        printf("%-14s %" PRIu32 "%s for %" PRIu32 " keys and values, %" PRIu32 " wide%s%s%s\n",
               label, k->n_heads, plain ? "" : " heads", k->n_kv_heads, k->head_dim,
               plain ? "" : ", ", plain ? "" : window, shared);
    }
}

static void print_model(const model_report *f) {
    const ag_model_info *i = &f->engine.info;
    const ag_tokenizer *t = f->engine.tokenizer;
    char size[32], token[72];
    printf("model          %s\n", f->engine.dir);
    printf("architecture   %s\n", i->architecture);
    printf("parameters     %.2f M, %s in the file of %s\n", (double)i->n_parameters / 1e6,
           i->file_type_name, format_bytes((double)i->file_bytes, size, sizeof size));
    printf("layers         %" PRIu32 " of width %" PRIu32 ", feed-forward %" PRIu32 "\n",
           i->n_layers, i->hidden_size, i->intermediate_size);
    if (i->n_experts)
        printf("experts        %" PRIu32 " of %" PRIu32 " for a token\n", i->n_experts_used,
               i->n_experts);
    print_heads(i);
    printf("positions      %" PRIu32 ", rope theta %g, scaling %s\n", i->max_positions,
           (double)i->rope_theta, i->rope_scaling);
    printf("norm epsilon   %g\n", (double)i->norm_eps);
    printf("vocabulary     %" PRIu32 ", embedding and output %s\n", i->n_vocab,
           i->tied ? "tied" : "apart");
    printf("tokenizer      %s, %zu special tokens%s\n", tokenizer_kind(t), count_special(t),
           f->chat ? ", chat template" : "");
    if (*f->not_probed) printf("chat template: not probed: %s\n", f->not_probed);
    printf("begins with    %" PRId32 "%s\n", i->bos_id, spell(t, i->bos_id, token, sizeof token));
    for (size_t k = 0; k < i->n_eos; k++)
        printf("ends at        %" PRId32 "%s\n", i->eos_ids[k],
               spell(t, i->eos_ids[k], token, sizeof token));
}

static void print_bytes(const char *name, uint64_t bytes, const char *remark) {
    char size[32];
    printf("  %-12s %12s  %s\n", name, format_bytes((double)bytes, size, sizeof size), remark);
}

static void print_memory(const model_report *f) {
    const ag_model_info *i = &f->engine.info;
    char remark[160];
    printf("\nmemory, with these settings\n");
    int n = snprintf(remark, sizeof remark, "%s", weights_name(f->o.weights, i));
    if (i->n_kept)
        snprintf(remark + n, sizeof remark - (size_t)n,
                 "; %" PRIu32 " matrices keep %s: their rows are not multiples of 32", i->n_kept,
                 ag_dtype_name(i->file_type));
    print_bytes("weights", f->plan.weight_bytes, remark);
    for (uint32_t t = 0; t < i->n_types && i->n_types > 1; t++) {
        snprintf(remark, sizeof remark, "as %s", ag_dtype_name(i->types[t].type));
        print_bytes("", i->types[t].bytes, remark);
    }
    if (i->n_experts) print_bytes("", i->active_bytes, "for a token, with its experts only");
    snprintf(remark, sizeof remark, "%" PRIu32 " tokens, keys %s, values %s; grows as it fills",
             f->n_context, ag_dtype_name(f->o.k_type), ag_dtype_name(f->o.v_type));
    print_bytes("KV cache", f->plan.kv_bytes, remark);
    if (f->plan.state_bytes) {
        print_bytes("state", f->plan.state_bytes, "of layers without keys and values");
    }
    snprintf(remark, sizeof remark, "chunks of %" PRIu32 " tokens", f->o.prefill_chunk);
    print_bytes("workspace", f->plan.workspace_bytes, remark);
    if (f->plan.eviction_bytes) {
        snprintf(remark, sizeof remark, "%s, at most", eviction_policy_name(&f->o.eviction));
        print_bytes("eviction", f->plan.eviction_bytes, remark);
    }
    if (f->plan.draft_bytes) {
        print_bytes("drafts", f->plan.draft_bytes,
                    "tables of the text and rows of logits; only while a text is generated");
    }
    print_bytes("together", f->plan.total_bytes, "");
    print_bytes("embedding", i->embedding_bytes, "stays in the file");
    if (!f->plan.has_bytes) return;
    snprintf(remark, sizeof remark, "%s has", f->plan.memory);
    print_bytes("in all", f->plan.has_bytes, remark);
    print_bytes("free", f->plan.free_bytes, "");
}

static int print_text(const model_report *f) {
    print_model(f);
    print_memory(f);
    printf("\nmachine        %s\n", ag_backend_describe(f->engine.backend));
    return EXIT_DONE;
}

static json_t *kinds_json(const ag_model_info *i) {
    json_t *list = json_array();
    for (uint32_t n = 0; list && n < i->n_layer_kinds; n++) {
        const ag_layer_kind *k = &i->layer_kinds[n];
        json_append(&list, JSON_OBJECT({"layers", json_integer((json_int_t)k->n_layers)},
                                       {"mixer", json_string(ag_mixer_name(k->mixer))},
                                       {"heads", json_integer((json_int_t)k->n_heads)},
                                       {"kv_heads", json_integer((json_int_t)k->n_kv_heads)},
                                       {"head_dim", json_integer((json_int_t)k->head_dim)},
                                       {"window", json_integer((json_int_t)k->window)}));
    }
    return list;
}

static json_t *model_json(const model_report *f) {
    const ag_model_info *i = &f->engine.info;
    const json_field fields[] = {
        {"path", json_text(f->engine.dir, strlen(f->engine.dir))},
        {"architecture", json_string(i->architecture)},
        {"parameters", json_integer((json_int_t)i->n_parameters)},
        {"file_type", json_string(i->file_type_name)},
        {"file_bytes", json_integer((json_int_t)i->file_bytes)},
        {"layers", json_integer((json_int_t)i->n_layers)},
        {"hidden_size", json_integer((json_int_t)i->hidden_size)},
        {"intermediate_size", json_integer((json_int_t)i->intermediate_size)},
        {"heads", json_integer((json_int_t)i->n_heads)},
        {"kv_heads", json_integer((json_int_t)i->n_kv_heads)},
        {"head_dim", json_integer((json_int_t)i->head_dim)},
        {"experts", json_integer((json_int_t)i->n_experts)},
        {"experts_used", json_integer((json_int_t)i->n_experts_used)},
        {"layer_kinds", kinds_json(i)}, /* window 0: none */
        {"vocabulary", json_integer((json_int_t)i->n_vocab)},
        {"max_positions", json_integer((json_int_t)i->max_positions)},
        {"rope_theta", json_float(i->rope_theta)},
        {"rope_scaling", json_string(i->rope_scaling)},
        {"norm_eps", json_float(i->norm_eps)},
        {"tied", json_boolean(i->tied)},
        {"bos_id", json_integer((json_int_t)i->bos_id)},
        {"eos_ids", json_ids(i->eos_ids, i->n_eos)},
        {"tokenizer", json_string(tokenizer_kind(f->engine.tokenizer))},
        {"special_tokens", json_integer((json_int_t)count_special(f->engine.tokenizer))},
        {"chat_template", json_boolean(f->chat)},
    };
    return JSON_FIELDS(fields);
}

static json_t *types_json(const ag_model_info *i) {
    json_t *types = json_object();
    for (uint32_t t = 0; t < i->n_types; t++)
        json_object_set_new(types, ag_dtype_name(i->types[t].type),
                            json_integer((json_int_t)i->types[t].bytes));
    return types;
}

static json_t *memory_json(const model_report *f) {
    const ag_model_info *i = &f->engine.info;
    const json_field fields[] = {
        {"weights", json_string(weights_name(f->o.weights, i))},
        {"k_type", json_string(ag_dtype_name(f->o.k_type))},
        {"v_type", json_string(ag_dtype_name(f->o.v_type))},
        {"max_seq_len", json_integer((json_int_t)f->n_context)},
        {"weight_bytes", json_integer((json_int_t)f->plan.weight_bytes)},
        {"active_bytes", json_integer((json_int_t)i->active_bytes)},
        {"matrix_bytes", types_json(i)},
        {"kept_matrices", json_integer((json_int_t)i->n_kept)},
        {"kv_bytes", json_integer((json_int_t)f->plan.kv_bytes)},
        {"workspace_bytes", json_integer((json_int_t)f->plan.workspace_bytes)},
        {"eviction_policy", json_string(eviction_policy_name(&f->o.eviction))},
        {"state_bytes", json_integer((json_int_t)f->plan.state_bytes)},
        {"eviction_bytes", json_integer((json_int_t)f->plan.eviction_bytes)},
        {"draft_bytes", json_integer((json_int_t)f->plan.draft_bytes)},
        {"total_bytes", json_integer((json_int_t)f->plan.total_bytes)},
        {"embedding_file_bytes", json_integer((json_int_t)i->embedding_bytes)},
        {"least_bytes", json_integer((json_int_t)f->plan.min_bytes)},
        {"machine_bytes", json_integer((json_int_t)f->plan.has_bytes)},
        {"free_bytes", json_integer((json_int_t)f->plan.free_bytes)},
    };
    return JSON_FIELDS(fields);
}

static json_t *machine_json(const model_report *f) {
    ag_backend *b = f->engine.backend;
    const char *text = ag_backend_describe(b);
    return JSON_OBJECT({"backend", json_string(ag_backend_name(b))},
                       {"description", json_text(text, strlen(text))},
                       {"threads", json_integer((json_int_t)ag_backend_threads(b))});
}

static int print_json(const model_report *f) {
    return json_print(JSON_OBJECT({"model", model_json(f)}, {"memory", memory_json(f)},
                                  {"machine", machine_json(f)}));
}

/* ---- the program ---- */

static void print_op(void *user, const ag_op_info *op) {
    (void)user;
    puts(op->text);
}

static void append_op(void *user, const ag_op_info *op) {
    json_append(user, JSON_OBJECT({"code", json_string(op->code)},
                                  {"layer", op->layer < 0 ? json_null() : json_integer(op->layer)},
                                  {"text", json_string(op->text)}));
}

static int print_program(const model_report *f, bool json) {
    const ag_model_params params = model_params(&f->o);
    json_t *ops = json ? json_array() : NULL;
    ag_error err;
    if (ag_model_inspect_ops(f->engine.dir, &params, json ? append_op : print_op, &ops, &err) !=
        AG_OK) {
        json_decref(ops);
        return complain_error(&err);
    }
    if (!json) return EXIT_DONE;
    return json_print(JSON_OBJECT({"program", ops}));
}

/* ---- the command ---- */

/* Probes the chat template. Ignores an unreadable one. */
static void probe_template(model_report *f) {
    ag_chat_format *format = NULL;
    ag_error unused;
    if (ag_chat_format_load(f->engine.dir, f->engine.tokenizer, NULL, &format, &unused) != AG_OK)
        return;
    const char *message = ag_chat_format_not_probed(format);
    if (message) snprintf(f->not_probed, sizeof f->not_probed, "%s", message);
    ag_chat_format_destroy(format);
}

static int collect(model_report *f) {
    ag_error err;
    engine *e = &f->engine;
    int code = engine_inspect(e, &f->o);
    if (code != EXIT_DONE) return code;
    f->n_context = context_length(&f->o, &e->info);
    const engine_sessions one = {session_params(&f->o, f->n_context), 1};
    code = engine_open_backend(e, &f->o, NULL, &one);
    if (code != EXIT_DONE) return code;
    if (engine_make_plan(e, e->backend, &f->o, NULL, &one, &f->plan, &err) != AG_OK)
        return complain_settings(&err);
    f->chat = model_dir_is_chat(e->dir, f->o.quiet);
    if (f->chat) probe_template(f);
    return EXIT_DONE;
}

typedef struct info_output {
    bool json, program;
} info_output;

#define OPTION_STRUCT info_output

int command_info(int argc, char **argv) {
    info_output output = {0};
    model_report f = {.o = model_options_defaults()};
    const option_def defs[] = {
        {.name = "json", SETS_FLAG(json), .help = "print one object: model, memory, machine"},
        {.name = "program",
         SETS_FLAG(program),
         .help = "print the operations of the forward pass instead, one per line: number, layer, "
                 "code, weights, values with their columns, types of the weights"},
    };
    command_line line = {
        .usage = "info [DIR | -m MODEL] [OPTION]...",
        .description = "Describes a model and the memory that each part of it needs with the\n"
                       "given settings. Reads headers only.",
        .examples = "  antigravity info\n"
                    "  antigravity info ~/models/Llama-3.2-1B -c 8192 --kv-type q8_0\n"
                    "  antigravity info --program",
        .groups = {{"Output", defs, 2, &output}, model_group(&f.o)},
        .max_operands = 1,
    };
    add_cache_groups(&line, &f.o);
    add_machine_groups(&line, &f.o);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = model_operand(&line, &f.o);
    if (code == EXIT_DONE) code = model_options_check(&f.o);
    if (code == EXIT_DONE) code = output.program ? engine_inspect(&f.engine, &f.o) : collect(&f);
    if (code == EXIT_DONE && output.program) code = print_program(&f, output.json);
    else if (code == EXIT_DONE) code = output.json ? print_json(&f) : print_text(&f);
    engine_close(&f.engine);
    return code;
}
