/* SPDX-License-Identifier: Apache-2.0 */
#include "print.h"

#include "../../command.h"
#include "../../support/json_out.h"
#include "../../terminal/output.h"

#include <stdlib.h>
#include <string.h>

static json_t *text_of(const text_buffer *t) { return json_text(t->data, t->len); }

int ruler_print(const ruler_task *task, uint32_t length, int64_t seed, int64_t number,
                const ruler_prompt *p) {
    json_t *references = json_array();
    for (size_t i = 0; references && i < p->text.n_references; i++)
        json_append(&references, json_string(p->text.references[i]));
    const written_prompt *w = &p->written;
    const json_field fields[] = {
        {"task", json_string(task->name)},
        {"length", json_integer(length)},
        {"seed", json_integer(seed)},
        {"prompt", json_integer(number)},
        {"context", text_of(&p->text.context)},
        {"question", text_of(&p->text.question)},
        {"answer_prefix", text_of(&p->text.answer_prefix)},
        {"references", references},
        {"max_new_tokens", json_integer(task->n_answer)},
        {"ids", json_ids(w->ids.data, w->ids.n)},
        {"n_context", json_integer((json_int_t)w->n_context)},
        {"n_question", json_integer((json_int_t)w->n_question)},
    };
    json_t *object = JSON_OBJECT(fields);
    char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!line) return complain_no_memory();
    const bool written = output_write(line, strlen(line)) && output_write("\n", 1);
    free(line);
    return written ? EXIT_DONE : EXIT_FAILED; /* A write error is reported when the command ends. */
}
