/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a directory as the lists of a GGUF file. */
#ifndef AG_CONVERT_VOCABULARY_H
#define AG_CONVERT_VOCABULARY_H

#include "convert/out_model.h"
#include "models/spec.h"

/* Puts the keys that begin with "tokenizer."; model "none" where there is no tokenizer.json. pre:
 * what tokenizer.ggml.pre becomes, NULL: found by the pattern. AG_UNSUPPORTED for a tokenizer that
 * such lists do not describe. */
ag_status ag_put_vocabulary(ag_out_model *m, const ag_model_spec *s, const char *pre,
                            ag_error *err);

#endif
