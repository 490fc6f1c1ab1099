/* SPDX-License-Identifier: Apache-2.0 */
/* generate --chat: the prompt is a message in the model's chat template, and the content of the
 * answer is printed. */
#include "command.h"
#include "generate.h"
#include "model/model_dir.h"
#include "support/input.h"
#include "terminal/output.h"

#include <stdlib.h>
#include <string.h>

#define OPTION_STRUCT generate_options

static const option_def defs[] = {
    {.name = "chat",
     SETS_FLAG(chat),
     .help = "the text is a message in the model's chat template; the options below need this one"},
};

option_group generate_chat_group(generate_options *o) { return OPTION_GROUP("Chat", defs, o); }

int generate_chat_check(generate_options *o) {
    const char *option = NULL;
    if (o->preset && o->transcript.system) o->chat = true;
    const char *given = transcript_options_given(&o->transcript);
    if (!o->chat && given) complain("--%s needs --chat", given);
    if (!o->chat) return given ? EXIT_USAGE : EXIT_DONE;
    if (transcript_options_check(&o->transcript) != EXIT_DONE) return EXIT_USAGE;
    if (o->prompt.ids) option = "--prompt-ids";
    if (o->prompt.parse_special) option = "--parse-special";
    if (o->prompt.no_bos) option = "--no-bos";
    if (option)
        complain("%s has no effect with --chat, which renders the prompt in the model's template",
                 option);
    else if (o->saved.load) {
        option = "--load-cache";
        complain("--chat and --load-cache exclude each other; 'antigravity chat --resume NAME' "
                 "continues a conversation");
    }
    return option ? EXIT_USAGE : EXIT_DONE;
}

static int encode(generation *g, const transcript_texts *texts) {
    ag_ids ids = {0};
    prompt *p = &g->prompt;
    int code = transcript_open(&g->transcript, g->engine.dir, g->engine.tokenizer, texts->jinja);
    if (code == EXIT_DONE && !g->transcript.has_template)
        return complain_usage(
            "%s: the model has no chat template; leave --chat out, or give a --chat-template",
            g->engine.dir);
    if (code == EXIT_DONE && texts->system)
        code = transcript_set_system(&g->transcript, texts->system);
    if (code == EXIT_DONE) code = transcript_add(&g->transcript, "user", p->text);
    if (code == EXIT_DONE) code = transcript_render(&g->transcript, &ids);
    if (code == EXIT_DONE) {
        p->ids = malloc(ids.n ? ids.n * sizeof *p->ids : 1);
        if (p->ids && ids.n) memcpy(p->ids, ids.data, ids.n * sizeof *p->ids);
        if (!p->ids) code = complain_no_memory();
        else p->n = ids.n;
    }
    ag_ids_free(&ids);
    return code;
}

/* Adds the template's stop texts to those of --stop. A constraint determines the end of its text
 * itself, and the stop texts may occur in it. */
static int add_stops(generation *g) {
    size_t n;
    generate_options *o = &g->o;
    g->n_own_stops = o->n_stop;
    if (constraint_is_set(&o->constraint)) return EXIT_DONE;
    const char *const *stops = ag_chat_format_stops(g->transcript.format, &n);
    const char **grown = realloc(o->stop, (o->n_stop + n + 1) * sizeof *grown);
    if (!grown) return complain_no_memory();
    o->stop = grown;
    for (size_t i = 0; i < n; i++) o->stop[o->n_stop++] = stops[i];
    return EXIT_DONE;
}

int generate_chat_encode(generation *g) {
    ag_error err;
    transcript_texts texts = {0};
    int code = engine_need_tokenizer(&g->engine, "--chat needs one");
    if (code == EXIT_DONE) code = input_refuse_nul(g->prompt.source, g->prompt.text, g->prompt.len);
    if (code == EXIT_DONE) code = transcript_texts_read(&texts, &g->o.transcript);
    if (code == EXIT_DONE) code = encode(g, &texts);
    transcript_texts_free(&texts);
    if (code == EXIT_DONE) code = add_stops(g);
    if (code == EXIT_DONE && !g->o.keep_special &&
        ag_chat_parser_create(g->transcript.chat, &g->parser, &err) != AG_OK)
        code = complain_error(&err);
    return code;
}

bool generate_chat_read(generation *g, const char *text, size_t len, bool at_end,
                        generate_text_fn put) {
    ag_error err;
    ag_chat_delta d;
    ag_status st = len ? ag_chat_parser_push(g->parser, text, len, &err) : AG_OK;
    if (st == AG_OK && at_end) st = ag_chat_parser_finish(g->parser, &err);
    if (st != AG_OK) complain_error(&err);
    while (st == AG_OK && ag_chat_parser_next(g->parser, &d))
        if (d.kind == AG_CHAT_DELTA_CONTENT && !put(g, d.text, d.len)) return false;
    return st == AG_OK;
}

void generate_advise(const generation *g) {
    const generate_options *o = &g->o;
    if (!g->prompt.text || o->chat || o->prompt.parse_special || o->model.quiet) return;
    if (!model_dir_is_chat(g->engine.dir, o->model.quiet)) return;
    complain("this is a chat model, but the prompt is continued as text; use --chat for its chat "
             "template, or 'antigravity chat'");
}

void generate_report_empty(const generation *g) {
    const generate_options *o = &g->o;
    const bool expects_text = o->max_tokens && g->stats.finish != AG_FINISH_CANCELLED;
    if (g->wrote_text || o->json || !expects_text || generate_is_cut_off(g)) return;
    if (g->stats.n_generated) {
        complain("the model's %zu tokens have no text: they are reasoning, or special tokens, "
                 "which --special prints",
                 g->stats.n_generated);
        return;
    }
    const bool is_chat = !o->chat && g->prompt.text && model_dir_is_chat(g->engine.dir, true);
    complain("the model generated no text%s", is_chat ? "; this is a chat model: use --chat" : "");
}

void generate_chat_free(generation *g) {
    ag_chat_parser_destroy(g->parser);
    transcript_close(&g->transcript);
}
