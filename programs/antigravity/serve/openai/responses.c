/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of the Responses API: POST /v1/responses and /v1/responses/input_tokens, GET and DELETE
 * /v1/responses/ID. The paths without /v1 do not require a model name. */
#include "responses.h"

#include "../request/routes.h"
#include "openai_answer.h"

static const serve_protocol responses = {
    .name = "openai-responses",
    .parse = responses_parse,
    .error = openai_error,
    .reply = responses_reply,
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
    .reply = openai_count,
};

const serve_route responses_routes[] = {
    {"POST", "/v1/responses", .protocol = &responses},
    {"POST", "/v1/responses/input_tokens", .protocol = &responses_input_tokens},
    {"POST", "/responses", .protocol = &responses, .model_optional = true},
    {"POST", "/responses/input_tokens", .protocol = &responses_input_tokens,
     .model_optional = true},
    {"GET", "/v1/responses/resp_*", .handle = responses_retrieve},
    {"GET", "/responses/resp_*", .handle = responses_retrieve},
    /* DELETE has no body. */
    {"DELETE", "/v1/responses/resp_*", .handle = responses_delete, .waits = true},
    {"DELETE", "/responses/resp_*", .handle = responses_delete, .waits = true},
    {0},
};
