/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include "../../support/json_out.h"

#include <string.h>

bool list_add(json_t *list, json_t *item, serve_error *e) {
    return json_array_append_new(list, item) == 0 || reject_no_memory(e);
}

bool message_add(serve_request *r, const char *role, json_t *content, serve_error *e) {
    return list_add(r->messages, JSON_OBJECT({"role", json_string(role)}, {"content", content}), e);
}

json_t *message_text_part(json_t *text) {
    return JSON_OBJECT({"type", json_string("text")}, {"text", text});
}

json_t *message_tool_call(const char *id, const char *name, json_t *arguments) {
    return JSON_OBJECT({"id", json_string(id)}, {"type", json_string("function")},
                       {"function", JSON_OBJECT({"name", json_text(name, strlen(name))},
                                                {"arguments", arguments})});
}
