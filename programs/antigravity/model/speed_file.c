/* SPDX-License-Identifier: Apache-2.0 */
#include "speed_file.h"

#include "../support/sha256.h"
#include "../support/user_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 4096, NAME_DIGITS = 32 };
static const char title[] = "antigravity decode speed\n";

bool speed_directory(char dir[PATH_MAX]) {
    const char *named = getenv("AG_OPENCL_CACHE");
    if (!named || !named[0]) return user_path(dir, "XDG_CACHE_HOME", ".cache", "opencl");
    return strcmp(named, "0") != 0 && (size_t)snprintf(dir, PATH_MAX, "%s", named) < PATH_MAX;
}

static void hash(const char *text, char hex[SHA256_HEX]) {
    sha256 sum;
    sha256_begin(&sum);
    sha256_add(&sum, text, strlen(text));
    sha256_hex(&sum, hex);
}

static bool path_of(const char *dir, const char *key, char path[PATH_MAX]) {
    char hex[SHA256_HEX], name[SHA256_HEX + 8];
    hash(key, hex);
    snprintf(name, sizeof name, "%.*s.speed", NAME_DIGITS, hex);
    return path_join(path, dir, name);
}

/* Writes the content of a file: title, key, speed and the hash of these lines. Returns its length;
 * 0: it is too long. */
static size_t format_text(const char *key, double tokens_per_s, char text[TEXT_SIZE]) {
    char hex[SHA256_HEX];
    const int n = snprintf(text, TEXT_SIZE, "%s%s\n%.17g tokens/s\n", title, key, tokens_per_s);
    if (n < 0 || n + SHA256_HEX >= TEXT_SIZE) return 0;
    hash(text, hex);
    return (size_t)n + (size_t)snprintf(text + n, (size_t)(TEXT_SIZE - n), "%s\n", hex);
}

bool speed_read(const char *dir, const char *key, double *tokens_per_s) {
    char path[PATH_MAX], text[TEXT_SIZE + 1], expected[TEXT_SIZE];
    FILE *file = path_of(dir, key, path) ? fopen(path, "rb") : NULL;
    if (!file) return false;
    const size_t n = fread(text, 1, TEXT_SIZE, file), before = strlen(title) + strlen(key) + 1;
    fclose(file);
    text[n] = '\0';
    if (n <= before) return false;
    const double speed = strtod(text + before, NULL);
    if (!isfinite(speed) || speed <= 0) return false;
    if (format_text(key, speed, expected) != n || memcmp(text, expected, n) != 0) return false;
    *tokens_per_s = speed;
    return true;
}

bool speed_write(const char *dir, const char *key, double tokens_per_s) {
    new_file file;
    char path[PATH_MAX], text[TEXT_SIZE];
    const size_t n = format_text(key, tokens_per_s, text);
    errno = ENAMETOOLONG;
    if (!n || !path_of(dir, key, path)) return false;
    if (!make_directories(dir, 0700) || !new_file_open(&file, path)) return false;
    return new_file_close(&file, new_file_write(&file, text, n));
}
