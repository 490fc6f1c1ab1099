/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the KV cache: length and types. Eviction is in eviction_options.c. */
#include "../terminal/output.h"
#include "model_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPTION_STRUCT model_options

bool kv_type_parse(model_options *o, const char *value, char *message) {
    static const option_def one = {.kind = OPTION_DTYPE, .dtypes = AG_DTYPE_CACHE};
    const char *comma = strchr(value, ',');
    if (!comma) {
        if (!option_set(&one, &o->k_type, value, message)) return false;
        o->v_type = o->k_type;
        return true;
    }
    char first[32];
    snprintf(first, sizeof first, "%.*s", (int)(comma - value), value);
    return option_set(&one, &o->k_type, first, message) &&
           option_set(&one, &o->v_type, comma + 1, message);
}

static bool set_kv_type(void *target, const char *value, char *message) {
    return kv_type_parse(target, value, message);
}

static bool set_context(void *target, const char *value, char *message) {
    static const option_def one = {.kind = OPTION_U32, OPTION_RANGE(0, INT32_MAX)};
    model_options *o = target;
    o->names_context = true;
    return option_set(&one, &o->max_seq_len, value, message);
}

static void show_context(const void *target, char *buf, size_t cap) {
    const model_options *o = target;
    snprintf(buf, cap, "%" PRIu32, o->max_seq_len);
}

static const option_def length_defs[] = {
    {.name = "max-seq-len",
     .letter = 'c',
     CALLS("N", set_context),
     .show = show_context,
     .aliases = {"ctx-size"},
     .help = "tokens the KV cache may hold; 0: the number that the model was trained for"},
};

option_group context_group(model_options *o) { return OPTION_GROUP("KV cache", length_defs, o); }

static const option_def type_defs[] = {
    {.name = "kv-type",
     CALLS("TYPE[,TYPE]", set_kv_type),
     .dtypes = AG_DTYPE_CACHE,
     .help = "type of the KV cache, or of keys and values:"},
    {.name = "cache-type-k",
     SETS_DTYPE("TYPE", k_type, AG_DTYPE_CACHE),
     .aliases = {"--ctk"},
     .help = "type of the keys alone"},
    {.name = "cache-type-v",
     SETS_DTYPE("TYPE", v_type, AG_DTYPE_CACHE),
     .aliases = {"--ctv"},
     .help = "type of the values alone"},
};

option_group kv_type_group(model_options *o) { return OPTION_GROUP("KV cache", type_defs, o); }

static const option_def rotation_defs[] = {
    {.name = "k-rotation",
     .kind = OPTION_WORD,
     .value = "auto|off|on",
     .low = AG_K_ROTATION_AUTO,
     .help = "Hadamard rotation of the keys before they are stored; auto: of q4_0 keys"},
};

option_group k_rotation_group(ag_k_rotation *o) {
    return OPTION_GROUP("KV cache", rotation_defs, o);
}

bool keys_rotated(ag_k_rotation rotation, ag_dtype k_type) {
    return rotation == AG_K_ROTATION_ON || (rotation == AG_K_ROTATION_AUTO && k_type == AG_Q4_0);
}

uint32_t context_length(const model_options *o, const ag_model_info *info) {
    bool model_decides = !o->max_seq_len || o->max_seq_len > info->max_positions;
    return model_decides ? info->max_positions : o->max_seq_len;
}

void context_report(const model_options *o, const ag_model_info *info, const char *path) {
    if (o->quiet || !o->names_context || o->max_seq_len <= info->max_positions) return;
    complain("-c %" PRIu32 ": %s has %" PRIu32 " positions; the context holds %" PRIu32 " tokens",
             o->max_seq_len, path, info->max_positions, info->max_positions);
}

ag_status budget_check(const model_options *o, const ag_session_params *p, ag_error *err) {
    const uint32_t budget = p->eviction.budget_tokens;
    const bool is_named = o->names_context && o->max_seq_len == p->max_seq_len;
    if (!p->eviction.policy || budget < p->max_seq_len) return AG_OK;
    if (err) {
        err->status = AG_INVALID;
        snprintf(err->msg, sizeof err->msg,
                 "--kv-budget %" PRIu32 ": it must be below %s%" PRIu32 "%s", budget,
                 is_named ? "-c " : "the context of ", p->max_seq_len, is_named ? "" : " tokens");
    }
    return AG_INVALID;
}

uint32_t min_context(const ag_model_info *info, ag_session_params params) {
    ag_session_plan plan;
    uint32_t low = params.max_seq_len, high = info->max_positions;
    params.max_seq_len = high;
    if (low >= high || ag_session_plan_memory(info, &params, &plan, NULL) != AG_OK) return 0;
    while (low < high) {
        params.max_seq_len = low + (high - low) / 2;
        if (ag_session_plan_memory(info, &params, &plan, NULL) == AG_OK) high = params.max_seq_len;
        else low = params.max_seq_len + 1;
    }
    return high;
}
