/* SPDX-License-Identifier: Apache-2.0 */
/* Slash commands. */
#include "chat.h"

#include "../command.h"
#include "../terminal/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat_verb {
    const char *name, *argument, *help;
    int (*run)(chat *c, const char *argument); /* "" if none */
} chat_verb;

static void print_help(void);

static int help(chat *c, const char *argument) {
    (void)c, (void)argument;
    print_help();
    return EXIT_DONE;
}

static int change_system(chat *c, const char *argument) {
    if (!*argument) {
        fprintf(stderr, "  %s\n",
                c->transcript.system ? c->transcript.system : "there is no system prompt");
        return EXIT_DONE;
    }
    const bool none = !strcmp(argument, "-") || !strcmp(argument, "\"\"");
    char *before = c->transcript.system ? strdup(c->transcript.system) : NULL;
    uint32_t n;
    if (c->transcript.system && !before) return complain_no_memory();
    int code = transcript_set_system(&c->transcript, none ? NULL : argument);
    if (code == EXIT_DONE) code = chat_find_protected(c, &n);
    if (code == EXIT_DONE) code = chat_open_session(c, n);
    if (code != EXIT_DONE) transcript_set_system(&c->transcript, before);
    free(before);
    if (code == EXIT_DONE && c->transcript.n)
        chat_note(c, "the conversation will be read again %s", none ? "without one" : "with it");
    return code;
}

static int clear(chat *c, const char *argument) {
    (void)argument;
    transcript_truncate(&c->transcript, 0);
    chat_forget(c);
    chat_note(c, "the conversation is empty now");
    return EXIT_DONE;
}

/* Returns the index of the message that begins the newest turn; transcript.n if there is none. */
static size_t newest_turn(const chat *c) {
    const size_t n = transcript_n_turns(&c->transcript);
    return n ? transcript_turn(&c->transcript, n - 1) : c->transcript.n;
}

static int undo(chat *c, const char *argument) {
    int64_t n = 1;
    char message[MESSAGE_SIZE];
    const size_t n_turns = transcript_n_turns(&c->transcript);
    if (*argument && !parse_integer(argument, 1, INT32_MAX, &n, message))
        return complain_failure("/undo N: %s", message);
    if (!n_turns) return complain_failure("/undo: there is no turn to remove");
    if ((size_t)n > n_turns)
        return complain_failure("/undo %" PRId64 ": the conversation has %zu turns", n, n_turns);
    const size_t remaining = n_turns - (size_t)n, at = transcript_turn(&c->transcript, remaining);
    const uint32_t first = c->transcript.messages[at].first;
    transcript_truncate(&c->transcript, at);
    c->attempt = 0;
    chat_note(c, "removed; %zu turn%s left", remaining, remaining == 1 ? " is" : "s are");
    return chat_go_back(c, first);
}

static int retry(chat *c, const char *argument) {
    (void)argument;
    const size_t at = newest_turn(c);
    if (at == c->transcript.n) return complain_failure("/retry: there is no message to answer");
    if (c->o.sampling.temperature == 0)
        chat_note(
            c,
            "at temperature 0 the answer stays the same; /set temperature 0.8 allows another one");
    transcript_truncate(&c->transcript, at + 1);
    c->attempt++;
    int code = chat_answer(c);
    if (code != EXIT_DONE && c->transcript.n == at + 1) transcript_truncate(&c->transcript, at);
    chat_show_call(c);
    return code;
}

static int save_over(chat *c, const char *argument) {
    if (!*argument && !c->name)
        return complain_usage("/save NAME: the conversation has no name yet");
    if (*argument && !chat_name_is_valid(argument))
        return complain_usage("'%s': invalid name; it must not hold '/' or begin with '.' or '-'",
                              argument);
    int code = chat_save(c, *argument ? argument : c->name);
    if (code == EXIT_DONE)
        chat_note(c, "saved as %s; 'antigravity chat --resume' continues it", c->name);
    return code;
}

static int save(chat *c, const char *argument) {
    const bool is_other = *argument && chat_name_is_valid(argument) && !chat_is_named(c, argument);
    if (!is_other || !chat_is_saved(argument)) return save_over(c, argument);
    return complain_usage("'%s': the conversation exists; /save! %s replaces it", argument,
                          argument);
}

static int load(chat *c, const char *argument) {
    if (!*argument) {
        chat_list_saved();
        return EXIT_DONE;
    }
    int code = EXIT_DONE;
    if (c->name && c->transcript.n && !chat_is_named(c, argument)) code = chat_save(c, c->name);
    if (code != EXIT_DONE) return code;
    code = chat_name_is_valid(argument) ? chat_load(c, argument, NULL) : EXIT_USAGE;
    if (code == EXIT_USAGE) complain("'%s': no such conversation; /load lists them", argument);
    else if (code == EXIT_DONE)
        chat_note(c, "%s: %zu turns", c->name, transcript_n_turns(&c->transcript));
    return code;
}

static int show_stats(chat *c, const char *argument) {
    (void)argument;
    chat_show_stats(c);
    return EXIT_DONE;
}

static int show_kv(chat *c, const char *argument) {
    (void)argument;
    chat_show_kv(c);
    return EXIT_DONE;
}

