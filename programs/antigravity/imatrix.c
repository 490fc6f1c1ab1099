/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity imatrix: measures which columns of a model's matrices matter for a text. */
#include "command.h"
#include "eval/text_windows.h"
#include "model/engine.h"
#include "support/input.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/progress.h"

#include <antigravity/antigravity.h>
#include <inttypes.h>
#include <stdio.h>

enum { MAX_FILES = 16 };

typedef struct imatrix_options {
    model_options model;
    text_options text;
    const char *out, *files[MAX_FILES];
    size_t n_files;
} imatrix_options;

static bool add_file(void *target, const char *value, char *message) {
    imatrix_options *o = target;
    if (o->n_files == MAX_FILES) return reject(message, "too many: at most %d", MAX_FILES);
    o->files[o->n_files++] = value;
    return true;
}

#define OPTION_STRUCT imatrix_options
static const option_def defs[] = {
    {.name = "output",
     .letter = 'o',
     SETS_NAME("FILE", out),
     .help = "file to write or replace",
     .aliases = {"output-file"}},
    {.name = "in-file",
     CALLS("FILE", add_file),
     .help = "add an earlier measurement; may be given several times"},
};

static ag_status read_windows(engine *e, eval_text *text, ag_error *err) {
    ag_status status = AG_OK;
    size_t done = 0;
    progress_begin("measuring");
    for (size_t w = 0; w < text->n_windows && status == AG_OK; w++) {
        size_t n;
        const int32_t *ids = text_window(text, w, &n);
        ag_session_reset(e->session);
        status = ag_session_prefill(e->session, ids, n, NULL, NULL, err);
        done += n;
        if (status == AG_OK && !progress_update(NULL, done, text->n_tokens)) {
            err->status = status = AG_CANCELLED;
        }
    }
    progress_end();
    return status;
}

static int measure(engine *e, eval_text *text, const imatrix_options *o) {
    ag_error err = {0};
    ag_imatrix *im;
    if (ag_imatrix_create(e->model, &im, &err) != AG_OK) return complain_error(&err);
    ag_status status = AG_OK;
    for (size_t i = 0; i < o->n_files && status == AG_OK; i++) {
        status = ag_imatrix_add_file(im, o->files[i], &err);
    }
    if (status == AG_OK) status = read_windows(e, text, &err);
    if (status == AG_OK) {
        status = ag_imatrix_save(im, o->out, text->text.source, (uint32_t)text->window, &err);
    }
    if (status == AG_OK) printf("%s: %" PRIu64 " tokens\n", o->out, ag_imatrix_tokens(im));
    ag_imatrix_destroy(im);
    return status == AG_OK ? EXIT_DONE : complain_error(&err);
}

static int run(engine *e, eval_text *text, const imatrix_options *o) {
    int code = text_open(text, &o->text, e, &o->model, false);
    if (code != EXIT_DONE) return code;
    code = engine_load_session(e, &o->model, context_length(&o->model, &e->info));
    return code == EXIT_DONE ? measure(e, text, o) : code;
}

int command_imatrix(int argc, char **argv) {
    imatrix_options o = {.model = model_options_defaults()};
    o.model.max_seq_len = 512;
    o.model.weights = (ag_dtype)DTYPE_AS_IS; /* rounded weights would add their rounding errors */
    command_line line = {
        .usage = "imatrix [-m MODEL] (TEXT.txt | -f TEXT.txt | -p TEXT) -o FILE [OPTION]...",
        .description = "Reads a text in windows of --max-seq-len tokens and writes the mean\n"
                       "squares of the inputs of each matrix, for 'quantize --imatrix': columns\n"
                       "that matter are rounded more carefully. The files are compatible with\n"
                       "llama.cpp's tools.",
        .examples =
            "  antigravity imatrix -m model-f16.gguf -f calibration.txt -o model.imatrix\n"
            "  antigravity imatrix -m model-f16.gguf -f more.txt --in-file model.imatrix -o "
            "both.imatrix",
        .groups = {prompt_group(&o.text.prompt), windows_group(&o.text),
                   OPTION_GROUP("Files", defs, &o), model_group(&o.model), context_group(&o.model),
                   threads_group(&o.model), message_group(&o.model)},
        .max_operands = 1,
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = text_operand(&line, &o.text);
    if (code == EXIT_DONE) code = model_options_check(&o.model);
    if (code != EXIT_DONE) return code;
    if (!o.out) return complain_usage("no output file: give -o FILE");
    for (size_t i = 0; i < o.n_files && code == EXIT_DONE; i++)
        code = input_check("in-file", o.files[i], NULL);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    engine e = {0};
    eval_text text = {0};
    code = run(&e, &text, &o);
    text_free(&text);
    engine_close(&e);
    return code;
}
