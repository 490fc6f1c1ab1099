/* SPDX-License-Identifier: Apache-2.0 */
#include "template_options.h"

#include "../chat/transcript_options.h"
#include "../command.h"
#include "../terminal/output.h"

#include <stdlib.h>

#define OPTION_STRUCT template_options

static const option_def defs[] = {
    {.name = "chat-template",
     SETS_NAME("FILE", file),
     .aliases = {"chat-template-file"},
     .help = "a Jinja template that replaces the model's own"},
    {.name = "no-chat-template",
     SETS_FLAG(none),
     .help = "use plain text, even if the model has a template"},
};

option_group template_group(template_options *o) { return OPTION_GROUP("Chat", defs, o); }

int template_check(const template_options *o) {
    if (!o->none || !o->file) return EXIT_DONE;
    return complain_usage("--chat-template and --no-chat-template exclude each other");
}

int prompt_writer_open(prompt_writer *w, const char *dir, const ag_tokenizer *tokenizer,
                       const template_options *o) {
    ag_error err;
    char *jinja = NULL;
    w->tokenizer = tokenizer;
    if (o->none) return EXIT_DONE;
    if (o->file) {
        int code = transcript_template_read(o->file, &jinja);
        if (code != EXIT_DONE) return code;
    }
    ag_status st = ag_chat_format_load(dir, tokenizer, jinja, &w->format, &err);
    const bool has_none = st == AG_NOT_FOUND && !jinja;
    free(jinja);
    if (has_none) return EXIT_DONE;
    if (st == AG_OK) st = ag_chat_create(w->format, &w->chat, &err);
    /* Fixed clock: a template that prints the date gives the same prompt every day. */
    if (st == AG_OK) ag_chat_set_clock(w->chat, 0);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}
