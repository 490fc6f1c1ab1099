/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of Anthropic's API: POST /v1/messages and /v1/messages/count_tokens. */
#include "anthropic.h"

#include "../request/routes.h"

static const serve_protocol anthropic_messages = {
    .name = "anthropic-messages",
    .parse = anthropic_parse,
    .error = anthropic_error,
    .reply = anthropic_reply,
    .stream_type = "text/event-stream",
    .event = anthropic_event,
    .state_size = sizeof(anthropic_stream),
};

static const serve_protocol anthropic_count_tokens = {
    .name = "anthropic-count",
    .parse = anthropic_parse_count,
    .error = anthropic_error,
    .reply = anthropic_count,
};

const serve_route anthropic_routes[] = {
    {"POST", "/v1/messages", .protocol = &anthropic_messages},
    {"POST", "/v1/messages/count_tokens", .protocol = &anthropic_count_tokens},
    {0},
};
