/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of requests: an HTTP status and a line of text. */
#include "../../support/json_out.h"
#include "protocol.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool reject_request(serve_error *e, int status, const char *param, const char *fmt, ...) {
    *e = (serve_error){.status = status};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    return false;
}

bool reject_field(serve_error *e, const char *field, const char *fmt, ...) {
    reject_request(e, 400, field, "%s: ", field);
    const size_t n = strlen(e->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text + n, sizeof e->text - n, fmt, args);
    va_end(args);
    return false;
}

bool reject_no_memory(serve_error *e) { return reject_request(e, 503, NULL, "out of memory"); }

static int http_status(ag_status st) {
    switch (st) {
    case AG_NOMEM:
    case AG_CANCELLED:
        return 503;
    case AG_BUSY:
        return 429;
    case AG_NOT_FOUND:
        return 404;
    case AG_INVALID:
    case AG_FORMAT:
    case AG_LIMIT: /* for instance, a prompt that is too long */
    case AG_REFUSED:
    case AG_UNSUPPORTED:
        return 400;
    default:
        return 500;
    }
}

bool reject_status(serve_error *e, const ag_error *err) {
    return reject_request(e, http_status(err->status), NULL, "%s", err->msg);
}

static const char *error_type(int status) {
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {401, "authentication_error"}, {403, "permission_error"},  {404, "not_found_error"},
        {429, "rate_limit_error"},     {503, "unavailable_error"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status) return types[i].type;
    return status >= 500 ? "server_error" : "invalid_request_error";
}

json_t *openai_error(const serve_error *e) {
    json_t *error =
        JSON_OBJECT({"message", json_text(e->text, strlen(e->text))},
                    {"type", json_string(e->type ? e->type : error_type(e->status))},
                    {"param", e->param[0] ? json_text(e->param, strlen(e->param)) : json_null()},
                    {"code", e->code ? json_string(e->code) : json_null()});
    if (e->n_context)
        error = JSON_ADD(error, {"n_prompt_tokens", json_integer(e->n_prompt)},
                         {"n_ctx", json_integer(e->n_context)});
    return JSON_OBJECT({"error", error});
}
