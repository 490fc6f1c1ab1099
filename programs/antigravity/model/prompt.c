/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt.h"

#include "../command.h"
#include "../support/input.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPTION_STRUCT prompt_options
static const option_def defs[] = {
    {.name = "prompt",
     .letter = 'p',
     SETS_TEXT("TEXT", text),
     .help = "the text; without one it is read from standard input"},
    {.name = "prompt-file",
     .letter = 'f',
     SETS_NAME("FILE", file),
     .aliases = {"file"},
     .help = "the text from a file; - is standard input"},
    {.name = "prompt-ids", SETS_TEXT("N,N,...", ids), .help = "token ids instead of a text"},
    {.name = "parse-special",
     SETS_FLAG(parse_special),
     .help = "special tokens written in the text, such as <|eot_id|>, become tokens"},
    {.name = "no-bos", SETS_FLAG(no_bos), .help = "leave out the token that begins a text"},
    {.name = "escape",
     .letter = 'e',
     SETS_FLAG(escape),
     .help = "\\n, \\t, \\r, \\\\, \\\" and \\' in the text are escape sequences"},
};

option_group prompt_group(prompt_options *o) { return OPTION_GROUP("Prompt", defs, o); }

static int parse_ids(prompt *p, const char *text) {
    char message[MESSAGE_SIZE] = "the list is empty";
    bool parsed = parse_integers(text, strlen(text), 0, INT32_MAX, &p->ids, &p->n, message);
    if (parsed && p->n) return EXIT_DONE;
    return complain_usage("--prompt-ids: %s", message);
}

const char prompt_operand_hint[] = ": a text of several words is put in quotes";

int prompt_operand(const command_line *line, prompt_options *o) {
    if (!line->n_operands) return EXIT_DONE;
    const char *word = line->operands[0];
    struct stat s;
    if (stat(word, &s) == 0 && S_ISDIR(s.st_mode))
        return complain_usage("'%s' is a directory, not a text; a model is given with -m %s", word,
                              word);
    if (o->text) return complain_usage("two prompts given: '%s' and --prompt; give one", word);
    o->text = word;
    return EXIT_DONE;
}

/* Replaces escape sequences in place. Unknown sequences stay. */
static void unescape(prompt *p) {
    static const char letters[] = "ntr\\\"'", characters[] = "\n\t\r\\\"'";
    size_t n = 0;
    for (size_t i = 0; i < p->len; i++) {
        const char *at =
            p->text[i] == '\\' && i + 1 < p->len ? memchr(letters, p->text[i + 1], 6) : NULL;
        p->text[n++] = at ? characters[at - letters] : p->text[i];
        i += at != NULL;
    }
    p->text[n] = '\0';
    p->len = n;
}

static int read_text(prompt *p, const prompt_options *o) {
    if (o->text) {
        p->len = strlen(o->text);
        p->text = strdup(o->text);
        return p->text ? EXIT_DONE : complain_no_memory();
    }
    if (!o->file && isatty(STDIN_FILENO))
        return complain_usage("no prompt: give -p TEXT or a file, or pipe one in; see --help");
    return input_read(o->file, &p->text, &p->len);
}

int prompt_read(prompt *p, const prompt_options *o) {
    p->source = o->file && strcmp(o->file, "-") != 0 ? o->file : "the prompt";
    if ((o->text != NULL) + (o->file != NULL) + (o->ids != NULL) > 1)
        return complain_usage(
            "several prompts given: give one of --prompt, --prompt-file and --prompt-ids");
    if (o->ids) return parse_ids(p, o->ids);
    int code = read_text(p, o);
    if (code == EXIT_DONE && o->escape) unescape(p);
    return code;
}

int prompt_encode(prompt *p, const prompt_options *o, const ag_tokenizer *t) {
    ag_error err;
    ag_ids ids = {0};
    unsigned flags = (o->no_bos ? 0 : AG_ENCODE_BOS) |
                     (o->parse_special ? (unsigned)AG_ENCODE_PARSE_SPECIAL : 0);
    if (!interrupt_pause()) {
        complain("interrupted");
        return EXIT_INTERRUPTED;
    }
    ag_status status = ag_tokenizer_encode(t, p->text, p->len, flags, &ids, &err);
    interrupt_resume();
    if (status != AG_OK) {
        complain("%s: %s", p->source, err.msg);
        ag_ids_free(&ids);
        return EXIT_FAILED;
    }
    int code = EXIT_DONE;
    p->n = ids.n;
    p->ids = malloc(ids.n ? ids.n * sizeof *p->ids : 1);
    if (!p->ids) code = complain_no_memory();
    else if (ids.n) memcpy(p->ids, ids.data, ids.n * sizeof *p->ids);
    ag_ids_free(&ids);
    return code;
}

int prompt_check_ids(const prompt *p, uint32_t n_vocab) {
    for (size_t i = 0; i < p->n; i++) {
        if (p->ids[i] >= 0 && (uint32_t)p->ids[i] < n_vocab) continue;
        complain("token %zu of %s: %" PRId32 " is out of range; ids are 0 to %" PRIu32, i,
                 p->source, p->ids[i], n_vocab - 1);
        return p->text ? EXIT_FAILED : EXIT_USAGE;
    }
    return EXIT_DONE;
}

void prompt_free(prompt *p) {
    free(p->text);
    free(p->ids);
    *p = (prompt){0};
}

bool ids_add(ag_ids *ids, int32_t id) {
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 256;
        int32_t *grown = realloc(ids->data, cap * sizeof *grown);
        if (!grown) return false;
        ids->data = grown;
        ids->cap = cap;
    }
    ids->data[ids->n++] = id;
    return true;
}
