/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processor of a tokenizer: the ids before and after each text. */
#ifndef AG_TEXT_POSTPROCESSOR_H
#define AG_TEXT_POSTPROCESSOR_H

#include "text/vocab.h"

typedef struct ag_postprocessor {
    ag_ids prefix, suffix;
} ag_postprocessor;

/* Reads the "post_processor" of a tokenizer.json into a zeroed *pp. v may be NULL or null. The
 * caller must call ag_postprocessor_free(), also after a failure. */
ag_status ag_postprocessor_read_json(ag_postprocessor *pp, const json_t *v, const ag_vocab *vocab,
                                     ag_error *err);
void ag_postprocessor_free(ag_postprocessor *pp);

#endif
