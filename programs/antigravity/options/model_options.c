/* SPDX-License-Identifier: Apache-2.0 */
#include "model_options.h"

#include "../command.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"

#include <stdio.h>
#include <string.h>

#define OPTION_STRUCT model_options

model_options model_options_defaults(void) {
    ag_session_params session = ag_session_defaults();
    return (model_options){
        .max_seq_len = session.max_seq_len,
        .weights = ag_model_defaults().weights,
        .rope.yarn_ext_factor = -1,
        .k_type = session.k_type,
        .v_type = session.v_type,
        .k_rotation = session.k_rotation,
        .eviction = eviction_options_defaults(),
    };
}

/* Patterns of all lists, which presets and repeated parsing add to. */
static char tensor_patterns[8 * MAX_TENSOR_TYPES][64];
static size_t n_tensor_patterns;

bool tensor_types_add(tensor_types *list, const char *value, char *message) {
    for (const char *at = value; *at;) {
        const size_t n = strcspn(at, ","), name = strcspn(at, "=,");
        char type[16];
        if (list->n == MAX_TENSOR_TYPES || n_tensor_patterns == 8 * MAX_TENSOR_TYPES)
            return reject(message, "too many: at most %d", MAX_TENSOR_TYPES);
        ag_tensor_type *t = &list->v[list->n];
        char *pattern = tensor_patterns[n_tensor_patterns];
        snprintf(type, sizeof type, "%.*s", name < n ? (int)(n - name - 1) : 0, at + name + 1);
        if (!name || name >= sizeof tensor_patterns[0] || !ag_dtype_parse(type, &t->type) ||
            !ag_dtype_may_be(t->type, AG_DTYPE_WEIGHT)) {
            char known[AG_DTYPE_LIST];
            return reject(message, "'%.*s' is not PATTERN=TYPE with one of %s", (int)n, at,
                          ag_dtype_list(AG_DTYPE_WEIGHT, known, sizeof known));
        }
        snprintf(pattern, sizeof tensor_patterns[0], "%.*s", (int)name, at);
        t->pattern = pattern;
        list->n++;
        n_tensor_patterns++;
        at += n + (at[n] == ',');
    }
    return true;
}

static bool add_tensor_types(void *target, const char *value, char *message) {
    model_options *o = target;
    return tensor_types_add(&o->tensor_types, value, message);
}

/* Sets the factor of which --rope-freq-scale is the inverse. */
static bool set_rope_scale(void *target, const char *value, char *message) {
    model_options *o = target;
    double factor;
    if (!parse_real(value, 1e-6, 1e6, &factor, message)) return false;
    o->rope.freq_scale = 1 / factor;
    return true;
}

static const option_def model_defs[] = {
    {.name = "model",
     .letter = 'm',
     SETS_NAME("MODEL", dir),
     .help = "GGUF file, Hugging Face directory, or the name of a model that 'antigravity models' "
             "lists; without it the bundled demo model"},
    {.name = "weights",
     SETS_DTYPE("TYPE", weights, AG_DTYPE_WEIGHT),
     .as_is = true,
     .help = "type of the weights in memory:"},
    {.name = "tensor-type",
     CALLS("PATTERN=TYPE", add_tensor_types),
     .help = "type of matrices whose names in GGUF files match PATTERN, such as ffn_down, output "
             "or blk.[0-3].attn_v; may be given several times"},
    {.name = "rope-scaling",
     SETS_WORD("auto|none|linear|yarn", rope.scaling, AG_ROPE_SCALING_AUTO),
     .help = "scaling of positions; auto: as the model's files state it"},
    {.name = "rope-scale",
     CALLS("N", set_rope_scale),
     .help = "factor of the scaling: a context of N times the trained length"},
    {.name = "rope-freq-base",
     SETS_REAL("X", rope.freq_base, 0, 1e30),
     .no_default = true,
     .help = "base of the rotary frequencies (default the model's)"},
    {.name = "rope-freq-scale",
     SETS_REAL("X", rope.freq_scale, 0, 1e6),
     .no_default = true,
     .help = "factor of the rotary frequencies, the inverse of --rope-scale"},
    {.name = "yarn-orig-ctx",
     SETS_U32("N", rope.yarn_orig_ctx, 0, INT32_MAX),
     .help = "yarn: trained length; 0: the model's"},
    {.name = "yarn-ext-factor",
     SETS_REAL("X", rope.yarn_ext_factor, -1, 1),
     .no_default = true,
     .help = "yarn: share of unscaled frequencies; 0: linear scaling (default 1)"},
    {.name = "yarn-attn-factor",
     SETS_REAL("X", rope.yarn_attn_factor, 0, 1e6),
     .no_default = true,
     .help = "yarn: factor of the magnitude of attention (default 1)"},
    {.name = "yarn-beta-slow",
     SETS_REAL("X", rope.yarn_beta_slow, 0, 1e6),
     .no_default = true,
     .help = "yarn: turns below which frequencies are scaled (default 1)"},
    {.name = "yarn-beta-fast",
     SETS_REAL("X", rope.yarn_beta_fast, 0, 1e6),
     .no_default = true,
     .help = "yarn: turns above which frequencies stay (default 32)"},
};

