/* SPDX-License-Identifier: Apache-2.0 */
/* Fill-in-the-middle prompts, for models whose vocabulary has tokens that mark prefix, suffix and
 * middle. */
#ifndef ANTIGRAVITY_SERVE_JOB_INFILL_H
#define ANTIGRAVITY_SERVE_JOB_INFILL_H

#include "../protocol/protocol.h"

#include <antigravity/tokenizer.h>

enum { INFILL_STOPS = 8 };

/* Returns whether the vocabulary has such tokens. */
bool infill_is_supported(const ag_tokenizer *t);
/* Writes a prompt to *ids, which must be empty: r->files, then `prompt` as prefix and r->suffix.
 * Fails with 400 if the vocabulary lacks the tokens. */
bool infill_encode(const ag_tokenizer *t, const json_t *prompt, const serve_request *r, ag_ids *ids,
                   serve_error *e);
/* Writes the ids that end the middle, besides the model's own end tokens. Returns their number. */
size_t infill_stop_ids(const ag_tokenizer *t, int32_t ids[static INFILL_STOPS]);

#endif
