/* SPDX-License-Identifier: Apache-2.0 */
/* Weight source of Hugging Face directories: config.json, safetensors files, tokenizer.json. */
#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/json.h"
#include "formats/recognise.h"
#include "formats/safetensors.h"
#include "platform/file.h"

#include <string.h>

enum { MAX_CONFIG_BYTES = 1 << 24, MAX_TOKENIZER_BYTES = 1 << 29 };

static ag_status open_tensors(ag_weight_source *s, ag_error *err) {
    return ag_st_open(s->path, &s->files, err);
}

/* Reads a file of the directory. *out stays empty if an optional file is absent. */
static ag_status read_file(const ag_weight_source *s, const char *name, size_t max_bytes,
                           bool optional, ag_source_text *out, ag_error *err) {
    ag_error inner = {0};
    out->name = ag_path_join(s->path, name);
    if (!out->name) return AG_FAIL(err, NOMEM, "path");
    ag_status st = ag_file_read_all(out->name, max_bytes, &out->text, &out->n, &inner);
    if (st == AG_NOT_FOUND && optional) {
        ag_source_text_free(out);
        return AG_OK;
    }
    if (st != AG_OK && err) *err = inner;
    return st;
}

/* Returns the template of a configuration: a string, or the entry "default" of a list. */
static const char *template_in(const json_t *config) {
    const json_t *v = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *entry = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default")) {
            return json_string_value(json_object_get(entry, "template"));
        }
    }
    return json_string_value(v);
}

static ag_status read_template_from(const ag_weight_source *s, const char *name,
                                    ag_source_text *out, ag_error *err) {
    json_t *config = NULL;
    ag_source_text file = {0};
    ag_status st = read_file(s, name, MAX_CONFIG_BYTES, true, &file, err);
    if (st == AG_OK && file.text) st = ag_json_parse(file.text, file.n, file.name, &config, err);
    const char *text = config ? template_in(config) : NULL;
    if (st == AG_OK && text) {
        *out = (ag_source_text){ag_strdup(text), strlen(text), file.name};
        file.name = NULL;
        if (!out->text) st = AG_FAIL(err, NOMEM, "%s: chat template", out->name);
    }
    json_decref(config);
    ag_source_text_free(&file);
    return st;
}

static ag_status read_template(const ag_weight_source *s, ag_source_text *out, ag_error *err) {
    AG_TRY(read_file(s, "chat_template.jinja", MAX_CONFIG_BYTES, true, out, err));
    if (!out->text) AG_TRY(read_template_from(s, "chat_template.json", out, err));
    return out->text ? AG_OK : read_template_from(s, "tokenizer_config.json", out, err);
}

static ag_status read_text(const ag_weight_source *s, ag_source_text_kind kind, ag_source_text *out,
                           ag_error *err) {
    switch (kind) {
    case AG_SOURCE_CONFIG:
        AG_TRY(ag_recognise_model(s->path, err));
        return read_file(s, "config.json", MAX_CONFIG_BYTES, false, out, err);
    case AG_SOURCE_GENERATION_CONFIG:
        return read_file(s, "generation_config.json", MAX_CONFIG_BYTES, true, out, err);
    case AG_SOURCE_TOKENIZER:
        return read_file(s, "tokenizer.json", MAX_TOKENIZER_BYTES, true, out, err);
    case AG_SOURCE_TOKENIZER_CONFIG:
        return read_file(s, "tokenizer_config.json", MAX_CONFIG_BYTES, true, out, err);
    case AG_SOURCE_CHAT_TEMPLATE:
        break;
    }
    return read_template(s, out, err);
}

const ag_weight_source_ops ag_hf_directory_ops = {
    .name = "safetensors",
    .size_bytes = sizeof(ag_weight_source),
    .recognises = ag_file_is_directory,
    .read_text = read_text,
    .open_tensors = open_tensors,
};
