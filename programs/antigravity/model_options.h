/* SPDX-License-Identifier: Apache-2.0 */
/* The options that commands share: which model, as what, on what, with how much context. */
#ifndef ANTIGRAVITY_MODEL_OPTIONS_H
#define ANTIGRAVITY_MODEL_OPTIONS_H

#include "eviction_options.h"

#include <antigravity/antigravity.h>

typedef struct model_options {
    const char *dir;      /* NULL: the bundled model */
    const char *backend;  /* a name this build knows; NULL: the CPU, or a GPU if that is wanted */
    const char *device;   /* of the opencl backend; NULL: its choice */
    uint32_t threads;     /* 0: the usable cores */
    uint32_t max_seq_len; /* 0: as many as the model was trained for */
    uint32_t prefill_chunk;
    ag_dtype weights, k_type, v_type;
    eviction_options eviction;
    bool wants_gpu; /* -ngl above 0 */
    bool zero_copy, gpu_attention, host_attention;
    bool quiet, verbose;
} model_options;

model_options model_options_defaults(void);

option_group model_group(model_options *o);   /* -m --weights */
option_group context_group(model_options *o); /* -c --kv-type -ctk -ctv */
option_group kv_group(model_options *o);      /* the same without -c */
option_group machine_group(model_options *o); /* -t -b --device --prefill-chunk ... */
option_group backend_group(model_options *o); /* the same without -t */
option_group message_group(model_options *o); /* -q -v */

/* "f16", or "q8_0,q4_0" for keys and values. False: the reason is in why[WHY_SIZE]. */
bool kv_type_parse(model_options *o, const char *value, char *why);

/* What only shows once all options are read; applies -q. Returns an exit code. */
int model_options_check(model_options *o);

/* How many tokens a session may hold: the slots asked for, but no more than the model's positions,
 * since nothing leaves the cache. */
uint32_t context_length(const model_options *o, const ag_model_info *info);

#endif
