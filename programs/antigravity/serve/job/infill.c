/* SPDX-License-Identifier: Apache-2.0 */
#include "infill.h"

#include "../threads/account.h"

#include <string.h>

/* Special tokens of a family of models. A prompt has them in this order. Sources: "Efficient
 * Training of Language Models to Fill in the Middle" (arXiv:2207.14255), and the vocabularies of
 * the models. */
typedef struct infill_tokens {
    const char *prefix, *suffix, *middle;
} infill_tokens;

static const infill_tokens known_tokens[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},    /* Qwen2.5-Coder, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},          /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},          /* SantaCoder */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, /* GLM-4 */
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},    /* DeepSeek-Coder */
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                            /* Code Llama */
};

static const char *const stop_tokens[INFILL_STOPS] = {
    "<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>",
    "<fim_pad>",     "<file_sep>",  "<repo_name>",  "▁<EOT>",
};

static int32_t token_id(const ag_tokenizer *t, const char *token) {
    return ag_tokenizer_id(t, token, strlen(token));
}

size_t infill_stop_ids(const ag_tokenizer *t, int32_t ids[static INFILL_STOPS]) {
    size_t n = 0;
    for (size_t i = 0; i < INFILL_STOPS; i++) {
        const int32_t id = token_id(t, stop_tokens[i]);
        if (id >= 0) ids[n++] = id;
    }
    return n;
}

static const infill_tokens *find_tokens(const ag_tokenizer *t) {
    for (size_t i = 0; i < sizeof known_tokens / sizeof known_tokens[0]; i++) {
        const infill_tokens *f = &known_tokens[i];
        if (token_id(t, f->prefix) >= 0 && token_id(t, f->suffix) >= 0 &&
            token_id(t, f->middle) >= 0)
            return f;
    }
    return NULL;
}

bool infill_is_supported(const ag_tokenizer *t) { return find_tokens(t) != NULL; }

static bool encode(const ag_tokenizer *t, const char *text, size_t n, unsigned flags, ag_ids *ids,
                   serve_error *e) {
    ag_error err;
    return ag_tokenizer_encode(t, text, n, flags, ids, &err) == AG_OK || reject_status(e, &err);
}

static bool encode_json(const ag_tokenizer *t, const json_t *text, ag_ids *ids, serve_error *e) {
    const char *bytes = json_string_value(text);
    return encode(t, bytes ? bytes : "", json_string_length(text), 0, ids, e);
}

/* Writes each file as in the training data of these models: separator, name, newline, text. */
static bool encode_files(const ag_tokenizer *t, const json_t *files, ag_ids *ids, serve_error *e) {
    const char *separator = token_id(t, "<|file_sep|>") >= 0 ? "<|file_sep|>"
                            : token_id(t, "<file_sep>") >= 0 ? "<file_sep>"
                                                             : "\n";
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        ok = encode(t, separator, strlen(separator), AG_ENCODE_PARSE_SPECIAL, ids, e) &&
             encode_json(t, json_object_get(file, "filename"), ids, e) &&
             encode(t, "\n", 1, 0, ids, e) && encode_json(t, json_object_get(file, "text"), ids, e);
    }
    return ok;
}

static void append_ids(ag_ids *to, const ag_ids *from) {
    if (from->n) memcpy(to->data + to->n, from->data, from->n * sizeof *to->data);
    to->n += from->n;
}

static bool join(const ag_tokenizer *t, const infill_tokens *tokens, const ag_ids parts[static 3],
                 ag_ids *ids, serve_error *e) {
    const size_t n = parts[0].n + parts[1].n + parts[2].n + 3;
    ids->data = account_malloc(n * sizeof *ids->data);
    if (!ids->data) return reject_no_memory(e);
    ids->cap = n;
    append_ids(ids, &parts[0]);
    ids->data[ids->n++] = token_id(t, tokens->prefix);
    append_ids(ids, &parts[1]);
    ids->data[ids->n++] = token_id(t, tokens->suffix);
    append_ids(ids, &parts[2]);
    ids->data[ids->n++] = token_id(t, tokens->middle);
    return true;
}

bool infill_encode(const ag_tokenizer *t, const json_t *prompt, const serve_request *r, ag_ids *ids,
                   serve_error *e) {
    const infill_tokens *tokens = find_tokens(t);
    ag_ids parts[3] = {{0}};
    if (!tokens) return reject_field(e, "suffix", "the model has no fill-in-the-middle tokens");
    if (!json_is_string(prompt))
        return reject_field(e, "prompt", "must be a string if there is a suffix");
    /* Text that looks like a special token is not parsed as one. */
    const bool ok =
        encode(t, "", 0, AG_ENCODE_BOS, &parts[0], e) && encode_files(t, r->files, &parts[0], e) &&
        encode_json(t, prompt, &parts[1], e) &&
        encode(t, r->suffix, strlen(r->suffix), 0, &parts[2], e) && join(t, tokens, parts, ids, e);
    for (size_t i = 0; i < 3; i++) ag_ids_free(&parts[i]);
    return ok;
}
