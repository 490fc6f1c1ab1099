/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_options.h"

#include "command.h"
#include "eval_template.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(replay_options, name)

static bool set_keep(void *target, const char *value, char *why) {
    replay_options *o = target;
    char number[32];
    double percent;
    int64_t n;
    const size_t len = strlen(value);
    o->keeps = true;
    o->keep_ratio = 0;
    o->keep_tokens = 0;
    if (len && len < sizeof number && value[len - 1] == '%') {
        memcpy(number, value, len);
        number[len - 1] = '\0';
        if (!parse_real(number, 0.1, 100, &percent, why)) return false;
        o->keep_ratio = (float)(percent / 100);
        return true;
    }
    if (!parse_integer(value, 1, INT32_MAX, &n, why)) return false;
    o->keep_tokens = (uint32_t)n;
    return true;
}

static const option_def defs[] = {
    {.name = "replay",
     .kind = OPTION_REAL,
     .value = "SHARE",
     .offset = FIELD(share),
     .high = 1,
     .help = "when the prompt has been read, have the model repeat this share of its tokens, and "
             "keep what it needs for that, whatever is asked next; 1: the best choice, at the cost "
             "of reading the prompt twice; 0: keep everything"},
    {.name = "replay-keep",
     .kind = OPTION_CALL,
     .value = "N|N%",
     .call = set_keep,
     .help = "what stays of the prompt then: tokens in the mean over heads, or a share (default "
             "25%)"},
};

replay_options replay_defaults(void) { return (replay_options){.keep_ratio = 0.25f}; }

option_group replay_group(replay_options *o) {
    return (option_group){"KV cache", defs, sizeof defs / sizeof defs[0], o};
}

int replay_check(const replay_options *o, const eviction_options *e) {
    if (o->share == 0 && o->keeps) {
        complain("--replay-keep belongs to --replay");
        return EXIT_USAGE;
    }
    if (o->share != 0 && strcmp(eviction_policy_name(e), "none") != 0) {
        complain("--replay chooses from all that was read: leave --eviction-policy %s out",
                 eviction_policy_name(e));
        return EXIT_USAGE;
    }
    return EXIT_DONE;
}

/* ---- what announces the replay ---- */

typedef struct announcement {
    ag_ids instruction, next, suffix;
} announcement;

static void free_announcement(announcement *a) {
    ag_ids_free(&a->instruction);
    ag_ids_free(&a->next);
    ag_ids_free(&a->suffix);
}

static ag_status encode(const ag_tokenizer *t, const char *text, ag_ids *out, ag_error *err) {
    return ag_tokenizer_encode(t, text, strlen(text), 0, out, err);
}

/* What the model's template puts behind a message; a newline without one. */
static int find_suffix(const engine *e, ag_ids *out) {
    const template_options own = {.file = NULL};
    prompt_writer writer = {.tokenizer = NULL};
    written_prompt p = {.n_context = 0};
    ag_error err;
    ag_status st = AG_OK;
    int code = prompt_writer_open(&writer, e->dir, e->tokenizer, &own);
    if (code == EXIT_DONE && writer.chat) {
        st = prompt_write(&writer, "a", "", "", &p, &err);
        for (size_t i = p.n_question; st == AG_OK && i < p.ids.n; i++)
            if (!ids_add(out, p.ids.data[i])) code = complain_no_memory();
    } else if (code == EXIT_DONE) {
        st = encode(e->tokenizer, "\n", out, &err);
    }
    written_prompt_free(&p);
    prompt_writer_close(&writer);
    return st == AG_OK ? code : complain_error(&err);
}

static int announce(const engine *e, announcement *a) {
    ag_error err;
    ag_status st =
        encode(e->tokenizer, "\n\nRepeat the previous context exactly.", &a->instruction, &err);
    if (st == AG_OK) {
        st = encode(e->tokenizer,
                    "\n\nRepeat the part of the previous context exactly, starting with", &a->next,
                    &err);
    }
    return st == AG_OK ? find_suffix(e, &a->suffix) : complain_error(&err);
}

int replay_compress(const replay_options *o, const engine *e, const int32_t *ids, size_t n,
                    ag_compress_report *report) {
    announcement a = {.suffix = {.n = 0}};
    ag_error err;
    int code = engine_need_tokenizer(e, "--replay needs one");
    if (code == EXIT_DONE) code = announce(e, &a);
    ag_status st = AG_OK;
    if (code == EXIT_DONE) {
        ag_compress_params p = ag_compress_defaults();
        p.keep_ratio = o->keep_ratio;
        p.keep_tokens = o->keep_tokens;
        p.replay = (float)o->share;
        p.instruction = a.instruction.data;
        p.n_instruction = a.instruction.n;
        p.instruction_next = a.next.data;
        p.n_instruction_next = a.next.n;
        p.suffix = a.suffix.data;
        p.n_suffix = a.suffix.n;
        p.progress = progress_update;
        progress_begin("replaying the prompt");
        st = ag_session_compress(e->session, ids, n, &p, report, &err);
        progress_end();
    }
    free_announcement(&a);
    if (st == AG_CANCELLED) return EXIT_DONE;
    return st == AG_OK ? code : complain_error(&err);
}
