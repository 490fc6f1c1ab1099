/* SPDX-License-Identifier: Apache-2.0 */
/* Saved conversations. NAME.json holds messages and sampled tokens, NAME.agcache the session. If
 * the two differ, or the cache has other settings, the messages are read again. */
#include "chat.h"

#include "../command.h"
#include "../support/json_out.h"
#include "../support/sha256.h"
#include "../support/user_files.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1 };
static const char cache_end[] = ".agcache";

/* ---- saving ---- */

static json_t *message_of(const transcript_message *m) {
    return JSON_OBJECT({"message", json_incref(m->json)},
                       {"ids", m->is_sampled ? json_ids(m->ids.data, m->ids.n) : json_null()},
                       {"first", m->first == TRANSCRIPT_UNREAD
                                     ? json_null()
                                     : json_integer((json_int_t)m->first)});
}

/* Hashes the vocabulary: equal hashes mean equal ids. */
static void hash_vocabulary(const ag_tokenizer *t, char hex[SHA256_HEX]) {
    sha256 sum;
    sha256_begin(&sum);
    for (int32_t id = 0; id < ag_tokenizer_vocab_size(t); id++) {
        size_t len = 0;
        const char *text = ag_tokenizer_token(t, id, &len);
        const uint64_t n = text ? len : UINT64_MAX;
        sha256_add(&sum, &n, sizeof n);
        if (text) sha256_add(&sum, text, len);
    }
    sha256_hex(&sum, hex);
}

static json_t *transcript_json(const chat *c) {
    const transcript *t = &c->transcript;
    json_t *messages = json_array();
    for (size_t i = 0; messages && i < t->n; i++)
        json_append(&messages, message_of(&t->messages[i]));
    char vocabulary[SHA256_HEX];
    hash_vocabulary(c->engine.tokenizer, vocabulary);
    const json_field fields[] = {
        {"antigravity_chat", json_integer(VERSION)},
        {"model", json_text(c->engine.dir, strlen(c->engine.dir))},
        {"vocabulary", json_string(vocabulary)},
        {"system", t->system ? json_text(t->system, strlen(t->system)) : json_null()},
        {"seed", json_integer((json_int_t)c->o.sampling.seed)},
        {"attempt", json_integer((json_int_t)c->attempt)},
        {"messages", messages},
    };
    return JSON_FIELDS(fields);
}

/* Writes the file, readable by the owner only. */
static int write_json(const char *path, json_t *value) {
    new_file f;
    char *text = value ? json_dumps(value, JSON_INDENT(1)) : NULL;
    json_decref(value);
    if (!text) return complain_no_memory();
    bool ok = new_file_open(&f, path);
    if (ok) ok = new_file_close(&f, new_file_write(&f, text, strlen(text)));
    if (!ok) complain("%s: %s", path, strerror(errno));
    free(text);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

static int write_session(const chat *c, ag_session *session, const char *path) {
    ag_error err;
    const ag_status st =
        ag_session_save(session, path, c->engine.tokenizer, c->consumed.data, c->consumed.n, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

/* Saves a compressed fork of the session; uncompressed if the replay fails. */
static int write_compressed(const chat *c, const char *path) {
    ag_session *copy;
    ag_error err;
    const replay_options replay = replay_of(&c->o.replay, c->consumed.n);
    if (ag_session_fork(c->engine.session, &copy, &err) != AG_OK) return complain_error(&err);
    interrupt_register(copy);
    const int code =
        replay_compress(&replay, &c->engine, copy, c->consumed.data, c->consumed.n, NULL);
    interrupt_unregister(copy);
    const int written = write_session(c, copy, path);
    ag_session_destroy(copy);
    return written == EXIT_DONE ? code : written;
}

static int write_files(const chat *c, const char *name) {
    char directory[PATH_MAX], path[PATH_MAX];
    ag_session *session = c->engine.session;
    if (!chat_find_directory(directory, true)) return EXIT_FAILED;
    chat_path(path, directory, name, chat_json_end);
    int code = write_json(path, transcript_json(c));
    if (code != EXIT_DONE) return code;
    chat_path(path, directory, name, cache_end);
    if (!session) return EXIT_DONE;
    return c->o.replay.share > 0 && c->consumed.n ? write_compressed(c, path)
                                                  : write_session(c, session, path);
}

int chat_save(chat *c, const char *name) {
    if (chat_is_named(c, name)) return write_files(c, name);
    const int lock = chat_lock(name);
    if (lock < 0) return EXIT_FAILED;
    int code = write_files(c, name);
    if (code == EXIT_DONE) return chat_take_name(c, name, lock);
    chat_unlock(name, lock);
    return code;
}

/* ---- going on ---- */

static bool read_ids(const json_t *list, uint32_t n_vocab, ag_ids *out) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || (uint64_t)value >= n_vocab || !ids_add(out, (int32_t)value)) return false;
    }
    return true;
}

