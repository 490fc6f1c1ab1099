/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files that make a model in a hub repository with Hugging Face's interface.
 * https://huggingface.co/docs/hub/api */
#include "../command.h"
#include "../model/store.h"
#include "../support/user_files.h"
#include "../terminal/output.h"
#include "hub_list.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SELECT_SIZE = 300 };

typedef struct hub_source {
    char repo[HUB_REPO_SIZE];         /* "org/name" */
    char select[SELECT_SIZE];         /* "Q4_K_M", "x.gguf", "safetensors" or "" */
    char revision[HUB_REVISION_SIZE]; /* "main" */
} hub_source;

/* ---- what was typed ---- */

static bool copy_span(char *to, size_t cap, const char *from, size_t n) {
    if (!n || n >= cap) return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* Returns the length of the prefix "org/name", or 0. */
static size_t repository_length(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-_.";
    size_t owner = strspn(text, letters);
    size_t name = owner && text[owner] == '/' ? strspn(text + owner + 1, letters) : 0;
    if (!name || text[0] == '.' || text[owner + 1] == '.') return 0;
    return owner + 1 + name;
}

/* Parses "org/name:select@revision"; the last two in either order. */
static bool parse_repository(const char *text, hub_source *s) {
    size_t n = repository_length(text);
    *s = (hub_source){.revision = "main"};
    if (!copy_span(s->repo, sizeof s->repo, text, n)) return false;
    for (text += n; *text; text += n) {
        const bool selects = *text++ == ':';
        if (!selects && text[-1] != '@') return false;
        n = strcspn(text, ":@");
        if (selects ? !copy_span(s->select, sizeof s->select, text, n)
                    : !copy_span(s->revision, sizeof s->revision, text, n))
            return false;
    }
    return true;
}

/* Parses the path after the endpoint: "org/name", "org/name/tree/REV",
 * "org/name/resolve/REV/FILE". */
static bool parse_page(const char *text, hub_source *s) {
    char path[HUB_URL_SIZE];
    if (!copy_span(path, sizeof path, text, (size_t)http_shown_length(text))) return false;
    size_t n = repository_length(path);
    *s = (hub_source){.revision = "main"};
    if (strchr(path, '%') || !copy_span(s->repo, sizeof s->repo, path, n)) return false;
    if (!strcmp(path + n, "") || !strcmp(path + n, "/")) return !path_ends_in(s->repo, ".gguf");
    const char *kinds[] = {"/tree/", "/blob/", "/resolve/"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(path + n, kinds[i], strlen(kinds[i])) != 0) continue;
        const char *revision = path + n + strlen(kinds[i]);
        const size_t k = strcspn(revision, "/");
        if (!copy_span(s->revision, sizeof s->revision, revision, k)) return false;
        if (!revision[k]) return i == 0;
        const char *file = revision + k + 1;
        return copy_span(s->select, sizeof s->select, file, strlen(file));
    }
    return false;
}

static bool parse_source(const char *endpoint, const char *text, hub_source *s) {
    static const char *const hosts[] = {"hf.co/", "huggingface.co/"};
    const size_t n = strlen(endpoint);
    if (!strncmp(text, endpoint, n) && text[n] == '/') return parse_page(text + n + 1, s);
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        if (!strncmp(text, hosts[i], strlen(hosts[i])))
            return parse_repository(text + strlen(hosts[i]), s);
    return parse_repository(text, s);
}

bool hub_is_source(const char *endpoint, const char *source) {
    hub_source s;
    return parse_source(endpoint, source, &s);
}

/* ---- files of the list ---- */

static const hub_file *find_file(const hub_list *l, const char *path) {
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->files[i].path, path)) return &l->files[i];
    return NULL;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Adds a listed file, stored as `name`. Returns an exit code. */
static int add_file(const hub *h, const hub_source *s, const hub_list *l, const hub_file *f,
                    const char *name, pull_plan *out) {
    char url[2 * HUB_URL_SIZE], path[HUB_URL_SIZE], commit[3 * HUB_REVISION_SIZE];
    if (name[0] == '.' || !name[0] || path_ends_in(name, STORE_PART) || strpbrk(name, "/\\") ||
        strlen(f->path) > 600)
        return complain_failure("%s: file '%s' of the hub's list cannot be stored under this name",
                                s->repo, f->path);
    hub_encode(path, sizeof path, f->path, "/");
    hub_encode(commit, sizeof commit, l->commit, "");
    snprintf(url, sizeof url, "%s/%s/resolve/%s/%s", h->endpoint, s->repo, commit, path);
    pull_file *file = pull_plan_add(out, url, name, f->size);
    if (!file) return EXIT_FAILED;
    if (f->sha256) (void)pull_read_hash(f->sha256, file->sha256); /* validated with the list */
    snprintf(file->version, sizeof file->version, "%s", f->blob ? f->blob : l->commit);
    return EXIT_DONE;
}

