/* SPDX-License-Identifier: Apache-2.0 */
/* Probes: renders small conversations of known texts, so that detection can find the texts in the
 * output. */
#ifndef AG_CHAT_PROBE_H
#define AG_CHAT_PROBE_H

#include "chat/detect/sentinels.h"
#include "chat/template/format.h"

/* Limits: steps of all probes of a template together, and memory of each. */
enum { AG_PROBE_STEPS = 2000000, AG_PROBE_MEMORY_BYTES = 16 << 20 };

struct ag_probe_budget {
    uint64_t steps; /* left */
    bool over_steps, over_memory;
};

/* Renders messages with these tools and these other variables; all are taken over, tools and
 * `variables` may be NULL. *ok: the template rendered them, and *out is the output; call
 * ag_jinja_output_free() in any case. Fails with AG_NOMEM, AG_CANCELLED or, if the budget for
 * probes is exceeded, AG_LIMIT. */
ag_status ag_probe_render(const ag_chat_format *f, json_t *messages, json_t *tools,
                          json_t *variables, bool prompt, ag_jinja_output *out, bool *ok,
                          ag_error *err);
/* The same without other variables. *tail is the output after AG_PROBE_QUESTION; owned. NULL: the
 * template fails, or does not write the question. */
ag_status ag_probe_tail(const ag_chat_format *f, json_t *messages, json_t *tools, bool prompt,
                        char **tail, ag_error *err);

json_t *ag_probe_message(const char *role, const char *content);
/* Returns AG_PROBE_QUESTION as a message of the user. */
json_t *ag_probe_question(void);
/* Returns two tools, AG_PROBE_TOOL and AG_PROBE_TOOL_2, with parameters AG_PROBE_KEY, a string, and
 * AG_PROBE_KEY_2, an integer. */
json_t *ag_probe_tools(void);
/* Returns a call with the arguments {AG_PROBE_KEY: AG_PROBE_VALUE} and, if has_two,
 * {AG_PROBE_KEY_2: AG_PROBE_NUMBER}; as_text: as the text of this object. */
json_t *ag_probe_call(const char *name, const char *id, bool has_two, bool as_text);
/* Returns the question and an assistant's message with these calls. Takes over both arguments. */
json_t *ag_probe_calls(json_t *calls, json_t *content);

#endif
