/* SPDX-License-Identifier: Apache-2.0 */
#include "saved_cache.h"

#include "command.h"
#include "support/input.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPTION_STRUCT saved_options

static const option_def defs[] = {
    {.name = "save-cache",
     SETS_NAME("FILE", save),
     .help = "afterwards save the conversation to FILE: its KV cache and its tokens"},
    {.name = "load-cache",
     SETS_NAME("FILE", load),
     .help = "continue the conversation in FILE; the prompt is added to it and may be empty"},
    {.name = "prompt-cache",
     SETS_NAME("FILE", prompt),
     .help =
         "reuse the tokens of the prompt that FILE holds; if there are more, or no FILE, write it"},
};

option_group saved_group(saved_options *o) { return OPTION_GROUP("Saved cache", defs, o); }

/* Checks early that the file can be written. */
static int check_writable(const char *path) {
    struct stat s;
    if (stat(path, &s) == 0 && !S_ISREG(s.st_mode))
        return complain_failure("%s: exists and is not a regular file", path);
    if (lstat(path, &s) == 0 && S_ISLNK(s.st_mode)) return EXIT_DONE; /* the target is elsewhere */
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0; /* keep the slash: "/" is a directory */
    if (n >= sizeof dir) return EXIT_DONE;
    memcpy(dir, path, n);
    dir[n] = '\0';
    if (access(n ? dir : ".", W_OK | X_OK) == 0) return EXIT_DONE;
    return complain_failure("%s: cannot write: %s", path, strerror(errno));
}

int saved_check(const saved_options *o) {
    if (o->load && o->prompt)
        return complain_usage("--load-cache and --prompt-cache exclude each other");
    int code = o->load ? input_check("load-cache", o->load, NULL) : EXIT_DONE;
    if (code == EXIT_DONE && o->save) code = check_writable(o->save);
    if (code == EXIT_DONE && o->prompt) code = check_writable(o->prompt);
    return code;
}

void saved_free(saved_cache *k) { free(k->ids.data); }

static int restore(saved_cache *k, const char *path, const engine *e, bool verbose, ag_error *err) {
    ag_ids ids = {0};
    if (ag_session_restore(e->session, path, e->tokenizer, &ids, err) != AG_OK) return EXIT_FAILED;
    *err = (ag_error){.status = AG_OK};
    bool copied = true;
    for (size_t i = 0; copied && i < ids.n; i++) copied = ids_add(&k->ids, ids.data[i]);
    ag_ids_free(&ids);
    if (!copied) return complain_no_memory();
    uint32_t position = ag_session_position(e->session);
    k->ids_are_unknown = k->ids.n != position;
    if (verbose) complain("%s: %" PRIu32 " tokens", path, position);
    return EXIT_DONE;
}

static int load(saved_cache *k, const char *path, const engine *e, const prompt *p, bool verbose) {
    ag_error err;
    int code = restore(k, path, e, verbose, &err);
    if (code != EXIT_DONE && err.status != AG_OK) return complain_error(&err);
    if (code == EXIT_DONE && !p->n && !ag_session_logits(e->session))
        return complain_usage("the prompt is empty, and %s has no token to start from", path);
    return code;
}

/* Finds the common prefix of the prompt and the session's tokens, and truncates the session to
 * it. */
static int match(saved_cache *k, const engine *e, const prompt *p) {
    ag_error err;
    size_t n = 0;
    while (n < k->ids.n && n < p->n && k->ids.data[n] == p->ids[n]) n++;
    bool all_match = n == k->ids.n;
    /* The prompt's last token must be read again for its logits. */
    if (n == p->n && !(all_match && ag_session_logits(e->session))) n--;
    /* After evictions a truncated cache differs from a fresh one. */
    if (n < k->ids.n && ag_session_kv_budget(e->session)) n = 0;
    /* Layers with a window or a state may lack what the next token needs. */
    if (n < ag_session_oldest_reachable(e->session)) n = 0;
    k->ids.n = k->n_reused = n;
    k->ids_are_unknown = false;
    if (!n) ag_session_reset(e->session);
    else if (ag_session_truncate(e->session, (uint32_t)n, &err) != AG_OK)
        return complain_error(&err);
    return EXIT_DONE;
}

/* Reuses the file's cache for the prompt. A cache with other settings is ignored and replaced
 * later. A damaged or foreign file is an error and is not overwritten. */
static int reuse(saved_cache *k, const char *path, const engine *e, const prompt *p,
                 const model_options *m) {
    ag_error err;
    int code = restore(k, path, e, m->verbose, &err);
    bool is_incompatible = err.status == AG_UNSUPPORTED || err.status == AG_LIMIT;
    if (code != EXIT_DONE && is_incompatible) {
        if (!m->quiet) complain("%s; the prompt is read again and replaces it", err.msg);
        return EXIT_DONE;
    }
    if (code != EXIT_DONE) return err.status == AG_OK ? code : complain_error(&err);
    code = match(k, e, p);
    if (code == EXIT_DONE && m->verbose)
        complain("%s: %zu of %zu prompt tokens are cached", path, k->n_reused, p->n);
    return code;
}

int saved_begin(saved_cache *k, const saved_options *o, const engine *e, const prompt *p,
                ag_sampler *sampler, const model_options *m) {
    int code = EXIT_DONE;
    if (o->load) code = load(k, o->load, e, p, m->verbose);
    else if (o->prompt && access(o->prompt, F_OK) == 0) code = reuse(k, o->prompt, e, p, m);
    for (size_t i = 0; code == EXIT_DONE && i < k->ids.n; i++)
        ag_sampler_accept_prompt(sampler, k->ids.data[i]);
    for (size_t i = k->n_reused; code == EXIT_DONE && i < p->n; i++) {
        if (!ids_add(&k->ids, p->ids[i])) code = complain_no_memory();
    }
    return code;
}

static int save(const saved_cache *k, const char *path, const engine *e) {
    ag_error err;
    uint32_t position = ag_session_position(e->session);
    size_t n = k->ids_are_unknown || k->ids.n < position ? 0 : position;
    ag_status status = ag_session_save(e->session, path, e->tokenizer, k->ids.data, n, &err);
    return status == AG_OK ? EXIT_DONE : complain_error(&err);
}

int saved_after_prompt(saved_cache *k, const saved_options *o, const engine *e, const prompt *p) {
    if (!o->prompt || k->n_reused == p->n) return EXIT_DONE;
    return save(k, o->prompt, e);
}

int saved_end(saved_cache *k, const saved_options *o, const engine *e, bool verbose) {
    if (!o->save) return EXIT_DONE;
    ag_error err;
    /* The last token was sampled but not consumed. */
    bool pending = !k->ids_are_unknown && k->ids.n == (size_t)ag_session_position(e->session) + 1;
    if (pending && ag_session_capacity_left(e->session)) {
        /* A late signal may cancel one step: try twice. */
        interrupt_unregister(e->session);
        ag_status status = AG_CANCELLED;
        for (int i = 0; i < 2 && status == AG_CANCELLED; i++)
            status = ag_session_decode(e->session, k->ids.data[k->ids.n - 1], &err);
        if (status != AG_OK) return complain_error(&err);
    }
    int code = save(k, o->save, e);
    if (code == EXIT_DONE && verbose)
        complain("%s: %" PRIu32 " tokens saved", o->save, ag_session_position(e->session));
    return code;
}
