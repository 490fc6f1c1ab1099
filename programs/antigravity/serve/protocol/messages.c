/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include "../../support/json_out.h"

#include <stdio.h>
#include <string.h>

bool list_add(json_t *list, json_t *item, serve_error *e) {
    return json_array_append_new(list, item) == 0 || reject_no_memory(e);
}

bool message_role_is_in(const char *role, const char *const *roles) {
    while (*roles && strcmp(role, *roles) != 0) roles++;
    return *roles != NULL;
}

bool message_check_role(const char *role, const char *list, size_t i, const char *const *roles,
                        serve_error *e) {
    char path[48], names[128] = "";
    if (role && message_role_is_in(role, roles)) return true;
    snprintf(path, sizeof path, "%s[%zu].role", list, i);
    for (size_t k = 0, n = 0; roles[k]; k++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s",
                              !k             ? ""
                              : roles[k + 1] ? ", "
                                             : " or ",
                              roles[k]);
    if (!role) return reject_field(e, path, "missing; it must be %s", names);
    return reject_field(e, path, "unknown role '%.40s'; it must be %s", role, names);
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