/* `same`: the ids are of this vocabulary; else the text is encoded again. */
static int add_message(chat *c, const json_t *saved, bool same, const char *path) {
    transcript *t = &c->transcript;
    json_t *message = json_object_get(saved, "message");
    const json_t *list = json_object_get(saved, "ids"), *first = json_object_get(saved, "first");
    ag_ids ids = {0};
    int code = EXIT_FAILED;
    if (!json_is_object(message) || !json_string_value(json_object_get(message, "role")) ||
        (same && !read_ids(list, c->engine.info.n_vocab, &ids))) {
        complain("%s: message %zu is damaged", path, t->n + 1);
    } else if (same && json_is_array(list)) {
        code = transcript_add_saved(t, json_incref(message), ids.data, ids.n);
    } else {
        code = transcript_add_json(t, json_incref(message));
    }
    free(ids.data);
    const json_int_t at = json_is_integer(first) ? json_integer_value(first) : -1;
    if (code == EXIT_DONE && at >= 0 && at < TRANSCRIPT_UNREAD)
        t->messages[t->n - 1].first = (uint32_t)at;
    return code;
}

static void mark_unread(chat *c) {
    for (size_t i = 0; i < c->transcript.n; i++)
        c->transcript.messages[i].first = TRANSCRIPT_UNREAD;
}

static int restore_cache(chat *c, const char *directory, const char *name) {
    ag_error err;
    ag_ids ids = {0};
    char path[PATH_MAX];
    const engine *e = &c->engine;
    chat_path(path, directory, name, cache_end);
    ag_status st = ag_session_restore(e->session, path, e->tokenizer, &ids, &err);
    if (st == AG_OK && ids.n == ag_session_position(e->session)) {
        int code = chat_note_consumed(c, ids.data, ids.n);
        ag_ids_free(&ids);
        return code;
    }
    ag_ids_free(&ids);
    if (st == AG_CANCELLED) return complain_error(&err);
    if (st != AG_OK && c->transcript.n) complain("%s; the conversation is read again", err.msg);
    chat_forget(c);
    mark_unread(c);
    return EXIT_DONE;
}

/* Fills a new c->transcript. Changes the session last. */
static int restore_messages(chat *c, const json_t *saved, const char *system, const char *path) {
    const json_t *messages = json_object_get(saved, "messages");
    const char *vocabulary = json_string_value(json_object_get(saved, "vocabulary"));
    char own[SHA256_HEX];
    uint32_t n;
    hash_vocabulary(c->engine.tokenizer, own);
    int code = chat_open_transcript(c);
    if (code == EXIT_DONE) code = transcript_set_system(&c->transcript, system);
    for (size_t i = 0; code == EXIT_DONE && i < json_array_size(messages); i++)
        code = add_message(c, json_array_get(messages, i), vocabulary && !strcmp(vocabulary, own),
                           path);
    if (code == EXIT_DONE) code = chat_find_protected(c, &n);
    return code == EXIT_DONE ? chat_open_session(c, n) : code;
}