option_group model_group(model_options *o) { return OPTION_GROUP("Model", model_defs, o); }

static const option_def message_defs[] = {
    {.name = "quiet",
     .letter = 'q',
     SETS_FLAG(quiet),
     .help = "no progress, notes or statistics on standard error"},
    {.name = "verbose",
     .letter = 'v',
     SETS_FLAG(verbose),
     .help = "report details on standard error"},
};

option_group message_group(model_options *o) { return OPTION_GROUP("Messages", message_defs, o); }

void add_cache_groups(command_line *line, model_options *o) {
    command_line_add(line, context_group(o));
    command_line_add(line, kv_type_group(o));
    command_line_add(line, k_rotation_group(&o->k_rotation));
    command_line_add(line, eviction_choice_group(&o->eviction));
    command_line_add(line, eviction_rules_group(&o->eviction));
    command_line_add(line, eviction_memory_group(&o->eviction));
}

void add_machine_groups(command_line *line, model_options *o) {
    command_line_add(line, threads_group(o));
    command_line_add(line, machine_group(o));
    command_line_add(line, message_group(o));
}

int model_operand(const command_line *line, model_options *o) {
    if (!line->n_operands) return EXIT_DONE;
    if (o->dir)
        return complain_usage("two models given: '%s' and '%s'; give one", o->dir,
                              line->operands[0]);
    o->dir = line->operands[0];
    return EXIT_DONE;
}

int model_options_check(model_options *o) {
    if (o->quiet && o->verbose) return complain_usage("-q and -v exclude each other");
    if (o->quiet) progress_silence();
    if (eviction_options_check(&o->eviction) != EXIT_DONE) return EXIT_USAGE;
    return machine_options_check(o);
}

ag_model_params model_params_of_type(ag_dtype weights) {
    ag_model_params params = ag_model_defaults();
    params.as_is = (unsigned)weights == DTYPE_AS_IS;
    if (!params.as_is) params.weights = weights;
    return params;
}

/* Returns the override of the options. Without unscaled frequencies YaRN is linear scaling. */
static ag_rope_override rope_override(const model_options *o) {
    ag_rope_override rope = o->rope;
    if (rope.yarn_ext_factor == 0 && rope.scaling == AG_ROPE_SCALING_YARN)
        rope.scaling = AG_ROPE_SCALING_LINEAR;
    if (rope.yarn_ext_factor < 0) rope.yarn_ext_factor = 0;
    return rope;
}

ag_model_params model_params(const model_options *o) {
    ag_model_params params = model_params_of_type(o->weights);
    params.tensor_types = o->tensor_types.v;
    params.n_tensor_types = o->tensor_types.n;
    params.rope = rope_override(o);
    return params;
}

const char *weights_name(ag_dtype weights, const ag_model_info *info) {
    if (weights == AG_WEIGHTS_AUTO) {
        weights = info->as_is ? DTYPE_AS_IS : info->mixed ? AG_WEIGHTS_MIX : info->weight_type;
    }
    if (weights == AG_WEIGHTS_MIX) return "mix";
    return (unsigned)weights == DTYPE_AS_IS ? "as-is" : ag_dtype_name(weights);
}

ag_session_params session_params(const model_options *o, uint32_t n_context) {
    return (ag_session_params){
        .max_seq_len = n_context,
        .prefill_chunk = o->prefill_chunk,
        .k_type = o->k_type,
        .v_type = o->v_type,
        .k_rotation = o->k_rotation,
        .eviction = eviction_params(&o->eviction),
    };
}