/* ---- GGUF files ---- */

/* Returns whether the file is a model, not an accessory; the same names as in llama.cpp. */
static bool is_model_file(const char *path) {
    static const char *const extras[] = {"mmproj",  "imatrix", "mtp-",
                                         "eagle3-", "dflash-", "dspark-"};
    if (!path_ends_in(path, ".gguf")) return false;
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++)
        if (strstr(base_name(path), extras[i])) return false;
    return true;
}

/* Returns the shard number of "x-00002-of-00003.gguf", 2; else 1. *stem is the length before the
 * shard suffix or ".gguf". */
static int shard_of(const char *path, size_t *stem) {
    const size_t n = strlen(path), tail = strlen("-00002-of-00003.gguf");
    int number, count, used = 0;
    *stem = n - strlen(".gguf");
    if (n <= tail) return 1;
    const char *end = path + n - tail;
    if (sscanf(end, "-%5d-of-%5d.ggu%n", &number, &count, &used) != 2 || used != (int)tail - 1)
        return 1;
    *stem = n - tail;
    return number;
}

/* Returns whether the path has the tag as a word, followed by '.' or '-', ignoring case. */
static bool has_tag(const char *path, const char *tag) {
    const size_t n = strlen(tag);
    for (const char *at = path; *at; at++) {
        if (strncasecmp(at, tag, n) != 0 || (at[n] != '.' && at[n] != '-')) continue;
        if (at == path || !isalnum((unsigned char)at[-1])) return true;
    }
    return false;
}

/* Returns the first shard of the first model with that tag; tag NULL: of the first model. */
static const hub_file *find_tagged(const hub_list *l, const char *tag) {
    size_t stem;
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->files[i].path;
        if (is_model_file(path) && shard_of(path, &stem) == 1 && (!tag || has_tag(path, tag)))
            return &l->files[i];
    }
    return NULL;
}

/* Chooses a file. Default as in llama.cpp: Q4_K_M, else Q8_0, else the first. */
static const hub_file *choose_gguf(const hub_list *l, const char *select) {
    const hub_file *f = NULL;
    if (!select[0]) {
        f = find_tagged(l, "Q4_K_M");
        if (!f) f = find_tagged(l, "Q8_0");
        return f ? f : find_tagged(l, NULL);
    }
    if (!path_ends_in(select, ".gguf")) return find_tagged(l, select);
    for (size_t i = 0; i < l->n && !f; i++)
        if (!strcmp(l->files[i].path, select) || !strcmp(base_name(l->files[i].path), select))
            f = &l->files[i];
    return f;
}

static int report_choices(const hub_source *s, const hub_list *l) {
    char names[1024] = "";
    size_t at = 0, stem;
    for (size_t i = 0; i < l->n && at < sizeof names; i++) {
        const char *path = l->files[i].path;
        if (!is_model_file(path) || shard_of(path, &stem) != 1) continue;
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", path);
    }
    if (at >= sizeof names) strcpy(names + sizeof names - 5, " ...");
    return complain_failure("%s: has no GGUF file '%s'%s%s", s->repo, s->select,
                            at ? "; it has " : "", names);
}

static int add_gguf(const hub *h, const hub_source *s, const hub_list *l, const hub_file *first,
                    pull_plan *out) {
    size_t stem, other;
    const int number = shard_of(first->path, &stem);
    const char *name = base_name(first->path);
    out->is_directory = stem + strlen(".gguf") != strlen(first->path);
    pull_make_name(out->name, name, stem - (size_t)(name - first->path));
    if (!out->is_directory) return add_file(h, s, l, first, "model.gguf", out);
    if (number != 1)
        return complain_failure("%s: %s: not the first shard of a model; give the first one",
                                s->repo, first->path);
    int code = EXIT_DONE;
    for (size_t i = 0; i < l->n && code == EXIT_DONE; i++) {
        const hub_file *f = &l->files[i];
        /* Shards of a model differ only in their number. */
        if (!path_ends_in(f->path, ".gguf") || strlen(f->path) != strlen(first->path)) continue;
        (void)shard_of(f->path, &other);
        if (other == stem && !strncmp(f->path, first->path, stem) &&
            !strcmp(f->path + stem + 6, first->path + stem + 6))
            code = add_file(h, s, l, f, base_name(f->path), out);
    }
    const size_t count = (size_t)atoi(first->path + stem + strlen("-00001-of-"));
    if (code != EXIT_DONE || out->n == count) return code;
    return complain_failure("%s: %s: the hub lists %zu of its %zu shards", s->repo, first->path,
                            out->n, count);
}