/* Accepts "temperature 0.2" and "temperature=0.2". */
static int set(chat *c, const char *argument) {
    char name[64], message[MESSAGE_SIZE] = "";
    const size_t n = strcspn(argument, " =");
    const char *value = argument + n;
    value += strspn(value, " =");
    snprintf(name, sizeof name, "%.*s", (int)n, argument);
    if (!*argument) {
        chat_print_settings(c);
        return EXIT_DONE;
    }
    if (!(*value ? chat_set(c, name, value, message) : chat_describe_setting(c, name, message)))
        return complain_failure("/set %s: %s", name, message);
    if (*value) return chat_apply_thinking(c);
    fprintf(stderr, "  %s %s\n", make_printable(name), message);
    return EXIT_DONE;
}

static int model(chat *c, const char *argument) {
    if (*argument) return chat_change_model(c, argument);
    chat_show_model(c);
    return EXIT_DONE;
}

static int multiline(chat *c, const char *argument) {
    (void)argument;
    c->o.multiline = !c->o.multiline;
    if (c->o.multiline) chat_note(c, "a message ends with a line that is only a dot");
    else chat_note(c, "each line is a message; a line that ends in \\ continues in the next");
    return EXIT_DONE;
}

static int image(chat *c, const char *argument) {
    (void)c, (void)argument;
    return complain_failure("/image: this build has no vision; models get text only");
}

static int quit(chat *c, const char *argument) {
    (void)argument;
    c->leaving = true;
    return EXIT_DONE;
}

static const chat_verb verbs[] = {
    {"help", NULL, "this list", help},
    {"system", "[TEXT]", "show or change the system prompt, - for none; the messages stay",
     change_system},
    {"model", "[MODEL]", "show the model, or continue with another one", model},
    {"clear", NULL, "forget the messages", clear},
    {"undo", "[N]", "remove the last message and its answer, or the last N", undo},
    {"retry", NULL, "answer the last message again", retry},
    {"save", "[NAME]", "save the conversation and its cache; then also when leaving", save},
    {"save!", "NAME", "the same, replacing a conversation of that name", save_over},
    {"load", "[NAME]", "continue a saved conversation; without a name: list them", load},
    {"stats", NULL, "speed, tokens, memory, settings", show_stats},
    {"kv", NULL, "tokens in the KV cache by turn, and evictions", show_kv},
    {"set", "[NAME VALUE]", "change temperature, top_k, top_p, min_p, seed, max_tokens, ...", set},
    {"multiline", NULL, "turn multi-line messages on or off", multiline},
    {"image", "FILE", "not in this build", image},
    {"quit", NULL, "leave; also /exit, /bye, Ctrl-D, or Ctrl-C twice", quit},
    {"exit", NULL, NULL, quit},
    {"bye", NULL, NULL, quit},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void print_help(void) {
    char usage[40];
    for (size_t i = 0; i < N_VERBS; i++) {
        const chat_verb *v = &verbs[i];
        if (!v->help) continue;
        snprintf(usage, sizeof usage, "/%s%s%s", v->name, v->argument ? " " : "",
                 v->argument ? v->argument : "");
        fprintf(stderr, "  %-20s %s\n", usage, v->help);
    }
    fprintf(stderr, "  %-20s %s\n", "//...", "a message that begins with a slash");
}

/* Returns the verb of that name, else the only verb with that prefix. A verb that continues a
 * matching verb does not count as another. */
static const chat_verb *find_verb(const char *name, size_t n) {
    const chat_verb *found = NULL;
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strncmp(verbs[i].name, name, n) != 0) continue;
        if (!verbs[i].name[n]) return &verbs[i];
        if (found && strncmp(verbs[i].name, found->name, strlen(found->name)) != 0) return NULL;
        if (!found) found = &verbs[i];
    }
    return n ? found : NULL;
}

/* Writes the verbs with that prefix, "/save, /set", to text[cap] and returns their number. */
static size_t list_verbs(const char *name, size_t n, char *text, size_t cap) {
    size_t n_verbs = 0, at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < N_VERBS && at < cap; i++) {
        if (strncmp(verbs[i].name, name, n) != 0) continue;
        at += (size_t)snprintf(text + at, cap - at, "%s/%s", n_verbs++ ? ", " : "", verbs[i].name);
    }
    return n_verbs;
}

int chat_command(chat *c, const char *line) {
    char fitting[256];
    const char *name = line + 1;
    const size_t n = strcspn(name, " \t\n");
    const char *argument = name + n;
    argument += strspn(argument, " \t\n");
    const chat_verb *v = find_verb(name, n);
    if (v && *argument && !v->argument)
        return complain_failure("/%s takes no argument, but was given '%.60s'", v->name, argument);
    if (v) {
        const int code = v->run(c, argument);
        return code == EXIT_USAGE ? EXIT_FAILED : code; /* the command line was right */
    }
    if (n && list_verbs(name, n, fitting, sizeof fitting) > 1)
        return complain_failure("'/%.*s' could be %s", (int)n, name, fitting);
    return complain_failure("unknown command '/%.*s'; /help lists them, and a message that begins "
                            "with a slash is written with two",
                            (int)n, name);
}
