/* SPDX-License-Identifier: Apache-2.0 */
/* Options that commands share: model, weights, KV cache, backend and messages. */
#ifndef ANTIGRAVITY_MODEL_OPTIONS_H
#define ANTIGRAVITY_MODEL_OPTIONS_H

#include "eviction_options.h"

#include <antigravity/antigravity.h>

enum { MAX_TENSOR_TYPES = 32 };

typedef struct tensor_types {
    ag_tensor_type v[MAX_TENSOR_TYPES];
    size_t n;
} tensor_types;

/* Adds "ffn_down=q6_k" or several, separated by commas. The patterns are static. */
bool tensor_types_add(tensor_types *list, const char *value, char *message);

typedef struct model_options {
    const char *dir;        /* NULL: the bundled model */
    const char *backend;    /* backend name or "auto"; NULL: the CPU, or a GPU if wants_gpu */
    const char *device;     /* opencl backend only; NULL: its default */
    uint32_t threads;       /* 0: the usable cores */
    uint32_t max_seq_len;   /* 0: the trained context length */
    bool names_context;     /* -c was given */
    uint32_t prefill_chunk; /* 0 until model_options_check(): not given */
    ag_dtype weights;       /* a type, DTYPE_AS_IS, or AG_WEIGHTS_AUTO */
    tensor_types tensor_types;
    ag_rope_override rope; /* yarn_ext_factor -1: not given */
    ag_dtype k_type, v_type;
    ag_k_rotation k_rotation;
    eviction_options eviction;
    bool wants_gpu; /* -ngl above 0 */
    bool zero_copy, gpu_attention, host_attention;
    bool time_launches; /* no option: set by bench --launches */
    bool quiet, verbose;
    bool is_brief; /* the memory plan is reported only with -v */
} model_options;

model_options model_options_defaults(void);

/* ---- model_options.c ---- */

option_group model_group(model_options *o);   /* -m --weights --tensor-type --rope-... */
option_group message_group(model_options *o); /* -q -v */

/* Takes the operand, if any, as the model. Returns an exit code. */
int model_operand(const command_line *line, model_options *o);
/* Checks the parsed options together and applies -q. Returns an exit code. */
int model_options_check(model_options *o);

/* Return the load parameters. The second uses `weights` in place of --weights, and no
 * --tensor-type. The result borrows from the options. */
ag_model_params model_params(const model_options *o);
ag_model_params model_params_of_type(ag_dtype weights);
/* Returns the name of the weight type, such as "q4_0" or "as-is", resolving "auto" for the
 * model. */
const char *weights_name(ag_dtype weights, const ag_model_info *info);

/* Returns session parameters with n_context slots. */
ag_session_params session_params(const model_options *o, uint32_t n_context);

/* Add the groups of cache and eviction, and those of threads, machine and messages. */
void add_cache_groups(command_line *line, model_options *o);
void add_machine_groups(command_line *line, model_options *o);

/* ---- machine_options.c ---- */

option_group threads_group(model_options *o); /* -t */
option_group machine_group(model_options *o); /* -b --device --prefill-chunk ... */
int machine_options_check(model_options *o);
/* Returns whether -b opencl was given. */
bool names_opencl(const model_options *o);
/* Returns whether -b auto was given. */
bool chooses_backend(const model_options *o);

/* ---- cache_options.c ---- */

option_group context_group(model_options *o); /* -c */
option_group kv_type_group(model_options *o); /* --kv-type -ctk -ctv */
option_group k_rotation_group(ag_k_rotation *o);

/* Parses "f16", or "q8_0,q4_0" for keys and values. On false the reason is in
 * message[MESSAGE_SIZE]. */
bool kv_type_parse(model_options *o, const char *value, char *message);
/* Returns whether keys of that type are rotated. */
bool keys_rotated(ag_k_rotation rotation, ag_dtype k_type);

/* Returns --max-seq-len, limited to the model's positions. */
uint32_t context_length(const model_options *o, const ag_model_info *info);
/* Reports that the positions of the model at `path` limit a given -c, unless quiet. */
void context_report(const model_options *o, const ag_model_info *info, const char *path);
/* Fails if the --kv-budget of a session is not below its context. err may be NULL. */
ag_status budget_check(const model_options *o, const ag_session_params *p, ag_error *err);
/* Returns the smallest context above params.max_seq_len with which such a session can be created; 0
 * if none. */
uint32_t min_context(const ag_model_info *info, ag_session_params params);

#endif
