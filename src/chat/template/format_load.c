/* SPDX-License-Identifier: Apache-2.0 */
/* Creates formats: parses the template, sets bos_token and eos_token, and runs detection. */
#include "chat/detect/detect.h"
#include "chat/detect/probe.h"
#include "chat/template/special_text.h"
#include "core/alloc.h"
#include "core/checksum.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/json.h"
#include "formats/weight_source.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* Returns a checksum of tokenizer and template. Sampled ids of other models, even of the same name,
 * are told apart by it. */
static uint64_t checksum_of(const ag_tokenizer *t, const char *jinja, size_t len) {
    unsigned char vocabulary[8];
    ag_checksum sum;
    ag_checksum_begin(&sum);
    ag_put_number(vocabulary, ag_tokenizer_checksum(t), sizeof vocabulary);
    ag_checksum_add(&sum, vocabulary, sizeof vocabulary);
    ag_checksum_add(&sum, jinja, len);
    return ag_checksum_value(&sum);
}

/* Describes a template that was not probed. Every template accepts messages of users and assistants
 * whose content is text. */
static ag_status set_unprobed(ag_chat_format *f, const ag_probe_budget *b, const char *jinja,
                              ag_error *err) {
    ag_chat_format_reset_detected(f);
    f->features = AG_CHAT_TEXT;
    f->accepts = AG_ACCEPTS_NULL_TOOLS;
    if (b->over_steps) {
        snprintf(f->not_probed, sizeof f->not_probed, "it needs more than %d steps",
                 AG_PROBE_STEPS);
    } else {
        snprintf(f->not_probed, sizeof f->not_probed, "it needs more than %d MiB",
                 AG_PROBE_MEMORY_BYTES >> 20);
    }
    AG_TRY(ag_detect_reasoning_by_text(f, jinja, err));
    return ag_call_format_default(&f->calls, err);
}

static ag_status parse_and_detect(ag_chat_format *f, const char *jinja, size_t len, ag_error *err) {
    AG_TRY(ag_jinja_parse("chat template", jinja, len, &f->jinja, err));
    if (f->tokenizer) f->checksum = checksum_of(f->tokenizer, jinja, len);
    AG_TRY(ag_special_text_collect(f, jinja, err));
    ag_probe_budget budget = {.steps = AG_PROBE_STEPS};
    f->budget = &budget;
    ag_status st = ag_detect_features(f, err);
    if (st == AG_OK) st = ag_detect_delimiters(f, jinja, err);
    if (st == AG_OK) st = ag_detect_calls(f, err);
    f->budget = NULL;
    return st == AG_LIMIT ? set_unprobed(f, &budget, jinja, err) : st;
}

/* Sets a variable of the template; ignores s if it is NULL or not UTF-8. s need not be terminated.
 */
static ag_status set_trusted(ag_chat_format *f, const char *name, const char *s, size_t n,
                             ag_error *err) {
    json_t *v = s ? json_stringn(s, n) : NULL;
    if (!s || !v) return AG_OK;
    if (json_object_set_new(f->trusted, name, v) == 0) return AG_OK;
    return AG_FAIL(err, NOMEM, "special tokens of the chat template");
}

typedef struct special_tokens {
    const char *bos, *eos;
    size_t n_bos, n_eos;
} special_tokens;

static ag_status create_format(const char *jinja, size_t len, const special_tokens *special,
                               const ag_tokenizer *t, ag_chat_format **out, ag_error *err) {
    ag_chat_format *f = ag_calloc(1, sizeof *f);
    *out = NULL;
    if (!f) return AG_FAIL(err, NOMEM, "chat format");
    f->tokenizer = t;
    f->trusted = json_object();
    ag_status st = f->trusted ? AG_OK : AG_FAIL(err, NOMEM, "chat format");
    if (st == AG_OK) st = set_trusted(f, "bos_token", special->bos, special->n_bos, err);
    if (st == AG_OK) st = set_trusted(f, "eos_token", special->eos, special->n_eos, err);
    if (st == AG_OK) st = parse_and_detect(f, jinja, len, err);
    if (st == AG_OK) *out = f;
    else ag_chat_format_destroy(f);
    return st;
}

ag_status ag_chat_format_create(const char *jinja, size_t len, const char *bos, const char *eos,
                                const ag_tokenizer *t, ag_chat_format **out, ag_error *err) {
    const special_tokens special = {bos, eos, bos ? strlen(bos) : 0, eos ? strlen(eos) : 0};
    return create_format(jinja, len, &special, t, out, err);
}

/* ---- models ---- */

/* Reads a token's text from tokenizer_config.json: a string, or the member "content" of an object.
 */
static void token_of_config(const json_t *config, const char *name, const char **s, size_t *n) {
    const json_t *v = json_object_get(config, name);
    if (json_is_object(v)) v = json_object_get(v, "content");
    *s = json_string_value(v);
    *n = json_string_length(v);
}

static void tokens_of_vocabulary(const ag_source_vocabulary *v, special_tokens *special) {
    if (v->bos >= 0 && (size_t)v->bos < v->n_tokens) {
        special->bos = v->tokens[v->bos].text;
        special->n_bos = v->tokens[v->bos].n;
    }
    if (v->eos >= 0 && (size_t)v->eos < v->n_tokens) {
        special->eos = v->tokens[v->eos].text;
        special->n_eos = v->tokens[v->eos].n;
    }
}

static ag_status load_format(const ag_weight_source *source, const ag_tokenizer *t,
                             const char *jinja, ag_chat_format **out, ag_error *err) {
    ag_source_text text = {0}, config = {0};
    ag_source_vocabulary vocabulary = {0};
    json_t *object = NULL;
    special_tokens special = {0};
    ag_status st = AG_OK;
    if (!jinja) st = ag_source_read_text(source, AG_SOURCE_CHAT_TEMPLATE, &text, err);
    if (st == AG_OK && !jinja && !text.text) {
        st = AG_FAIL(err, NOT_FOUND, "%s: the model has no chat template", source->path);
    }
    if (st == AG_OK) st = ag_source_read_vocabulary(source, &vocabulary, err);
    if (st == AG_OK) tokens_of_vocabulary(&vocabulary, &special);
    if (st == AG_OK && vocabulary.n_tokens == 0) {
        st = ag_source_read_text(source, AG_SOURCE_TOKENIZER_CONFIG, &config, err);
    }
    if (st == AG_OK && config.text) {
        st = ag_json_parse(config.text, config.n, config.name, &object, err);
        token_of_config(object, "bos_token", &special.bos, &special.n_bos);
        token_of_config(object, "eos_token", &special.eos, &special.n_eos);
    }
    if (st == AG_OK) {
        st = create_format(jinja ? jinja : text.text, jinja ? strlen(jinja) : text.n, &special, t,
                           out, err);
    }
    json_decref(object);
    ag_source_vocabulary_free(&vocabulary);
    ag_source_text_free(&config);
    ag_source_text_free(&text);
    return st;
}

ag_status ag_chat_format_load(const char *path, const ag_tokenizer *t, const char *jinja,
                              ag_chat_format **out, ag_error *err) {
    ag_weight_source *source = NULL;
    *out = NULL;
    AG_TRY(ag_source_open(path, &source, err));
    const ag_status st = load_format(source, t, jinja, out, err);
    ag_source_destroy(source);
    return st;
}
