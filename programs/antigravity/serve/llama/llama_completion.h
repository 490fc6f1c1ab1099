/* SPDX-License-Identifier: Apache-2.0 */
/* POST /completion as llama.cpp's server has it: its clients know no other path for a text. */
#ifndef ANTIGRAVITY_SERVE_LLAMA_LLAMA_COMPLETION_H
#define ANTIGRAVITY_SERVE_LLAMA_LLAMA_COMPLETION_H

#include "serve/protocol/protocol.h"
#include "serve/request/route.h"

bool llama_parse_completion(const serve_http_request *http, const json_t *body, serve_request *r,
                            serve_error *e);
/* POST /infill: what stands between input_prefix and input_suffix. */
bool llama_parse_infill(const serve_http_request *http, const json_t *body, serve_request *r,
                        serve_error *e);

#endif
