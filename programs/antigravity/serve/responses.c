/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/responses and /v1/responses/input_tokens; the same without /v1, where the model need not
 * be named. Responses are not stored. */
#include "responses.h"

#include "openai_answer.h"

static const serve_protocol responses = {
    .name = "openai-responses",
    .parse = responses_parse,
    .error = openai_error,
    .whole = responses_whole,
    .stream_type = "text/event-stream",
    .stream_repeats_tokens = true,
    .event = responses_event,
    .state_size = sizeof(responses_stream),
    .close = responses_close,
};

static const serve_protocol responses_input_tokens = {
    .name = "openai-responses-count",
    .parse = responses_parse_count,
    .error = openai_error,
    .whole = openai_count,
};

static const serve_route routes[] = {
    {.method = "POST", .path = "/v1/responses", .protocol = &responses, .needs_key = true},
    {.method = "POST",
     .path = "/v1/responses/input_tokens",
     .protocol = &responses_input_tokens,
     .needs_key = true},
    {.method = "POST",
     .path = "/responses",
     .protocol = &responses,
     .needs_key = true,
     .model_optional = true},
    {.method = "POST",
     .path = "/responses/input_tokens",
     .protocol = &responses_input_tokens,
     .needs_key = true,
     .model_optional = true},
};

const serve_route_list responses_routes = {routes, sizeof routes / sizeof routes[0]};