static int restore_conversation(chat *c, const json_t *saved, const char *system,
                                const char *directory, const char *name) {
    const char *saved_system = json_string_value(json_object_get(saved, "system"));
    const bool other = system && (!saved_system || strcmp(system, saved_system) != 0);
    const uint32_t n_protected = c->n_protected;
    const json_t *seed = json_object_get(saved, "seed");
    char path[PATH_MAX];
    transcript before = c->transcript;
    chat_path(path, directory, name, chat_json_end);
    int code = restore_messages(c, saved, other ? system : saved_system, path);
    if (code == EXIT_DONE && other) {
        mark_unread(c);
    } else if (code == EXIT_DONE) {
        code = restore_cache(c, directory, name);
        if (code != EXIT_DONE) chat_open_session(c, n_protected);
    }
    if (code != EXIT_DONE) {
        transcript_close(&c->transcript);
        c->transcript = before;
        return code == EXIT_USAGE ? EXIT_FAILED : code;
    }
    transcript_close(&before);
    if (other && c->transcript.n)
        chat_note(c, "the conversation is read again with the new system prompt");
    if (c->seed_is_drawn && json_is_integer(seed))
        c->o.sampling.seed = (uint64_t)json_integer_value(seed);
    c->attempt = (uint64_t)json_integer_value(json_object_get(saved, "attempt"));
    return EXIT_DONE;
}

static int load_file(chat *c, const char *name, const char *system) {
    char directory[PATH_MAX], path[PATH_MAX];
    json_error_t error;
    if (!chat_find_directory(directory, false)) return EXIT_FAILED;
    chat_path(path, directory, name, chat_json_end);
    json_t *saved = json_load_file(path, 0, &error);
    if (!saved) return complain_failure("%s: line %d: %s", path, error.line, error.text);
    int code = EXIT_FAILED;
    if (json_integer_value(json_object_get(saved, "antigravity_chat")) != VERSION ||
        !json_is_array(json_object_get(saved, "messages")))
        complain("%s: not a conversation that this program saved", path);
    else code = restore_conversation(c, saved, system, directory, name);
    json_decref(saved);
    return code;
}

int chat_load(chat *c, const char *name, const char *system) {
    if (!chat_is_saved(name)) return EXIT_USAGE;
    if (chat_is_named(c, name)) return load_file(c, name, system);
    const int lock = chat_lock(name);
    if (lock < 0) return EXIT_FAILED;
    int code = load_file(c, name, system);
    if (code == EXIT_DONE) return chat_take_name(c, name, lock);
    chat_unlock(name, lock);
    return code;
}

typedef struct listed {
    char *name; /* owned */
    off_t bytes;
    time_t changed;
} listed;

static int by_name(const void *a, const void *b) {
    const listed *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Returns the size of both files and the time of the messages. */
static listed inspect_files(const char *directory, const char *file, size_t n) {
    char path[PATH_MAX];
    struct stat s;
    listed one = {.name = strndup(file, n)};
    if (!one.name) return one;
    chat_path(path, directory, one.name, cache_end);
    if (stat(path, &s) == 0) one.bytes = s.st_size;
    chat_path(path, directory, one.name, chat_json_end);
    if (stat(path, &s) == 0) {
        one.bytes += s.st_size;
        one.changed = s.st_mtime;
    }
    return one;
}

static void print_listed(const listed *one) {
    char bytes[32], date[32] = "";
    struct tm when;
    if (localtime_r(&one->changed, &when)) strftime(date, sizeof date, "%Y-%m-%d %H:%M", &when);
    fprintf(stderr, "  %s  %10s  %s\n", date, format_bytes((double)one->bytes, bytes, sizeof bytes),
            make_printable(one->name));
}

void chat_list_saved(void) {
    enum { MAX_LISTED = 1000 };
    char directory[PATH_MAX];
    listed all[MAX_LISTED];
    size_t n = 0;
    if (!chat_find_directory(directory, false)) return;
    DIR *d = opendir(directory);
    for (struct dirent *e; d && n < MAX_LISTED && (e = readdir(d));) {
        if (!path_ends_in(e->d_name, chat_json_end)) continue;
        all[n] = inspect_files(directory, e->d_name, strlen(e->d_name) - strlen(chat_json_end));
        n += all[n].name != NULL;
    }
    if (d) closedir(d);
    if (n) qsort(all, n, sizeof *all, by_name);
    if (!n) fprintf(stderr, "  no conversation was saved yet\n");
    for (size_t i = 0; i < n; i++) {
        print_listed(&all[i]);
        free(all[i].name);
    }
}
