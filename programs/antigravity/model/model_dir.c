/* SPDX-License-Identifier: Apache-2.0 */
#include "model_dir.h"

#include "../command.h"
#include "../support/user_files.h"
#include "../terminal/output.h"
#include "store.h"

#include <antigravity/tokenizer.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes the path of the bundled model, relative to the program. It is the same in the build tree
 * and after installing. */
static bool bundled_path(char *path, size_t cap) {
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return false;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash) return false;
    *slash = '\0';
    return (size_t)snprintf(path, cap, "%s/%s/models/demo", exe, AG_BIN_TO_DATA) < cap;
}

/* Finds the store's model of that name. `path` stays empty if `name` is a path, or there is no
 * store. */
static int resolve_name(const char *name, char path[PATH_MAX]) {
    enum { MAX_MATCHES = 20 };
    struct stat info;
    model_store s;
    size_t found[MAX_MATCHES];
    char names[PATH_MAX];
    if (strchr(name, '/') || lstat(name, &info) == 0 || !store_locate(names)) return EXIT_DONE;
    int code = store_open(&s);
    const size_t n = code == EXIT_DONE ? store_match(&s, name, true, found, MAX_MATCHES) : 0;
    const store_entry *e = n == 1 ? &s.entries[found[0]] : NULL;
    store_list_names(&s, found, n, names, sizeof names);
    if (code != EXIT_DONE || e) {
        if (e && e->is_part)
            code = complain_failure("%s: incomplete; 'antigravity pull' resumes it", e->name);
        else if (e && store_model_path(&s, e, path)) store_mark_used(&s, e);
    } else if (n) {
        code = complain_usage("-m %s: ambiguous: %s; give more of the name", name, names);
    } else {
        code = complain_failure(
            "%s: no such file or directory here, and no model of that name in %s; "
            "'antigravity models' lists them, 'antigravity pull ORG/NAME' fetches one, such as "
            "bartowski/SmolLM2-135M-Instruct-GGUF",
            name, s.path);
    }
    store_close(&s);
    return code;
}

/* Returns whether the path looks like "org/name" of a model hub. */
static bool names_a_repository(const char *path) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-_.";
    size_t owner = strspn(path, letters);
    size_t name = path[owner] == '/' ? strspn(path + owner + 1, letters) : 0;
    return owner && name && !path[owner + 1 + name] && path[0] != '.' && path[owner + 1] != '.' &&
           !path_ends_in(path, ".gguf");
}

/* Reports a path without a file. Other faults of a path are reported when it is opened. */
static int check_path(const char *path) {
    struct stat info;
    if (lstat(path, &info) == 0 || errno != ENOENT) return EXIT_DONE;
    if (names_a_repository(path))
        return complain_failure("%s: no such directory here; 'antigravity pull %s' fetches a "
                                "repository of that name and prints the name for -m",
                                path, path);
    return complain_failure("%s: %s; give a GGUF file, a Hugging Face directory or a name that "
                            "'antigravity models' lists",
                            path, strerror(ENOENT));
}

int model_dir_find(const char *given, bool quiet, char **out) {
    char path[PATH_MAX] = "";
    *out = NULL;
    if (given) {
        int code = resolve_name(given, path);
        if (code == EXIT_DONE && !path[0]) code = check_path(given);
        if (code == EXIT_DONE) *out = strdup(path[0] ? path : given);
        return code != EXIT_DONE || *out ? code : complain_no_memory();
    }
    if (!bundled_path(path, sizeof path))
        return complain_usage("no bundled model without /proc: give -m MODEL");
    *out = realpath(path, NULL);
    if (!*out) return complain_usage("no bundled model at %s: give -m MODEL", path);
    if (!quiet) complain("no -m MODEL given: using the bundled demo model, %s", *out);
    return EXIT_DONE;
}

bool model_dir_is_model(const char *word) {
    struct stat info;
    model_store s;
    size_t found;
    char path[PATH_MAX];
    if (stat(word, &info) == 0 && S_ISDIR(info.st_mode)) return true;
    if (path_ends_in(word, ".gguf")) return true;
    if (!store_name_is_valid(word) || !store_locate(path) || store_open(&s) != EXIT_DONE)
        return false;
    const bool is_stored = store_match(&s, word, false, &found, 1) > 0;
    store_close(&s);
    return is_stored;
}

/* Returns whether the file exists. Reports a dangling link, which probably replaces a lost file. */
static bool is_there(const char *path, bool quiet) {
    struct stat s;
    if (stat(path, &s) == 0) return true;
    if (lstat(path, &s) != 0) return false;
    if (!quiet) complain("%s: dangling link", path);
    return S_ISLNK(s.st_mode);
}

bool model_dir_is_chat(const char *dir, bool quiet) {
    char path[PATH_MAX];
    if (path_join(path, dir, "chat_template.jinja") && is_there(path, quiet)) return true;
    if (path_join(path, dir, "tokenizer_config.json")) is_there(path, quiet);
    /* A missing or broken file has no template; other commands report it. */
    ag_text text = {0};
    ag_error unused;
    bool found = ag_chat_template_load(dir, &text, &unused) == AG_OK;
    ag_text_free(&text);
    return found;
}
