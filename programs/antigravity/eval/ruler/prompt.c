/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt.h"

#include <stdio.h>

/* Hashes the task's name, so that tasks with the same seed differ. */
static uint64_t hash(const char *name) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static ag_status out_of_memory(ag_error *err) {
    *err = (ag_error){.status = AG_NOMEM};
    snprintf(err->msg, sizeof err->msg, "out of memory: prompt");
    return AG_NOMEM;
}

static ag_status write_units(const ruler_maker *m, uint64_t number, size_t n_units,
                             ruler_prompt *out, ag_error *err) {
    ruler_text *t = &out->text;
    seeded random = {m->seed ^ hash(m->task->name) ^ number * 0xd1342543de82ef95u};
    text_empty(&t->context);
    text_empty(&t->question);
    text_empty(&t->answer_prefix);
    out->n_units = n_units;
    m->task->write(m->task, &m->source, &random, n_units, t);
    if (t->context.failed || t->question.failed || t->answer_prefix.failed)
        return out_of_memory(err);
    return prompt_write(m->writer, t->context.data, t->question.data, t->answer_prefix.data,
                        &out->written, err);
}

/* Returns whether n_units fit. err->status holds a failure. */
static bool fits(const ruler_maker *m, uint64_t number, size_t n_units, ruler_prompt *out,
                 ag_error *err) {
    err->status = write_units(m, number, n_units, out, err);
    return err->status == AG_OK && out->written.ids.n + m->task->n_answer <= m->source.n_tokens;
}

ag_status ruler_prompt_make(const ruler_maker *m, uint64_t number, ruler_prompt *out,
                            ag_error *err) {
    ag_error unused;
    if (!err) err = &unused;
    size_t low = m->task->min_units, high = 2 * low;
    if (!fits(m, number, low, out, err)) {
        if (err->status != AG_OK) return err->status;
        *err = (ag_error){.status = AG_LIMIT};
        snprintf(err->msg, sizeof err->msg,
                 "%s: the shortest prompt and its answer take %zu tokens, more than %u",
                 m->task->name, out->written.ids.n + m->task->n_answer, m->source.n_tokens);
        return AG_LIMIT;
    }
    while (fits(m, number, high, out, err)) {
        low = high;
        high *= 2;
    }
    while (err->status == AG_OK && high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (fits(m, number, middle, out, err)) low = middle;
        else high = middle;
    }
    if (err->status != AG_OK) return err->status;
    return out->n_units == low ? AG_OK : write_units(m, number, low, out, err);
}

void ruler_prompt_free(ruler_prompt *p) {
    written_prompt_free(&p->written);
    ruler_text_release(&p->text);
    *p = (ruler_prompt){.n_units = 0};
}
