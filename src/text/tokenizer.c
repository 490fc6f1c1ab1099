/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a tokenizer from a path and answers queries about its vocabulary. */
#include "text/tokenizer.h"

#include "core/alloc.h"
#include "core/checksum.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/recognise.h"
#include "formats/weight_source.h"
#include "platform/file.h"
#include "platform/process_memory.h"
#include "text/json_get.h"

#include <errno.h>
#include <string.h>

/* The largest known file has 35 MB. Spellings are addressed with 32 bits. */
#define MAX_FILE_BYTES ((size_t)1 << 30)

static ag_status read_model(ag_tokenizer *t, const json_t *model, const json_t *added,
                            ag_error *err) {
    json_t *type, *vocab;
    /* Older files have no type: BPE is assumed. */
    AG_TRY(ag_json_optional(model, "model", "type", JSON_STRING, &type, err));
    if (type && strcmp(json_string_value(type), "Unigram") == 0) {
        AG_TRY(ag_json_required(model, "model", "vocab", JSON_ARRAY, &vocab, err));
        AG_TRY(ag_vocab_read_json_list(&t->vocab, vocab, added, err));
        return ag_unigram_read_json(&t->unigram, model, &t->vocab, err);
    }
    if (type && strcmp(json_string_value(type), "BPE") != 0) {
        return ag_json_unsupported("model", json_string_value(type), err);
    }
    AG_TRY(ag_json_required(model, "model", "vocab", JSON_OBJECT, &vocab, err));
    AG_TRY(ag_vocab_read_json(&t->vocab, vocab, added, err));
    return ag_bpe_read_json(&t->bpe, model, &t->vocab, err);
}

static ag_status build(ag_tokenizer *t, const json_t *root, ag_error *err) {
    json_t *model, *added;
    AG_TRY(ag_json_expect_object(root, "the file", err));
    model = json_object_get(root, "model");
    AG_TRY(ag_json_expect_object(model, "model", err));
    added = json_object_get(root, "added_tokens");
    if (added && !json_is_null(added) && !json_is_array(added)) {
        return AG_FAIL(err, FORMAT, "added_tokens must be an array");
    }
    AG_TRY(read_model(t, model, added, err));
    AG_TRY(ag_normalizer_read_json(&t->normalizer, json_object_get(root, "normalizer"), err));
    AG_TRY(ag_added_tokens_read_json(&t->added, added, &t->vocab, &t->normalizer, err));
    AG_TRY(
        ag_pretokenizer_read_json(&t->pretokenizer, json_object_get(root, "pre_tokenizer"), err));
    AG_TRY(ag_postprocessor_read_json(&t->postprocessor, json_object_get(root, "post_processor"),
                                      &t->vocab, err));
    return ag_decode_chain_read_json(&t->decode_chain, json_object_get(root, "decoder"), err);
}

ag_status ag_tokenizer_parse(const char *json, size_t len, const char *name, ag_tokenizer **out,
                             ag_error *err) {
    *out = NULL;
    json_error_t error;
    json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            return AG_FAIL(err, NOMEM, "%s: JSON values of %zu bytes", name, len);
        }
        return AG_FAIL(err, FORMAT, "%s: line %d, byte %d: %s", name, error.line, error.position,
                       error.text);
    }
    ag_tokenizer *t = ag_calloc(1, sizeof *t);
    ag_status st = t ? build(t, root, err) : AG_FAIL(err, NOMEM, "tokenizer");
    json_decref(root);
    ag_trim_heap(); /* the JSON values of a 10 MB file are 100 MB of small blocks */
    if (st == AG_OK) *out = t;
    else ag_tokenizer_destroy(t);
    return st == AG_OK ? st : ag_error_prefix(err, st, "%s", name);
}

void ag_tokenizer_destroy(ag_tokenizer *t) {
    if (!t) return;
    ag_decode_chain_free(&t->decode_chain);
    ag_postprocessor_free(&t->postprocessor);
    ag_pretokenizer_free(&t->pretokenizer);
    ag_added_tokens_free(&t->added);
    ag_normalizer_free(&t->normalizer);
    ag_bpe_free(&t->bpe);
    ag_unigram_free(&t->unigram);
    ag_vocab_free(&t->vocab);
    ag_free(t);
}

