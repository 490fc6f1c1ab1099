/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity chat: the command and its conversation loop. */
#include "chat.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void chat_note(const chat *c, const char *fmt, ...) {
    char line[1024];
    va_list args;
    if (c->o.model.quiet) return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    output_flush();
    fprintf(stderr, "  (%s)\n", make_printable(line));
}

/* ---- beginning ---- */

/* Parses the options again with the model's sampling settings as defaults. */
static int read_model_sampling(chat *c, int argc, char **argv) {
    ag_error err;
    ag_sampler_params params = ag_sampler_defaults();
    if (ag_chat_sampling_load(c->engine.dir, &params, &c->model_sampling, &err) != AG_OK)
        return complain_error(&err);
    if (!c->model_sampling.len) return EXIT_DONE;
    chat_options_free(&c->o);
    int code = chat_parse(&c->o, argc, argv, &params);
    return code == OPTIONS_RUN ? EXIT_DONE : code;
}

/* Opens the transcript. Reports all faults of model and template before the weights are read. */
static int open_transcript(chat *c) {
    int code = engine_need_tokenizer(&c->engine, "a conversation needs one");
    if (code == EXIT_DONE) code = transcript_texts_read(&c->texts, &c->o.transcript);
    if (code == EXIT_DONE) code = chat_open_transcript(c);
    if (code == EXIT_DONE && c->texts.system)
        code = transcript_set_system(&c->transcript, c->texts.system);
    return code;
}

int chat_open_transcript(chat *c) {
    const engine *e = &c->engine;
    int code = transcript_open(&c->transcript, e->dir, e->tokenizer, c->texts.jinja);
    if (code == EXIT_DONE) code = chat_open_tools(c);
    if (code == EXIT_DONE) code = chat_apply_thinking(c);
    return code;
}