/* ---- safetensors ---- */

static const char single_weights[] = "model.safetensors";
static const char weights_index[] = "model.safetensors.index.json";

/* Adds a shard of the index, unless already seen. Returns an exit code. */
static int add_shard(const hub *h, const hub_source *s, const hub_list *l, const json_t *shard,
                     json_t *seen, pull_plan *out) {
    const char *name = json_string_value(shard);
    if (name && json_object_get(seen, name)) return EXIT_DONE;
    const hub_file *f = name ? find_file(l, name) : NULL;
    if (!name || !path_ends_in(name, ".safetensors"))
        complain("%s: %s: weight_map: '%s' is not the name of a safetensors file", s->repo,
                 weights_index, name ? name : hub_type_name(shard));
    else if (!f)
        complain("%s: %s: weight_map: the repository has no file '%s'", s->repo, weights_index,
                 name);
    else if (json_object_set_new(seen, name, json_true()) != 0) return complain_no_memory();
    else return add_file(h, s, l, f, name, out);
    return EXIT_FAILED;
}

static int add_shards(const hub *h, const hub_source *s, const hub_list *l, pull_plan *out) {
    json_t *index = NULL, *seen = json_object(), *shard;
    const char *key;
    int code = add_file(h, s, l, find_file(l, weights_index), weights_index, out);
    if (code == EXIT_DONE) code = hub_get_json(h, out->files[out->n - 1].url, &index);
    json_t *map = json_object_get(index, "weight_map");
    if (code == EXIT_DONE && !json_object_size(map))
        code = complain_failure("%s: %s: weight_map must be an object that names files; it is %s",
                                s->repo, weights_index,
                                json_is_object(map) ? "empty" : hub_type_name(map));
    json_object_foreach(map, key, shard) {
        if (code == EXIT_DONE) code = add_shard(h, s, l, shard, seen, out);
    }
    json_decref(index);
    json_decref(seen);
    return code;
}

static int add_directory(const hub *h, const hub_source *s, const hub_list *l, pull_plan *out) {
    /* config.json and weights are required, the others optional. */
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "tokenizer.model",
        "vocab.json",
        "merges.txt",
        "LICENSE",
        "LICENSE.txt",
        "LICENSE.md",
        "NOTICE",
        single_weights,
    };
    const bool weights = find_file(l, single_weights) || find_file(l, weights_index);
    if (!weights || !find_file(l, "config.json"))
        return complain_failure("%s: has neither GGUF files nor config.json with model.safetensors",
                                s->repo);
    out->is_directory = true;
    pull_make_name(out->name, base_name(s->repo), strlen(base_name(s->repo)));
    int code = EXIT_DONE;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && code == EXIT_DONE; i++) {
        const hub_file *f = find_file(l, names[i]);
        if (f) code = add_file(h, s, l, f, names[i], out);
    }
    if (code == EXIT_DONE && !find_file(l, single_weights)) code = add_shards(h, s, l, out);
    return code;
}

/* ---- both ---- */

int pull_plan_hub(const hub *h, const char *source, pull_plan *out) {
    hub_source s;
    hub_list l = {.n = 0};
    if (!parse_source(h->endpoint, source, &s)) return EXIT_USAGE;
    int code = hub_list_get(h, s.repo, s.revision, &l);
    if (code == EXIT_DONE) {
        const bool directory = !strcasecmp(s.select, "safetensors");
        const hub_file *f = directory ? NULL : choose_gguf(&l, s.select);
        if (f) code = add_gguf(h, &s, &l, f, out);
        else if (s.select[0] && !directory) code = report_choices(&s, &l);
        else code = add_directory(h, &s, &l, out);
    }
    hub_list_free(&l);
    return code;
}
