/* SPDX-License-Identifier: Apache-2.0 */
#include "presets.h"

#include "../support/user_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char preset_end[] = ".json";

static bool presets_directory(char path[PATH_MAX]) {
    return user_path(path, "XDG_CONFIG_HOME", ".config", "presets");
}

/* Appends the name to a list such as "coder, tales". */
static bool list_name(void *user, const char *name, const char *path) {
    char *list = user;
    const size_t n = strlen(list);
    (void)path;
    snprintf(list + n, MESSAGE_SIZE - n, "%s%s", n ? ", " : "", name);
    return n < MESSAGE_SIZE / 2;
}

bool preset_find(const char *name, char path[PATH_MAX], char *message) {
    char directory[PATH_MAX], file[NAME_MAX + sizeof preset_end];
    char known[MESSAGE_SIZE] = "";
    struct stat s;
    if (strchr(name, '/') && strlen(name) < PATH_MAX) return strcpy(path, name);
    if (strchr(name, '/')) return reject(message, "the path is too long");
    if (!name[0] || strlen(name) > NAME_MAX)
        return reject(message, "the name is empty or too long");
    snprintf(file, sizeof file, "%s%s", name, path_ends_in(name, preset_end) ? "" : preset_end);
    if (!presets_directory(directory) || !path_join(path, directory, file))
        return reject(message, "there is no directory of presets: set XDG_CONFIG_HOME or HOME");
    if (stat(path, &s) == 0) return true;
    preset_each(list_name, known);
    return reject(message, "'%.60s': no such preset in %.120s%s%.80s", name, directory,
                  known[0] ? "; known: " : "", known);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void preset_each(bool (*each)(void *user, const char *name, const char *path), void *user) {
    enum { MAX_PRESETS = 256 };
    char directory[PATH_MAX], path[PATH_MAX];
    char *names[MAX_PRESETS];
    size_t n = 0;
    DIR *d = presets_directory(directory) ? opendir(directory) : NULL;
    for (struct dirent *e; d && n < MAX_PRESETS && (e = readdir(d));) {
        if (e->d_name[0] == '.' || !path_ends_in(e->d_name, preset_end)) continue;
        names[n] = strndup(e->d_name, strlen(e->d_name) - strlen(preset_end));
        n += names[n] != NULL;
    }
    if (d) closedir(d);
    if (n) qsort(names, n, sizeof *names, by_name);
    bool goes = true;
    for (size_t i = 0; i < n; i++) {
        char file[NAME_MAX + sizeof preset_end];
        snprintf(file, sizeof file, "%s%s", names[i], preset_end);
        goes = goes && path_join(path, directory, file) && each(user, names[i], path);
        free(names[i]);
    }
}
