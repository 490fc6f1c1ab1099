/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include "../command.h"
#include "../support/user_files.h"
#include "../terminal/output.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char gguf[] = ".gguf";
/* Hidden directory of empty files whose times show when a model was used. */
static const char used_directory[] = ".used";

/* Hidden directory of files with the SHA-256 of models, and their size and time when it was
 * recorded. */
static const char hash_directory[] = ".sha256";

static size_t length_without(const char *text, const char *end) {
    return strlen(text) - (path_ends_in(text, end) ? strlen(end) : 0);
}

bool store_locate(char path[PATH_MAX]) {
    const char *own = getenv("ANTIGRAVITY_MODELS");
    if (own && own[0]) return (size_t)snprintf(path, PATH_MAX, "%s", own) < PATH_MAX;
    return user_path(path, "XDG_DATA_HOME", ".local/share", "models");
}

/* ---- the list ---- */

static bool is_directory_at(const char *dir, const char *name) {
    char path[PATH_MAX];
    struct stat s;
    return path_join(path, dir, name) && stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static bool make_entry(const model_store *s, const char *file, store_entry *e) {
    if (file[0] == '.') return false;
    *e = (store_entry){.is_directory = is_directory_at(s->path, file)};
    size_t n = length_without(file, STORE_PART);
    e->is_part = file[n] != '\0';
    if (!e->is_part && !e->is_directory) n = length_without(file, gguf);
    if (!e->is_directory && (e->is_part || !file[n])) return false; /* another file */
    snprintf(e->file, sizeof e->file, "%s", file);
    snprintf(e->name, sizeof e->name, "%.*s", (int)n, file);
    return true;
}

static int by_name(const void *a, const void *b) {
    const store_entry *x = a, *y = b;
    int order = strcasecmp(x->name, y->name);
    return order ? order : strcmp(x->file, y->file);
}

static int add_entry(model_store *s, const store_entry *e) {
    store_entry *grown = realloc(s->entries, (s->n + 1) * sizeof *grown);
    if (!grown) return complain_no_memory();
    s->entries = grown;
    s->entries[s->n++] = *e;
    return EXIT_DONE;
}

int store_open_at(model_store *s, const char *path) {
    *s = (model_store){.n = 0};
    if ((size_t)snprintf(s->path, sizeof s->path, "%s", path) >= sizeof s->path)
        return complain_failure("%s: %s", path, strerror(ENAMETOOLONG));
    DIR *d = opendir(s->path);
    if (!d && errno == ENOENT) return EXIT_DONE;
    if (!d) complain("%s: %s", s->path, strerror(errno));
    if (!d) return EXIT_FAILED;
    int code = EXIT_DONE;
    store_entry e;
    for (struct dirent *i; code == EXIT_DONE && (i = readdir(d));)
        if (make_entry(s, i->d_name, &e)) code = add_entry(s, &e);
    closedir(d);
    if (s->n) qsort(s->entries, s->n, sizeof *s->entries, by_name);
    return code;
}

int store_open(model_store *s) {
    char path[PATH_MAX];
    *s = (model_store){.n = 0};
    if (!store_locate(path))
        return complain_failure("no directory for models: set ANTIGRAVITY_MODELS or HOME");
    return store_open_at(s, path);
}

void store_close(model_store *s) {
    free(s->entries);
    *s = (model_store){.n = 0};
}

/* ---- names ---- */

int store_name_match(const char *name, const char *given) {
    static const char latest[] = ":latest";
    const size_t n = length_without(given, latest);
    if (strlen(name) == n && !strncmp(name, given, n)) return 3;
    for (size_t i = 0; i < n; i++) {
        const char c = given[i] == ':' && name[i] != ':' ? '-' : given[i];
        if (tolower((unsigned char)c) != tolower((unsigned char)name[i])) return 0;
    }
    return name[n] ? 1 : 2;
}

/* Returns how well the name matches: higher is better, 0 is no match. */
static int match_of(const store_entry *e, const char *name, bool prefixes) {
    if (!strcmp(e->file, name)) return 5;
    const int match = store_name_match(e->name, name);
    if (match == 3) return e->is_part ? 2 : 4;
    if (e->is_part) return 0;
    if (match == 2 || !strcasecmp(e->file, name)) return 3;
    return prefixes ? match : 0;
}

size_t store_match(const model_store *s, const char *name, bool prefixes, size_t *found,
                   size_t cap) {
    int best = 1;
    size_t n = 0;
    for (size_t i = 0; i < s->n && name[0]; i++) {
        const int match = match_of(&s->entries[i], name, prefixes);
        if (match < best) continue;
        if (match > best) n = 0;
        best = match;
        if (n < cap) found[n++] = i;
    }
    return n;
}

void store_list_names(const model_store *s, const size_t *found, size_t n, char *text, size_t cap) {
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n && at < cap; i++)
        at +=
            (size_t)snprintf(text + at, cap - at, "%s%s", i ? ", " : "", s->entries[found[i]].file);
}

