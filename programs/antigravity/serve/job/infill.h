/* SPDX-License-Identifier: Apache-2.0 */
/* A text between what stands before and behind it, by models that were trained for it: their
 * vocabularies have tokens that mark the two. */
#ifndef ANTIGRAVITY_SERVE_JOB_INFILL_H
#define ANTIGRAVITY_SERVE_JOB_INFILL_H

#include "serve/protocol/protocol.h"

#include <antigravity/tokenizer.h>

enum { INFILL_STOPS = 8 };

/* Whether the model has tokens for a gap. */
bool infill_is_supported(const ag_tokenizer *t);
/* *ids, which is empty, becomes a prompt with r->suffix behind the gap and r->files before
 * everything. 400 where the model has no such tokens. */
bool infill_encode(const ag_tokenizer *t, const json_t *prompt, const serve_request *r, ag_ids *ids,
                   serve_error *e);
/* What ends the text in the gap, besides the model's own; returns how many. */
size_t infill_stop_ids(const ag_tokenizer *t, int32_t ids[static INFILL_STOPS]);

#endif
