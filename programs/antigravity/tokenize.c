/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity tokenize: text to ids and back, without weights. */
#include "command.h"
#include "model/model_dir.h"
#include "model/prompt.h"
#include "support/json_out.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tokenize_options {
    const char *dir;
    prompt_options prompt;
    bool decode, skip_special, json, quiet;
} tokenize_options;

#define OPTION_STRUCT tokenize_options
static const option_def model_defs[] = {
    {.name = "model",
     .letter = 'm',
     SETS_NAME("MODEL", dir),
     .help = "directory with a tokenizer.json, such a file, or a GGUF file; without it the bundled "
             "demo model"},
};

static const option_def output_defs[] = {
    {.name = "decode",
     .letter = 'd',
     SETS_FLAG(decode),
     .help =
         "from ids to text: numbers separated by blanks or commas, or JSON as --json prints it"},
    {.name = "skip-special",
     SETS_FLAG(skip_special),
     .help = "with --decode: leave special tokens out of the text"},
    {.name = "json",
     SETS_FLAG(json),
     .help = "print {\"ids\": [...], \"pieces\": [...]}, and \"text\" with --decode"},
    {.name = "quiet", .letter = 'q', SETS_FLAG(quiet), .help = "do not report which model is used"},
};

/* Returns the tokens as the vocabulary spells them. */
static json_t *spell_pieces(const ag_tokenizer *t, const int32_t *ids, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        size_t len = 0;
        const char *spelling = ag_tokenizer_token(t, ids[i], &len);
        json_append(&list, json_text(spelling ? spelling : "", len));
    }
    return list;
}

/* `text` may be NULL. */
static json_t *json_tokens(const ag_tokenizer *t, const int32_t *ids, size_t n,
                           const ag_text *text) {
    json_t *object = JSON_OBJECT({"ids", json_ids(ids, n)}, {"pieces", spell_pieces(t, ids, n)});
    if (!text) return object;
    return JSON_ADD(object, {"text", json_text(text->data ? text->data : "", text->len)});
}

static int print_ids(const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%s%" PRId32, i ? " " : "", ids[i]);
    putchar('\n');
    return EXIT_DONE;
}

static int encode(prompt *p, const tokenize_options *o, const ag_tokenizer *t) {
    int code = prompt_encode(p, &o->prompt, t);
    if (code != EXIT_DONE) return code;
    if (!o->json) return print_ids(p->ids, p->n);
    return json_print(json_tokens(t, p->ids, p->n, NULL));
}

/* Converts {"ids": [1, 5]} or [1, 5] to "1 5 ", so that one parser checks all numbers. */
static int flatten_json(prompt *p) {
    json_error_t where;
    json_t *root = json_loadb(p->text, p->len, 0, &where);
    if (!root)
        return complain_failure("%s: line %d, column %d: %s", p->source, where.line, where.column,
                                where.text);
    int code = EXIT_FAILED;
    json_t *list = json_is_object(root) ? json_object_get(root, "ids") : root, *item;
    size_t i, n = 0, cap = json_array_size(list) * 21 + 1;
    char *flat = malloc(cap);
    if (!json_is_array(list)) {
        complain("%s: the JSON has no list \"ids\"", p->source);
        goto done;
    }
    if (!flat) {
        complain_no_memory();
        goto done;
    }
    flat[0] = '\0';
    json_array_foreach(list, i, item) {
        if (!json_is_integer(item)) {
            complain("%s: item %zu of \"ids\" is not a whole number", p->source, i);
            goto done;
        }
        n += (size_t)snprintf(flat + n, cap - n, "%" JSON_INTEGER_FORMAT " ",
                              json_integer_value(item));
    }
    free(p->text);
    p->text = flat;
    p->len = n;
    flat = NULL;
    code = EXIT_DONE;
done:
    free(flat);
    json_decref(root);
    return code;
}

static int read_ids(prompt *p) {
    if (!p->text) return EXIT_DONE; /* --prompt-ids */
    char message[MESSAGE_SIZE];
    size_t blank = strspn(p->text, " \t\r\n");
    if (p->text[blank] == '{' || p->text[blank] == '[') {
        int code = flatten_json(p);
        if (code != EXIT_DONE) return code;
    }
    if (!parse_integers(p->text, p->len, 0, INT32_MAX, &p->ids, &p->n, message))
        return complain_failure("%s: %s", p->source, message);
    return EXIT_DONE;
}

/* Returns how many ids at the start are those that encoding puts before every text. */
static size_t count_bos(const ag_tokenizer *t, const prompt *p) {
    ag_ids bos = {0};
    size_t n = 0;
    if (ag_tokenizer_encode(t, "", 0, AG_ENCODE_BOS, &bos, NULL) == AG_OK)
        while (n < bos.n && n < p->n && bos.data[n] == p->ids[n]) n++;
    ag_ids_free(&bos);
    return n;
}

static int print_text(const ag_text *text) {
    output_write(text->data ? text->data : "", text->len);
    /* A pipe gets the exact bytes; a terminal needs a newline before the shell's prompt. */
    if (isatty(STDOUT_FILENO) && (!text->len || text->data[text->len - 1] != '\n'))
        output_write("\n", 1);
    return EXIT_DONE;
}

static int decode(prompt *p, const tokenize_options *o, const ag_tokenizer *t) {
    int code = read_ids(p);
    if (code != EXIT_DONE) return code;
    ag_error err;
    ag_text text = {0};
    size_t skip = o->prompt.no_bos ? count_bos(t, p) : 0;
    const int32_t *ids = p->ids + skip;
    size_t n = p->n - skip;
    if (ag_tokenizer_decode(t, ids, n, !o->skip_special, &text, &err) != AG_OK)
        code = complain_error(&err);
    else if (o->json) code = json_print(json_tokens(t, ids, n, &text));
    else code = print_text(&text);
    ag_text_free(&text);
    return code;
}

int command_tokenize(int argc, char **argv) {
    tokenize_options o = {0};
    command_line line = {
        .usage = "tokenize [-m MODEL] [TEXT | -p TEXT | -f FILE] [OPTION]...",
        .description = "Prints the token ids of a text on one line; text that is read is used\n"
                       "byte for byte. With --decode it prints the text of ids, given by -p, -f\n"
                       "or --prompt-ids.",
        .examples = "  antigravity tokenize -p \"Once upon a time\"\n"
                    "  antigravity tokenize -m ~/models/Llama-3.2-1B --json < story.txt\n"
                    "  echo 790,650,258,469 | antigravity tokenize --decode",
        .groups = {OPTION_GROUP("Model", model_defs, &o), prompt_group(&o.prompt),
                   OPTION_GROUP("Output", output_defs, &o)},
        .max_operands = 1,
        .hint = prompt_operand_hint,
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = prompt_operand(&line, &o.prompt);
    if (code != EXIT_DONE) return code;
    if (o.prompt.ids && !o.decode) return complain_usage("--prompt-ids needs --decode");
    interrupt_install();
    ag_error err;
    prompt p = {0};
    ag_tokenizer *t = NULL;
    char *dir = NULL;
    code = prompt_read(&p, &o.prompt);
    if (code == EXIT_DONE) code = model_dir_find(o.dir, o.quiet, &dir);
    if (code == EXIT_DONE && ag_tokenizer_load(dir, &t, &err) != AG_OK) code = complain_error(&err);
    if (code == EXIT_DONE) code = o.decode ? decode(&p, &o, t) : encode(&p, &o, t);
    ag_tokenizer_destroy(t);
    free(dir);
    prompt_free(&p);
    return code;
}