bool store_model_path(const model_store *s, const store_entry *e, char path[PATH_MAX]) {
    return path_join(path, s->path, e->file);
}

bool store_name_is_valid(const char *name) {
    static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);
    return n && n < 200 && name[0] != '.' && name[0] != '-' && strspn(name, known) == n &&
           length_without(name, STORE_PART) == n;
}

/* ---- use ---- */

static bool used_path(const model_store *s, const store_entry *e, char path[PATH_MAX]) {
    char dir[PATH_MAX];
    return path_join(dir, s->path, used_directory) && path_join(path, dir, e->file);
}

time_t store_used(const model_store *s, const store_entry *e) {
    char path[PATH_MAX];
    struct stat info;
    return used_path(s, e, path) && stat(path, &info) == 0 ? info.st_mtime : 0;
}

void store_mark_used(const model_store *s, const store_entry *e) {
    char path[PATH_MAX], dir[PATH_MAX];
    if (!used_path(s, e, path) || !path_join(dir, s->path, used_directory)) return;
    (void)mkdir(dir, 0777);
    /* A read-only store does not record uses. */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return;
    (void)futimens(fd, NULL);
    close(fd);
}

/* ---- hashes ---- */

enum { HASH_RECORD = SHA256_HEX + 64 };

/* Writes the paths of the directory and of a model's record. */
static bool hash_path(const char *model_path, char dir[PATH_MAX], char path[PATH_MAX]) {
    char parent[PATH_MAX];
    const char *name = strrchr(model_path, '/');
    name = name ? name + 1 : model_path;
    snprintf(parent, sizeof parent, "%.*s", (int)(name - model_path), model_path);
    return path_join(dir, parent[0] ? parent : ".", hash_directory) && path_join(path, dir, name);
}