static ag_status open_error(const char *path, ag_error *err) {
    int code = errno;
    if (code == ENOENT || code == ENOTDIR) {
        return AG_FAIL(err, NOT_FOUND, "%s: %s", path, strerror(code));
    }
    return AG_FAIL(err, IO, "%s: %s", path, strerror(code));
}

static ag_status parse_source(const ag_weight_source *source, const char *path, ag_tokenizer **out,
                              ag_error *err) {
    ag_source_text json = {0};
    ag_status st = ag_source_read_text(source, AG_SOURCE_TOKENIZER, &json, err);
    if (st == AG_OK && !json.text) {
        st = AG_FAIL(err, NOT_FOUND, "%s: holds no %s", path,
                     ag_recognise_gguf(path) ? "tokenizer" : "tokenizer.json");
    }
    if (st == AG_OK) st = ag_tokenizer_parse(json.text, json.n, json.name, out, err);
    ag_source_text_free(&json);
    return st;
}

static ag_status load_from_source(const char *path, ag_tokenizer **out, ag_error *err) {
    ag_weight_source *source;
    ag_source_vocabulary v = {0};
    AG_TRY(ag_source_open(path, &source, err));
    ag_status st = ag_source_read_vocabulary(source, &v, err);
    if (st == AG_OK) {
        st = v.n_tokens ? ag_tokenizer_from_vocabulary(&v, path, out, err)
                        : parse_source(source, path, out, err);
    }
    ag_source_vocabulary_free(&v);
    ag_source_destroy(source);
    return st;
}

ag_status ag_tokenizer_load(const char *path, ag_tokenizer **out, ag_error *err) {
    *out = NULL;
    ag_file_info info;
    AG_TRY(ag_recognise_path(path, err));
    if (!ag_file_stat(path, &info)) return open_error(path, err);
    if (info.kind == AG_FILE_DIRECTORY || ag_recognise_gguf(path))
        return load_from_source(path, out, err);
    char *text = NULL;
    size_t len = 0;
    AG_TRY(ag_file_read_all(path, MAX_FILE_BYTES, &text, &len, err));
    ag_status st = ag_tokenizer_parse(text, len, path, out, err);
    ag_free(text);
    return st;
}

ag_status ag_chat_template_load(const char *path, ag_text *out, ag_error *err) {
    ag_weight_source *source;
    ag_source_text jinja = {0};
    AG_TRY(ag_recognise_path(path, err));
    AG_TRY(ag_source_open(path, &source, err));
    ag_status st = ag_source_read_text(source, AG_SOURCE_CHAT_TEMPLATE, &jinja, err);
    if (st == AG_OK && !jinja.text) {
        st = AG_FAIL(err, NOT_FOUND, "%s: holds no chat template", path);
    }
    if (st == AG_OK) st = ag_text_append(out, jinja.text, jinja.n, err);
    ag_source_text_free(&jinja);
    ag_source_destroy(source);
    return st;
}

int32_t ag_tokenizer_vocab_size(const ag_tokenizer *t) { return t->vocab.n_ids; }

const char *ag_tokenizer_token(const ag_tokenizer *t, int32_t id, size_t *len) {
    size_t n = 0;
    const char *s = ag_vocab_has(&t->vocab, id) ? ag_vocab_spelling(&t->vocab, id, &n) : NULL;
    if (len) *len = n;
    return s;
}

int32_t ag_tokenizer_id(const ag_tokenizer *t, const char *token, size_t len) {
    return ag_vocab_find(&t->vocab, token, len);
}

bool ag_tokenizer_is_special(const ag_tokenizer *t, int32_t id) {
    return ag_vocab_has(&t->vocab, id) && t->vocab.entries[id].flags & AG_VOCAB_SPECIAL;
}

uint64_t ag_tokenizer_checksum(const ag_tokenizer *t) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    for (int32_t id = 0; id < ag_tokenizer_vocab_size(t); id++) {
        size_t len = 0;
        const char *text = ag_tokenizer_token(t, id, &len);
        const unsigned char end[] = {0, text != NULL, ag_tokenizer_is_special(t, id)};
        if (text) ag_checksum_add(&sum, text, len);
        ag_checksum_add(&sum, end, sizeof end);
    }
    return ag_checksum_value(&sum);
}
