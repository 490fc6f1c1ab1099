/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp's POST /completion and /infill. */
#ifndef ANTIGRAVITY_SERVE_LLAMA_LLAMA_COMPLETION_H
#define ANTIGRAVITY_SERVE_LLAMA_LLAMA_COMPLETION_H

#include "../protocol/protocol.h"
#include "../request/route.h"

bool llama_parse_completion(const json_t *body, serve_request *r, serve_error *e);
/* Parses a request for the text between input_prefix and input_suffix. */
bool llama_parse_infill(const json_t *body, serve_request *r, serve_error *e);
/* Returns the settings of a sampler under llama.cpp's names; NULL if out of memory. */
json_t *llama_sampling_object(const ag_sampler_params *s);

#endif
