/* SPDX-License-Identifier: Apache-2.0 */
/* The post-processor of a tokenizer: the ids that stand before and behind every text. */
#ifndef AG_TEXT_POSTPROCESSOR_H
#define AG_TEXT_POSTPROCESSOR_H

#include "text/vocab.h"

typedef struct ag_postprocessor {
    ag_ids prefix, suffix;
} ag_postprocessor;

/* The "post_processor" of a tokenizer.json, into a zeroed one; v may be NULL or null. Release with
 * ag_postprocessor_free whatever this returns. */
ag_status ag_postprocessor_read_json(ag_postprocessor *pp, const json_t *v, const ag_vocab *vocab,
                                     ag_error *err);
void ag_postprocessor_free(ag_postprocessor *pp);

#endif
