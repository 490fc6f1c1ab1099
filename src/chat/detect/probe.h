/* SPDX-License-Identifier: Apache-2.0 */
/* Probes: small conversations of known texts, rendered to see whether and where a template writes
 * the texts. */
#ifndef AG_CHAT_PROBE_H
#define AG_CHAT_PROBE_H

#include "chat/detect/sentinels.h"
#include "chat/template/format.h"

/* Limits: steps of all probes of a template together, and memory of each probe. */
enum { AG_PROBE_STEPS = 2000000, AG_PROBE_MEMORY_BYTES = 16 << 20 };

struct ag_probe_budget {
    uint64_t steps; /* remaining */
    bool over_steps, over_memory;
};

/* Renders messages with these tools and these other variables. Takes over all three; tools and
 * `variables` may be NULL. *ok: the template succeeded, and *out is its output; call
 * ag_jinja_output_free() in any case. Fails with AG_NOMEM, AG_CANCELLED or, if the budget for
 * probes is exceeded, AG_LIMIT. Other errors of the template only clear *ok. */
ag_status ag_probe_render(const ag_chat_format *f, json_t *messages, json_t *tools,
                          json_t *variables, bool prompt, ag_jinja_output *out, bool *ok,
                          ag_error *err);
/* Renders without other variables. *tail: the output after the first AG_PROBE_QUESTION, owned; NULL
 * if the template fails or does not write the question. */
ag_status ag_probe_tail(const ag_chat_format *f, json_t *messages, json_t *tools, bool prompt,
                        char **tail, ag_error *err);

json_t *ag_probe_message(const char *role, const char *content);
/* Returns a user's message with AG_PROBE_QUESTION. All functions below return NULL if out of
 * memory. */
json_t *ag_probe_question(void);
/* Returns the question and an assistant's message with AG_PROBE_ANSWER. */
json_t *ag_probe_answered(void);
/* Sets the reasoning of messages[1] to AG_PROBE_REASONING. messages may be NULL. */
void ag_probe_set_reasoning(json_t *messages, const char *key);
/* Returns two tools, AG_PROBE_TOOL and AG_PROBE_TOOL_2, each with the parameters AG_PROBE_KEY, a
 * string, and AG_PROBE_KEY_2, an integer. */
json_t *ag_probe_tools(void);
/* Returns a call with the arguments {AG_PROBE_KEY: AG_PROBE_VALUE}, and AG_PROBE_KEY_2:
 * AG_PROBE_NUMBER too if has_two. as_text: the arguments are the text of this object. */
json_t *ag_probe_call(const char *name, const char *id, bool has_two, bool as_text);
/* Returns the question and an assistant's message with these calls and this content; takes over
 * both. */
json_t *ag_probe_calls(json_t *calls, json_t *content);

#endif
