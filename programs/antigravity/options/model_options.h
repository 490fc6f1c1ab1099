/* SPDX-License-Identifier: Apache-2.0 */
/* The options that commands share: which model, as what, on what, with how much context. */
#ifndef ANTIGRAVITY_MODEL_OPTIONS_H
#define ANTIGRAVITY_MODEL_OPTIONS_H

#include "eviction_options.h"

#include <antigravity/antigravity.h>

enum { MAX_TENSOR_TYPES = 32 };

typedef struct tensor_types {
    ag_tensor_type v[MAX_TENSOR_TYPES];
    size_t n;
} tensor_types;

/* "ffn_down=q6_k"; several with commas between them. For one list of the process. */
bool tensor_types_add(tensor_types *list, const char *value, char *message);

typedef struct model_options {
    const char *dir;      /* NULL: the bundled model */
    const char *backend;  /* a name this build knows; NULL: the CPU, or a GPU if that is wanted */
    const char *device;   /* of the opencl backend; NULL: its choice */
    uint32_t threads;     /* 0: the usable cores */
    uint32_t max_seq_len; /* 0: as many as the model was trained for */
    uint32_t prefill_chunk;
    ag_dtype weights; /* or DTYPE_AS_IS, or AG_WEIGHTS_AUTO */
    tensor_types tensor_types;
    ag_dtype k_type, v_type;
    ag_k_rotation k_rotation;
    eviction_options eviction;
    bool wants_gpu; /* -ngl above 0 */
    bool zero_copy, gpu_attention, host_attention;
    bool quiet, verbose;
} model_options;

model_options model_options_defaults(void);

/* ---- model_options.c ---- */

option_group model_group(model_options *o);   /* -m --weights --tensor-type */
option_group message_group(model_options *o); /* -q -v */

/* The word beside the options, if there is one, is the model. Returns an exit code. */
int model_operand(const command_line *line, model_options *o);
/* What only shows once all options are read; applies -q. Returns an exit code. */
int model_options_check(model_options *o);

/* How the model is loaded; of_type: as if that were --weights, without any --tensor-type. Both
 * borrow from the options. */
ag_model_params model_params(const model_options *o);
ag_model_params model_params_of_type(ag_dtype weights);
/* "q4_0", "as-is": what such a choice means for that model. */
const char *weights_name(ag_dtype weights, const ag_model_info *info);

/* A session with so many slots, as the options say. */
ag_session_params session_params(const model_options *o, uint32_t n_context);

/* All that is said of the cache and its evictions; then threads, machine and messages. */
void add_cache_groups(command_line *line, model_options *o);
void add_machine_groups(command_line *line, model_options *o);

/* ---- machine_options.c ---- */

option_group threads_group(model_options *o); /* -t */
option_group machine_group(model_options *o); /* -b --device --prefill-chunk ... */
int machine_options_check(const model_options *o);

/* ---- cache_options.c ---- */

option_group context_group(model_options *o); /* -c */
option_group kv_type_group(model_options *o); /* --kv-type -ctk -ctv */
option_group k_rotation_group(ag_k_rotation *o);

/* "f16", or "q8_0,q4_0" for keys and values. False: the reason is in why[MESSAGE_SIZE]. */
bool kv_type_parse(model_options *o, const char *value, char *message);
/* Whether keys of that type are rotated. */
bool keys_rotated(ag_k_rotation rotation, ag_dtype k_type);

/* How many tokens a session may hold: the slots asked for, but no more than the model's positions,
 * since nothing leaves the cache. */
uint32_t context_length(const model_options *o, const ag_model_info *info);
/* The smallest context, larger than that of params, with which such a session can be; 0: none. */
uint32_t min_context(const ag_model_info *info, ag_session_params params);

#endif