/* Writes the hash with size and time of change of the file, which identify its version. */
static bool hash_record(const char *model_path, const char *hash, char text[HASH_RECORD]) {
    struct stat s;
    if (stat(model_path, &s) != 0 || !S_ISREG(s.st_mode)) return false;
    snprintf(text, HASH_RECORD, "%s %lld %lld.%09ld\n", hash, (long long)s.st_size,
             (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
    return true;
}

void store_record_hash(const char *model_path, const char hash[SHA256_HEX]) {
    char path[PATH_MAX], dir[PATH_MAX], text[HASH_RECORD];
    new_file f;
    if (!hash_path(model_path, dir, path) || !hash_record(model_path, hash, text)) return;
    (void)mkdir(dir, 0777);
    if (!new_file_open(&f, path)) return;
    struct stat model;
    if (!new_file_close(&f, new_file_write(&f, text, strlen(text)))) return;
    /* Other users may read the record if they may read the model. */
    if (stat(model_path, &model) == 0) (void)chmod(path, model.st_mode & 0666);
}

bool store_find_hash(const char *model_path, char hash[SHA256_HEX]) {
    char path[PATH_MAX], dir[PATH_MAX], text[HASH_RECORD] = "", expected[HASH_RECORD];
    if (!hash_path(model_path, dir, path)) return false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const bool is_read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    snprintf(hash, SHA256_HEX, "%s", text);
    return is_read && strspn(hash, "0123456789abcdef") == SHA256_HEX - 1 &&
           hash_record(model_path, hash, expected) && !strcmp(text, expected);
}

static void remove_hash(const model_store *s, const store_entry *e) {
    char model_path[PATH_MAX], path[PATH_MAX], dir[PATH_MAX];
    if (store_model_path(s, e, model_path) && hash_path(model_path, dir, path)) (void)unlink(path);
}

/* ---- contents ---- */

enum { MAX_DEPTH = 16 };

/* Sums up or removes the content of directory fd, and closes fd. Links count as their targets but
 * are removed themselves. Returns 0 or errno. */
static int visit_tree(int fd, int depth, bool remove, uint64_t *bytes) {
    DIR *d = fdopendir(fd);
    int error = d ? 0 : errno;
    if (!d) close(fd);
    for (struct dirent *i; d && !error && (i = readdir(d));) {
        struct stat s;
        if (!strcmp(i->d_name, ".") || !strcmp(i->d_name, "..")) continue;
        if (fstatat(fd, i->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0) continue;
        const bool is_directory = S_ISDIR(s.st_mode);
        if (S_ISLNK(s.st_mode) && !remove) (void)fstatat(fd, i->d_name, &s, 0);
        if (S_ISREG(s.st_mode)) *bytes += (uint64_t)s.st_size;
        if (is_directory && depth == MAX_DEPTH) error = ELOOP;
        if (is_directory && !error) {
            int inner = openat(fd, i->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            error = inner < 0 ? errno : visit_tree(inner, depth + 1, remove, bytes);
        }
        if (remove && !error && unlinkat(fd, i->d_name, is_directory ? AT_REMOVEDIR : 0) != 0)
            error = errno;
    }
    if (d) closedir(d);
    return error;
}

uint64_t store_bytes(const model_store *s, const store_entry *e) {
    char path[PATH_MAX];
    struct stat info;
    uint64_t bytes = 0;
    if (!path_join(path, s->path, e->file) || stat(path, &info) != 0) return 0;
    if (!S_ISDIR(info.st_mode)) return (uint64_t)info.st_size;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) (void)visit_tree(fd, 0, false, &bytes);
    return bytes;
}

/* Removes a directory. First renames it to NAME.part, since an incomplete directory is not a model.
 * Returns 0 or errno. */
static int remove_directory(int store, const store_entry *e) {
    char part[NAME_MAX + sizeof STORE_PART];
    uint64_t bytes = 0;
    int fd = openat(store, e->file, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    snprintf(part, sizeof part, "%s%s", e->file, e->is_part ? "" : STORE_PART);
    int error =
        flock(fd, LOCK_EX | LOCK_NB) != 0 ? EBUSY : 0; /* locked by the process that fetches it */
    const char *now = e->file;
    if (!error && !e->is_part && renameat(store, e->file, store, part) == 0) now = part;
    int inside = error ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!error) error = inside < 0 ? errno : visit_tree(inside, 0, true, &bytes);
    if (!error && unlinkat(store, now, AT_REMOVEDIR) != 0) error = errno;
    close(fd);
    return error;
}

int store_remove(const model_store *s, const store_entry *e) {
    char path[PATH_MAX];
    struct stat info;
    int error = 0;
    int dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return errno;
    if (fstatat(dir, e->file, &info, AT_SYMLINK_NOFOLLOW) != 0) error = errno;
    else if (S_ISDIR(info.st_mode)) error = remove_directory(dir, e);
    else if (unlinkat(dir, e->file, 0) != 0) error = errno;
    close(dir);
    if (!error && used_path(s, e, path)) (void)unlink(path);
    if (!error) remove_hash(s, e);
    return error;
}
