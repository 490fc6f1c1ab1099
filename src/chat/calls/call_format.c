/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/calls/call_format.h"

#include "chat/detect/sentinels.h"
#include "chat/json_scan.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdint.h>
#include <string.h>

void ag_call_format_free(ag_call_format *f) {
    const char *const texts[] = {
        f->section_open, f->section_close,   f->call_open,   f->call_close,  f->list_open,
        f->list_close,   f->between,         f->name_key,    f->object,      f->arguments_key,
        f->name_end,     f->id_open,         f->param_open,  f->param_close, f->param_text,
        f->param_json,   f->param_between,   f->quote,       f->header_open, f->header_between,
        f->header_close, f->param_open_json, f->triggers[0], f->triggers[1], f->triggers[2],
        f->triggers[3]};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) ag_free((void *)(uintptr_t)texts[i]);
    *f = (ag_call_format){0};
}

ag_status ag_call_format_default(ag_call_format *out, ag_error *err) {
    *out = (ag_call_format){
        .kind = AG_CALLS_JSON,
        .is_bare = true,
        .is_parallel = true,
        .section_open = ag_strdup(""),
        .section_close = ag_strdup(""),
        .call_open = ag_strdup("<tool_call>\n"),
        .call_close = ag_strdup("\n</tool_call>"),
        .triggers = {ag_strdup("<tool_call>")},
        .name_key = ag_strdup("name"),
        .arguments_key = ag_strdup("arguments"),
        .between = ag_strdup("\n"),
        .object = ag_strdup("{\"name\": \"" AG_PROBE_TOOL "\", \"arguments\": {\"" AG_PROBE_KEY
                            "\": 1}}"),
    };
    if (out->section_open && out->section_close && out->call_open && out->call_close &&
        out->triggers[0] && out->name_key && out->arguments_key && out->between && out->object)
        return AG_OK;
    ag_call_format_free(out);
    return AG_FAIL(err, NOMEM, "tool call format");
}

ag_match ag_match_delimiter(const char *pattern, const char *s, size_t n, size_t *len) {
    size_t at = 0;
    size_t end = strlen(pattern);
    *len = 0;
    while (end && ag_is_json_space(pattern[end - 1])) end--;
    for (const char *p = pattern; p < pattern + end; p++) {
        if (ag_is_json_space(*p)) {
            while (at < n && ag_is_json_space(s[at])) at++;
            continue;
        }
        if (at == n) return AG_MATCH_PARTIAL;
        if (ag_is_call_count(*p)) {
            const size_t begin = at;
            while (at < n && s[at] >= '0' && s[at] <= '9') at++;
            if (at == n) return AG_MATCH_PARTIAL;
            if (at == begin) return AG_MATCH_NO;
            continue;
        }
        if (s[at] != *p) return AG_MATCH_NO;
        at++;
    }
    *len = at;
    return AG_MATCH_YES;
}
