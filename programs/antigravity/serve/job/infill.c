/* SPDX-License-Identifier: Apache-2.0 */
#include "infill.h"

#include "serve/work/account.h"

#include <string.h>

/* The tokens of a family of models, in the order in which they stand: prefix, suffix, gap. Sources:
 * "Efficient Training of Language Models to Fill in the Middle" (arXiv:2207.14255), and the
 * vocabularies of the models named. */
typedef struct infill_marks {
    const char *prefix, *suffix, *middle;
} infill_marks;

static const infill_marks families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},    /* Qwen2.5-Coder, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},          /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},          /* SantaCoder */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, /* GLM-4 */
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},    /* DeepSeek-Coder */
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                            /* Code Llama */
};

static const char *const ends[INFILL_STOPS] = {
    "<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>",
    "<fim_pad>",     "<file_sep>",  "<repo_name>",  "▁<EOT>",
};

static int32_t id_of(const ag_tokenizer *t, const char *token) {
    return ag_tokenizer_id(t, token, strlen(token));
}

size_t infill_stop_ids(const ag_tokenizer *t, int32_t ids[static INFILL_STOPS]) {
    size_t n = 0;
    for (size_t i = 0; i < INFILL_STOPS; i++) {
        const int32_t id = id_of(t, ends[i]);
        if (id >= 0) ids[n++] = id;
    }
    return n;
}

static const infill_marks *marks_of(const ag_tokenizer *t) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const infill_marks *f = &families[i];
        if (id_of(t, f->prefix) >= 0 && id_of(t, f->suffix) >= 0 && id_of(t, f->middle) >= 0)
            return f;
    }
    return NULL;
}

bool infill_is_known(const ag_tokenizer *t) { return marks_of(t) != NULL; }

static bool encode(const ag_tokenizer *t, const char *text, size_t n, unsigned flags, ag_ids *ids,
                   serve_error *e) {
    ag_error err;
    return ag_tokenizer_encode(t, text, n, flags, ids, &err) == AG_OK ||
           serve_refuse_status(e, &err);
}

static bool encode_json(const ag_tokenizer *t, const json_t *text, ag_ids *ids, serve_error *e) {
    const char *bytes = json_string_value(text);
    return encode(t, bytes ? bytes : "", json_string_length(text), 0, ids, e);
}

/* Each as such models have seen those of a repository: its mark, its name, a line break, itself. */
static bool encode_files(const ag_tokenizer *t, const json_t *files, ag_ids *ids, serve_error *e) {
    const char *mark = id_of(t, "<|file_sep|>") >= 0 ? "<|file_sep|>"
                       : id_of(t, "<file_sep>") >= 0 ? "<file_sep>"
                                                     : "\n";
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        ok = encode(t, mark, strlen(mark), AG_ENCODE_PARSE_SPECIAL, ids, e) &&
             encode_json(t, json_object_get(file, "filename"), ids, e) &&
             encode(t, "\n", 1, 0, ids, e) && encode_json(t, json_object_get(file, "text"), ids, e);
    }
    return ok;
}

static void put(ag_ids *to, const ag_ids *from) {
    if (from->n) memcpy(to->data + to->n, from->data, from->n * sizeof *to->data);
    to->n += from->n;
}

static bool join(const ag_tokenizer *t, const infill_marks *marks, const ag_ids parts[static 3],
                 ag_ids *ids, serve_error *e) {
    const size_t n = parts[0].n + parts[1].n + parts[2].n + 3;
    ids->data = account_malloc(n * sizeof *ids->data);
    if (!ids->data) return serve_no_memory(e);
    ids->cap = n;
    put(ids, &parts[0]);
    ids->data[ids->n++] = id_of(t, marks->prefix);
    put(ids, &parts[1]);
    ids->data[ids->n++] = id_of(t, marks->suffix);
    put(ids, &parts[2]);
    ids->data[ids->n++] = id_of(t, marks->middle);
    return true;
}

bool infill_encode(const ag_tokenizer *t, const json_t *prompt, const serve_request *r, ag_ids *ids,
                   serve_error *e) {
    const infill_marks *marks = marks_of(t);
    ag_ids parts[3] = {{0}};
    if (!marks)
        return serve_refuse(e, 400, "suffix",
                            "this model has no tokens for what stands before and behind a gap");
    if (!json_is_string(prompt))
        return serve_refuse(e, 400, "prompt", "a prompt with a suffix must be a text");
    /* Words of the texts never become special tokens. */
    const bool ok =
        encode(t, "", 0, AG_ENCODE_BOS, &parts[0], e) && encode_files(t, r->files, &parts[0], e) &&
        encode_json(t, prompt, &parts[1], e) &&
        encode(t, r->suffix, strlen(r->suffix), 0, &parts[2], e) && join(t, marks, parts, ids, e);
    for (size_t i = 0; i < 3; i++) ag_ids_free(&parts[i]);
    return ok;
}
