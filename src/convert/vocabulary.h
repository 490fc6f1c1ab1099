/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tokenizer of a directory as the keys of a GGUF file. */
#ifndef AG_CONVERT_VOCABULARY_H
#define AG_CONVERT_VOCABULARY_H

#include "convert/out_model.h"
#include "models/spec.h"

/* Writes the keys that start with "tokenizer."; the model is "none" if there is no tokenizer.json.
 * pre: tokenizer.ggml.pre; NULL: derived from the pattern. Returns AG_UNSUPPORTED for a tokenizer
 * that these keys cannot describe. */
ag_status ag_put_vocabulary(ag_out_model *m, const ag_model_spec *s, const char *pre,
                            ag_error *err);

#endif