int chat_apply_thinking(chat *c) {
    static const char name[] = "enable_thinking";
    ag_error err;
    const char *value = c->o.thinking == CHAT_ON    ? "true"
                        : c->o.thinking == CHAT_OFF ? "false"
                                                    : NULL;
    ag_status st =
        ag_chat_set_variable(c->transcript.chat, name, value, value ? strlen(value) : 0, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

/* Loads the conversation of --resume if it exists. */
static int resume_conversation(chat *c) {
    if (!c->o.resume) return EXIT_DONE;
    int code = chat_load(c, c->o.resume, c->texts.system);
    if (code != EXIT_USAGE) return code;
    const int lock = chat_lock(c->o.resume);
    code = lock < 0 ? EXIT_FAILED : chat_take_name(c, c->o.resume, lock);
    if (code == EXIT_DONE) chat_note(c, "new conversation %s; it is saved when you leave", c->name);
    return code;
}

static int load(chat *c, int argc, char **argv) {
    engine *e = &c->engine;
    if (c->o.resume && !chat_name_is_valid(c->o.resume))
        return complain_usage(
            "--resume: '%s': invalid name; it must not hold '/' or begin with '.' or '-'",
            c->o.resume);
    int code = engine_inspect(e, &c->o.model);
    if (code == EXIT_DONE) code = read_model_sampling(c, argc, argv);
    if (code == EXIT_DONE) code = open_transcript(c);
    if (code != EXIT_DONE) return code;
    c->n_context = context_length(&c->o.model, &e->info);
    c->own_prefix = c->o.model.eviction.params.protected_prefix !=
                    eviction_options_defaults().params.protected_prefix;
    code = chat_check_context(c);
    if (code != EXIT_DONE) return code;
    chat_draw_seed(c);
    code = chat_load_model(c);
    return code == EXIT_DONE ? resume_conversation(c) : code;
}

/* ---- the conversation ---- */

static bool ends_in_backslash(const char *text) {
    const size_t n = strlen(text);
    return n && text[n - 1] == '\\';
}

/* Appends `line` to `lines` and frees it. Returns NULL after reporting that memory is short. */
static char *join_lines(char *lines, char *line, bool in_one) {
    if (!lines) return line;
    const size_t n = strlen(lines), n_prefix = in_one ? n - 1 : n; /* without the backslash */
    char *joined = realloc(lines, n + strlen(line) + 2);
    if (joined) {
        joined[n_prefix] = '\n';
        strcpy(joined + n_prefix + 1, line);
    } else {
        free(lines);
        complain_no_memory();
    }
    free(line);
    return joined;
}

/* Reads a message of one or more lines. Command lines are never part of a message. */
static line_event read_message(const chat *c, char **message) {
    *message = NULL;
    for (;;) {
        char *line;
        const bool many = c->o.multiline;
        const line_event e = line_read(c->lines, *message ? "| " : many ? ">> " : "> ", &line);
        if (e == LINE_END && *message) return LINE_TEXT;
        if (e != LINE_TEXT) {
            const bool typed = *message != NULL;
            free(*message);
            *message = NULL;
            return typed && e == LINE_INTERRUPTED ? LINE_DROPPED : e;
        }
        if (many && !strcmp(line, ".")) {
            free(line);
            if (!*message) *message = strdup("");
            return LINE_TEXT;
        }
        const bool is_command = !*message && line[0] == '/' && line[1] != '/';
        *message = join_lines(*message, line, !many);
        if (!*message) return LINE_END;
        if (is_command || (!many && !(c->is_terminal && ends_in_backslash(*message))))
            return LINE_TEXT;
    }
}

static bool is_blank(const char *text) { return !text[strspn(text, " \t\r\n")]; }

/* Handles a message or a command. */
static int dispatch(chat *c, const char *text) {
    if (is_blank(text)) return EXIT_DONE;
    if (text[0] == '/' && text[1] != '/') return chat_command(c, text);
    const char *message = text[0] == '/' ? text + 1 : text;
    return chat_awaits_result(c) ? chat_give_result(c, message) : chat_send(c, message);
}

static int handle_line(chat *c, const char *text) {
    line_reader_begin_answer(c->lines);
    const int code = dispatch(c, text);
    if (code == EXIT_DONE && !c->leaving && !interrupted()) chat_free_memory(c);
    line_reader_end_answer(c->lines);
    return code;
}

/* Returns whether the conversation continues. On a terminal it continues after failures. */
static bool continues(const chat *c, int *code) {
    if (output_failed() || c->leaving) return false;
    if (*code == EXIT_DONE) return true;
    if (*code == EXIT_INTERRUPTED && !interrupt_forget()) return false;
    if (!c->is_terminal) return false;
    *code = EXIT_DONE;
    return true;
}

/* Handles Ctrl-C at an empty line: the first one prints a note, the second one in a row leaves.
 * Returns whether to stay. */
static bool warn_before_leaving(const chat *c, bool *warned) {
    if (!interrupt_forget() || *warned || !c->is_terminal) return false;
    chat_note(c, "Ctrl-C again leaves, as does Ctrl-D; /help lists the commands");
    *warned = true;
    return true;
}

static int converse(chat *c) {
    int code = c->o.first ? handle_line(c, c->o.first) : EXIT_DONE;
    bool warned = false;
    while (continues(c, &code)) {
        char *text;
        const line_event e = read_message(c, &text);
        if (e == LINE_END) break;
        if (e == LINE_REFUSED) {
            code = EXIT_FAILED;
            continue;
        }
        if (e == LINE_DROPPED) warned = false; /* text was typed since the warning */
        if (e != LINE_TEXT && warn_before_leaving(c, &warned)) continue;
        if (e != LINE_TEXT) return interrupted() || !c->is_terminal ? EXIT_INTERRUPTED : EXIT_DONE;
        warned = false;
        code = handle_line(c, text);
        free(text);
        /* A stopped answer stays in the conversation. */
        if (code == EXIT_DONE && interrupted() && (!interrupt_forget() || !c->is_terminal))
            code = EXIT_INTERRUPTED;
        if (code == EXIT_INTERRUPTED && !c->is_terminal) break;
    }
    return code;
}

static void greet(const chat *c) {
    if (!c->transcript.has_template)
        chat_note(c, c->o.model.dir
                         ? "this model has no chat template: it continues your text"
                         : "the bundled model only tells fairy tales: begin one, and it continues");
    if (c->is_terminal || c->o.model.verbose) chat_note(c, "seed %" PRIu64, c->o.sampling.seed);
    if (!c->is_terminal) return;
    if (c->transcript.n)
        chat_note(c, "%s: %zu turn(s) so far", c->name, transcript_n_turns(&c->transcript));
    else chat_note(c, "/help lists the commands");
}

static int run(chat *c) {
    c->lines = line_reader_open(c->is_terminal, !c->o.no_history);
    if (!c->lines) return complain_no_memory();
    greet(c);
    if (c->is_terminal && !line_reader_is_edited(c->lines))
        chat_note(c, "without libedit: lines have neither history nor editing keys");
    chat_show_call(c);
    int code = converse(c);
    line_reader_close(c->lines);
    c->lines = NULL;
    if (!c->name || !c->transcript.n) return code;
    const int saved = chat_save(c, c->name);
    return code == EXIT_DONE ? saved : code;
}

static void close_chat(chat *c) {
    constraint_close(&c->constraint);
    transcript_close(&c->transcript);
    draft_close(&c->draft);
    engine_close(&c->engine);
    ag_text_free(&c->model_sampling);
    free(c->consumed.data);
    transcript_texts_free(&c->texts);
    free(c->tools_text);
    free(c->model_name);
    chat_drop_name(c);
    chat_options_free(&c->o);
}

int command_chat(int argc, char **argv) {
    chat c = {.leaving = false};
    int code = chat_parse(&c.o, argc, argv, NULL);
    if (code == OPTIONS_RUN) {
        const char *plain = getenv("NO_COLOR");
        c.is_terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
        c.is_dimmed = isatty(STDOUT_FILENO) && !(plain && plain[0]);
        interrupt_install();
        interrupt_silence();
        code = load(&c, argc, argv);
        if (code == EXIT_DONE) code = run(&c);
    }
    close_chat(&c);
    return code;
}
