/* SPDX-License-Identifier: Apache-2.0 */
#include "ollama.h"

#include "../request/routes.h"

static const serve_protocol ollama_chat = {
    .name = "ollama-chat",
    .parse = ollama_parse_chat,
    .error = ollama_error,
    .reply = ollama_chat_reply,
    .stream_type = "application/x-ndjson",
    .event = ollama_chat_event,
};

static const serve_protocol ollama_generate = {
    .name = "ollama-generate",
    .parse = ollama_parse_generate,
    .error = ollama_error,
    .reply = ollama_generate_reply,
    .stream_type = "application/x-ndjson",
    .event = ollama_generate_event,
};

static const serve_protocol ollama_embed = {
    .name = "ollama-embed",
    .parse = ollama_parse_embed,
    .error = ollama_error,
    .reply = ollama_embed_reply,
};

static const serve_protocol ollama_embeddings = {
    .name = "ollama-embeddings",
    .parse = ollama_parse_embeddings,
    .error = ollama_error,
    .reply = ollama_embeddings_reply,
};

const serve_route ollama_routes[] = {
    {"GET", "/api/version", .handle = ollama_version, .error = ollama_error, .is_public = true},
    {"GET", "/api/tags", .handle = ollama_tags, .error = ollama_error},
    {"GET", "/api/ps", .handle = ollama_ps, .error = ollama_error},
    {"POST", "/api/show", .handle = ollama_show, .error = ollama_error},
    {"POST", "/api/chat", .protocol = &ollama_chat},
    {"POST", "/api/generate", .protocol = &ollama_generate},
    {"POST", "/api/embed", .protocol = &ollama_embed},
    {"POST", "/api/embeddings", .protocol = &ollama_embeddings},
    {"POST", "/api/push", .handle = ollama_reject, .error = ollama_error},
    {"GET", "/api/blobs/*", .handle = ollama_reject, .error = ollama_error},
    {"POST", "/api/blobs/*", .handle = ollama_reject, .error = ollama_error},
    {0},
};
