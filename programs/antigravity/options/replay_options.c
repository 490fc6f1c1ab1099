/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_options.h"

#include "../command.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"

#include <antigravity/chat.h>
#include <antigravity/serving.h>
#include <math.h>
#include <string.h>

#define OPTION_STRUCT replay_options

static bool set_keep(void *target, const char *value, char *message) {
    replay_options *o = target;
    char number[32];
    double percent;
    int64_t n;
    const size_t len = strlen(value);
    o->has_keep = true;
    o->keep_ratio = 0;
    o->keep_tokens = 0;
    if (len && len < sizeof number && value[len - 1] == '%') {
        memcpy(number, value, len);
        number[len - 1] = '\0';
        if (!parse_real(number, 0.1, 100, &percent, message)) return false;
        o->keep_ratio = (float)(percent / 100);
        return true;
    }
    if (!parse_integer(value, 1, INT32_MAX, &n, message)) return false;
    o->keep_tokens = (uint32_t)n;
    return true;
}

static const option_def defs[] = {
    {.name = "replay",
     SETS_REAL("SHARE", share, 0, 1),
     .help = "after reading the prompt, let the model repeat this share of its tokens, and keep "
             "only the tokens it needs for that; 1: best quality, at the cost of reading the "
             "prompt twice; 0: keep everything"},
    {.name = "replay-keep",
     CALLS("N|N%", set_keep),
     .help = "size of the prompt's cache then: tokens (mean over heads), or a share (default "
             "25%)"},
};

static const option_def idle_defs[] = {
    {.name = "replay",
     SETS_REAL("SHARE", share, 0, 1),
     .help = "while no request runs, let the model repeat this share of each idle conversation, "
             "and keep only the tokens it needs for that; 0: keep everything"},
    {.name = "replay-keep",
     CALLS("N|N%", set_keep),
     .help = "size of a conversation's cache then: tokens (mean over heads), or a share "
             "(default 25%)"},
    {.name = "replay-after",
     SETS_U32("SECONDS", after_s, 0, 86400),
     .help = "idle time before the replay; none if three quarters of --memory are used"},
};

static const option_def saved_defs[] = {
    {.name = "replay",
     SETS_REAL("SHARE", share, 0, 1),
     .help = "for /save, let the model repeat this share of the conversation, and write only the "
             "tokens it needs for that; the open conversation is reduced likewise after a turn if "
             "memory is short (--memory-threshold-mb); 0: write and keep everything"},
    {.name = "replay-keep",
     CALLS("N|N%", set_keep),
     .help = "size of the cache then: tokens (mean over heads), or a share (default "
             "25%)"},
};

replay_options replay_defaults(void) {
    return (replay_options){.keep_ratio = 0.25f, .after_s = ag_serving_defaults().replay_after_s};
}

option_group replay_group(replay_options *o) { return OPTION_GROUP("Replay", defs, o); }

option_group replay_idle_group(replay_options *o) { return OPTION_GROUP("Replay", idle_defs, o); }

option_group replay_saved_group(replay_options *o) { return OPTION_GROUP("Replay", saved_defs, o); }

int replay_check_keep(const replay_options *o) {
    if (o->share != 0 || !o->has_keep) return EXIT_DONE;
    return complain_usage("--replay-keep needs --replay");
}

int replay_check(const replay_options *o, const eviction_options *e) {
    if (o->share != 0 && strcmp(eviction_policy_name(e), "none") != 0)
        return complain_usage("--replay and --eviction-policy %s exclude each other",
                              eviction_policy_name(e));
    return replay_check_keep(o);
}

/* ---- the replay ---- */

ag_status replay_request(const engine *e, ag_replay_request *out, ag_error *err) {
    ag_chat_format *format = NULL;
    ag_status st = ag_chat_format_load(e->dir, e->tokenizer, NULL, &format, err);
    if (st == AG_OK || st == AG_NOT_FOUND)
        st = ag_replay_request_make(e->tokenizer, format, out, err);
    ag_chat_format_destroy(format);
    return st;
}

replay_options replay_of(const replay_options *o, size_t n_read) {
    replay_options scaled = *o;
    const uint32_t share = (uint32_t)ceil((double)o->keep_ratio * (double)n_read);
    if (o->keep_ratio > 0) scaled.keep_tokens = share;
    scaled.keep_ratio = 0;
    return scaled;
}

int replay_compress(const replay_options *o, const engine *e, ag_session *session,
                    const int32_t *ids, size_t n, ag_compress_report *report) {
    ag_replay_request request = {.suffix = {.n = 0}};
    ag_error err;
    const int code = engine_need_tokenizer(e, "--replay needs one");
    if (code != EXIT_DONE) return code;
    ag_status st = replay_request(e, &request, &err);
    if (st == AG_OK) {
        ag_compress_params p = ag_replay_request_params(&request);
        p.keep_ratio = o->keep_ratio;
        p.keep_tokens = o->keep_tokens;
        p.replay = (float)o->share;
        p.progress = progress_update;
        progress_begin("replaying what was read");
        st = ag_session_compress(session, ids, n, &p, report, &err);
        progress_end();
    }
    ag_replay_request_free(&request);
    if (st == AG_CANCELLED) return EXIT_DONE;
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}
