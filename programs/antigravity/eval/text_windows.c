/* SPDX-License-Identifier: Apache-2.0 */
#include "text_windows.h"

#include "../command.h"
#include "../terminal/output.h"

#include <stdlib.h>
#include <string.h>

#define OPTION_STRUCT text_options
static const option_def defs[] = {
    {.name = "windows",
     SETS_U32("N", max_windows, 0, INT32_MAX),
     .no_default = true,
     .aliases = {"chunks"},
     .help = "only the first N windows (default 0: the entire text)"},
    {.name = "tokens",
     SETS_U32("N", max_tokens, 0, INT32_MAX),
     .no_default = true,
     .help = "only the first N tokens (default 0: the entire text)"},
};

option_group windows_group(text_options *o) { return OPTION_GROUP("Amount of text", defs, o); }

int text_operand(const command_line *line, text_options *o) {
    if (!line->n_operands) return EXIT_DONE;
    if (o->prompt.file)
        return complain_usage("two texts given: '%s' and '%s'; give one", o->prompt.file,
                              line->operands[0]);
    o->prompt.file = line->operands[0];
    return EXIT_DONE;
}

int text_evict_in_chunks(ag_eviction_params *p) {
    if (p->prefill == AG_KV_PREFILL_WHOLE)
        return complain_usage(
            "--kv-prefill whole: not supported; it would evict only after the text");
    p->prefill = AG_KV_PREFILL_BOUNDED;
    return EXIT_DONE;
}

static int encode(eval_text *t, const text_options *o, const engine *e) {
    prompt_options plain = o->prompt;
    plain.no_bos = true;
    int code = engine_encode(e, &t->text, &plain);
    if (code != EXIT_DONE) return code;
    ag_error err;
    bool with_bos = t->text.text && !o->prompt.no_bos;
    if (with_bos && ag_tokenizer_encode(e->tokenizer, "", 0, AG_ENCODE_BOS, &t->bos, &err) != AG_OK)
        return complain_error(&err);
    return EXIT_DONE;
}

int text_open(eval_text *t, const text_options *o, engine *e, const model_options *m,
              bool one_window) {
    int code = prompt_read(&t->text, &o->prompt);
    if (code == EXIT_DONE) code = engine_inspect(e, m);
    if (code == EXIT_DONE) code = encode(t, o, e);
    if (code != EXIT_DONE) return code;
    if (o->max_tokens && o->max_tokens < t->text.n) t->text.n = o->max_tokens;
    t->window = one_window ? t->text.n + t->bos.n : context_length(m, &e->info);
    if (!one_window && t->window < t->bos.n + 2)
        return complain_usage(
            "--max-seq-len: too small: a window of %zu tokens has none to predict", t->window);
    if (t->text.n + t->bos.n < 2)
        return complain_failure("%s: too short: %zu tokens leave none to predict", t->text.source,
                                t->text.n);
    size_t step = t->window - t->bos.n;
    t->n_windows = (t->text.n + step - 1) / step;
    if (o->max_windows && o->max_windows < t->n_windows) t->n_windows = o->max_windows;
    if (t->n_windows * step < t->text.n) t->text.n = t->n_windows * step;
    t->n_tokens = t->text.n + t->n_windows * t->bos.n;
    t->ids = malloc(t->window * sizeof *t->ids);
    if (!t->ids) return complain_no_memory();
    if (t->bos.n) memcpy(t->ids, t->bos.data, t->bos.n * sizeof *t->ids);
    return EXIT_DONE;
}

const int32_t *text_window(eval_text *t, size_t i, size_t *n) {
    size_t step = t->window - t->bos.n, at = i * step;
    size_t own = t->text.n - at < step ? t->text.n - at : step;
    memcpy(t->ids + t->bos.n, t->text.ids + at, own * sizeof *t->ids);
    *n = t->bos.n + own;
    return t->ids;
}

void text_free(eval_text *t) {
    free(t->ids);
    ag_ids_free(&t->bos);
    prompt_free(&t->text);
}
