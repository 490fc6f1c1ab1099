/* SPDX-License-Identifier: Apache-2.0 */
#include "ollama.h"

static const serve_protocol ollama_chat = {
    .name = "ollama-chat",
    .parse = ollama_parse_chat,
    .error = ollama_error,
    .whole = ollama_chat_whole,
    .stream_type = "application/x-ndjson",
    .event = ollama_chat_event,
};

static const serve_protocol ollama_generate = {
    .name = "ollama-generate",
    .parse = ollama_parse_generate,
    .error = ollama_error,
    .whole = ollama_generate_whole,
    .stream_type = "application/x-ndjson",
    .event = ollama_generate_event,
};

static const serve_protocol ollama_embed = {
    .name = "ollama-embed",
    .parse = ollama_parse_embed,
    .error = ollama_error,
    .whole = ollama_embed_whole,
};

static const serve_protocol ollama_embeddings = {
    .name = "ollama-embeddings",
    .parse = ollama_parse_embeddings,
    .error = ollama_error,
    .whole = ollama_embeddings_whole,
};

/* Those that are refused ask for a key, too: who has none is told so. */
#define OLLAMA_HANDLED(m, p, f) \
    { .method = m, .path = p, .handle = f, .needs_key = true, .error = ollama_error }
#define OLLAMA_ASKED(p, f) \
    { .method = "POST", .path = p, .protocol = f, .needs_key = true, .error = ollama_error }

static const serve_route routes[] = {
    {.method = "GET", .path = "/api/version", .handle = ollama_version, .error = ollama_error},
    OLLAMA_HANDLED("GET", "/api/tags", ollama_tags),
    OLLAMA_HANDLED("GET", "/api/ps", ollama_ps),
    OLLAMA_HANDLED("POST", "/api/show", ollama_show),
    OLLAMA_ASKED("/api/chat", &ollama_chat),
    OLLAMA_ASKED("/api/generate", &ollama_generate),
    OLLAMA_ASKED("/api/embed", &ollama_embed),
    OLLAMA_ASKED("/api/embeddings", &ollama_embeddings),
    OLLAMA_HANDLED("POST", "/api/pull", ollama_refuse),
    OLLAMA_HANDLED("POST", "/api/push", ollama_refuse),
    OLLAMA_HANDLED("POST", "/api/create", ollama_refuse),
    OLLAMA_HANDLED("POST", "/api/copy", ollama_refuse),
    OLLAMA_HANDLED("DELETE", "/api/delete", ollama_refuse),
    OLLAMA_HANDLED("GET", "/api/blobs/*", ollama_refuse),
    OLLAMA_HANDLED("POST", "/api/blobs/*", ollama_refuse),
};

const serve_route_list ollama_routes = {routes, sizeof routes / sizeof routes[0]};
