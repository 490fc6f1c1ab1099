/* SPDX-License-Identifier: Apache-2.0 */
/* Directory, names and locks of saved conversations. */
#include "chat.h"

#include "../command.h"
#include "../support/user_files.h"
#include "../terminal/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 100 };
const char chat_json_end[] = ".json";
static const char lock_end[] = ".lock";

bool chat_name_is_valid(const char *name) {
    const size_t n = strlen(name);
    if (!n || n > NAME_BYTES || name[0] == '.' || name[0] == '-' || strchr(name, '/')) return false;
    for (const unsigned char *b = (const unsigned char *)name; *b; b++)
        if (*b < 0x20 || *b == 0x7f) return false;
    return true;
}

bool chat_find_directory(char path[PATH_MAX], bool make) {
    if (!user_path(path, "XDG_DATA_HOME", ".local/share", "chats") ||
        strlen(path) + NAME_BYTES + 32 > PATH_MAX) {
        complain("no directory for conversations: set XDG_DATA_HOME or HOME");
        return false;
    }
    if (!make || make_directories(path, 0700)) return true;
    complain("%s: %s", path, strerror(errno));
    return false;
}

void chat_path(char out[PATH_MAX], const char *directory, const char *name, const char *end) {
    snprintf(out, PATH_MAX, "%.*s/%s%s", PATH_MAX - NAME_BYTES - 32, directory, name, end);
}

bool chat_is_saved(const char *name) {
    char directory[PATH_MAX], path[PATH_MAX];
    if (!chat_find_directory(directory, false)) return false;
    chat_path(path, directory, name, chat_json_end);
    return access(path, F_OK) == 0;
}

/* ---- one process at a time ---- */

int chat_lock(const char *name) {
    char directory[PATH_MAX], path[PATH_MAX];
    if (!chat_find_directory(directory, true)) return -1;
    chat_path(path, directory, name, lock_end);
    for (;;) {
        struct stat s;
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) {
            complain("%s: %s", path, strerror(errno));
            return -1;
        }
        /* Without lock support the conversation is saved unlocked. */
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            complain("the conversation '%s' is open in another process", name);
            close(fd);
            return -1;
        }
        /* The previous holder may have removed the file. */
        if (fstat(fd, &s) == 0 && s.st_nlink) return fd;
        close(fd);
    }
}

void chat_unlock(const char *name, int lock) {
    char directory[PATH_MAX], path[PATH_MAX];
    if (chat_find_directory(directory, false)) {
        chat_path(path, directory, name, lock_end);
        unlink(path);
    }
    close(lock);
}

bool chat_is_named(const chat *c, const char *name) { return c->name && !strcmp(c->name, name); }

int chat_take_name(chat *c, const char *name, int lock) {
    char *copy = strdup(name);
    if (!copy) {
        chat_unlock(name, lock);
        return complain_no_memory();
    }
    chat_drop_name(c);
    c->name = copy;
    c->lock = lock;
    return EXIT_DONE;
}

void chat_drop_name(chat *c) {
    if (c->name) chat_unlock(c->name, c->lock);
    free(c->name);
    c->name = NULL;
}
