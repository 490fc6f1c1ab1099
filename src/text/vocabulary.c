/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a tokenizer from the lists of a GGUF file, with the same tables as from a
 * tokenizer.json. */
#include "core/alloc.h"
#include "core/fail.h"
#include "text/pre_kinds.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <string.h>

#define SPACE "\xE2\x96\x81" /* SentencePiece's space */

/* Offsets of spellings have 32 bits. */
enum { MAX_BYTES = 1 << 30 };

/* Kind of model, with defaults for keys that the file omits. */
typedef struct model_kind {
    const char *name;
    bool scored; /* merges by score any two symbols that form a token; else by the list of merges */
    bool bytes;  /* byte-level alphabet; else spaces are escaped and unknown characters become byte
                    tokens */
    bool add_bos, always_bos, add_space_prefix;
    int64_t bos, eos, unk;
} model_kind;

static const model_kind models[] = {
    {"gpt2", false, true, false, false, false, -1, -1, -1},
    {"llama", true, false, true, false, true, 1, 2, 0},
    /* Files say that it adds no BOS, but the model was always trained with one. */
    {"gemma4", false, false, true, true, false, -1, -1, -1},
};

static bool is_string(ag_source_string s, const char *expected) {
    return s.n == strlen(expected) && memcmp(s.text, expected, s.n) == 0;
}

static ag_status find_model(const ag_source_vocabulary *v, const model_kind **out, ag_error *err) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        *out = &models[i];
        if (is_string(v->model, models[i].name)) return AG_OK;
    }
    return AG_FAIL(err, UNSUPPORTED, "tokenizer model \"%.*s\" is not supported",
                   v->model.n > 60 ? 60 : (int)v->model.n, v->model.text ? v->model.text : "");
}

static int32_t type_of(const ag_source_vocabulary *v, size_t i) {
    return v->types ? v->types[i] : AG_TOKEN_NORMAL;
}

/* Returns whether token i starts or ends texts. Old files give it the type normal. */
static bool is_marker(const ag_source_vocabulary *v, size_t i) {
    int64_t id = (int64_t)i;
    if (id != v->bos && id != v->eos && id != v->eot && id != v->eom) return false;
    if (type_of(v, i) == AG_TOKEN_USER_DEFINED) return true;
    ag_source_string s = v->tokens[i];
    return s.n > 2 && ((s.text[0] == '<' && s.text[s.n - 1] == '>') ||
                       (s.text[0] == '[' && s.text[s.n - 1] == ']'));
}

/* Returns whether token i is an added token: found in text as a whole. */
static bool is_added(const ag_source_vocabulary *v, size_t i) {
    int32_t type = type_of(v, i);
    return type == AG_TOKEN_CONTROL || type == AG_TOKEN_UNKNOWN || type == AG_TOKEN_USER_DEFINED ||
           is_marker(v, i);
}

/* Returns whether token s strips the white space after it, as in Phi-3, which a GGUF file does not
 * record. The vocabulary is recognised by the name of token 32002. */
static bool strips_space_after(const ag_source_vocabulary *v, ag_source_string s) {
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    enum { PHI_3_TOKEN = 32002 };
    if (v->n_tokens <= PHI_3_TOKEN || !is_string(v->tokens[PHI_3_TOKEN], "<|placeholder1|>")) {
        return false;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (is_string(s, others[i])) return false;
    }
    return true;
}

static ag_status check_tokens(const ag_source_vocabulary *v, size_t *n_bytes, ag_error *err) {
    if (v->n_tokens > AG_VOCAB_MAX_IDS / 4) {
        return AG_FAIL(err, FORMAT, "the file has %zu tokens, at most %d are supported",
                       v->n_tokens, AG_VOCAB_MAX_IDS / 4);
    }
    *n_bytes = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        ag_source_string s = v->tokens[i];
        size_t valid = ag_utf8_valid_prefix(s.text, s.n);
        if (valid < s.n) {
            return AG_FAIL(err, FORMAT, "token %zu is not UTF-8 at byte %zu of %zu", i, valid, s.n);
        }
        if (s.n > MAX_BYTES - *n_bytes) {
            return AG_FAIL(err, FORMAT, "token %zu: the tokens have more than %d bytes in total", i,
                           MAX_BYTES);
        }
        *n_bytes += s.n;
    }
    return AG_OK;
}

/* Adds the tokens of the model and the added tokens. */
static ag_status add_tokens(ag_tokenizer *t, const ag_source_vocabulary *v, ag_error *err) {
    size_t n_bytes = 0;
    AG_TRY(check_tokens(v, &n_bytes, err));
    AG_TRY(ag_vocab_init(&t->vocab, v->n_tokens, v->n_tokens, n_bytes, err));
    for (size_t i = 0; i < v->n_tokens; i++) {
        ag_source_string s = v->tokens[i].n ? v->tokens[i] : (ag_source_string){"", 0};
        bool special = type_of(v, i) != AG_TOKEN_USER_DEFINED || is_marker(v, i);
        ag_added_token added = {
            .id = (int32_t)i, .special = special, .rstrip = strips_space_after(v, s)};
        ag_status st =
            is_added(v, i) && s.n
                ? ag_added_tokens_add(&t->added, added, s.text, s.n, NULL, &t->vocab, err)
                : ag_vocab_add(&t->vocab, s.text, s.n, (int32_t)i, AG_VOCAB_MODEL, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "token %zu", i);
    }
    return ag_added_tokens_index(&t->added, err);
}

/* Splits "a b" at the first space after the first character. */
static ag_status split_merge(ag_source_string s, size_t i, ag_bpe_pair *out, ag_error *err) {
    const char *space = s.n > 1 ? memchr(s.text + 1, ' ', s.n - 1) : NULL;
    if (!space) return AG_FAIL(err, FORMAT, "merge %zu has no space", i);
    size_t n_left = (size_t)(space - s.text);
    *out = (ag_bpe_pair){s.text, space + 1, n_left, s.n - n_left - 1};
    return AG_OK;
}

static ag_status add_merges(ag_bpe *bpe, const ag_source_vocabulary *v, ag_error *err) {
    if (v->n_merges == 0) return AG_FAIL(err, FORMAT, "tokenizer.ggml.merges is missing");
    AG_TRY(ag_bpe_reserve_merges(bpe, v->n_merges, err));
    for (size_t i = 0, n, bad; i < v->n_merges; i += n) {
        ag_bpe_pair pairs[AG_BPE_BLOCK];
        n = v->n_merges - i < AG_BPE_BLOCK ? v->n_merges - i : AG_BPE_BLOCK;
        for (size_t k = 0; k < n; k++) AG_TRY(split_merge(v->merges[i + k], i + k, &pairs[k], err));
        ag_status st = ag_bpe_add_merges(bpe, (uint32_t)i, pairs, n, &bad, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "merge %zu", i + bad);
    }
    return AG_OK;
}

static ag_status set_model(ag_tokenizer *t, const ag_source_vocabulary *v, const model_kind *m,
                           ag_error *err) {
    AG_TRY(ag_bpe_init(&t->bpe, &t->vocab, err));
    if (!m->bytes) {
        int64_t unk = v->unk >= 0 ? v->unk : m->unk;
        t->bpe.byte_fallback = true;
        t->bpe.fuse_unk = true;
        if (unk >= 0 && unk < t->vocab.n_ids) t->bpe.unk_id = (int32_t)unk;
    }
    if (!m->scored) return add_merges(&t->bpe, v, err);
    if (!v->scores) return AG_FAIL(err, FORMAT, "tokenizer.ggml.scores is missing");
    return ag_bpe_set_scores(&t->bpe, v->scores, err);
}

/* Sets up byte-level BPE with the pre-tokenizer that the file names. */
static ag_status set_byte_level(ag_tokenizer *t, const ag_pre_kind *pre, ag_error *err) {
    t->bpe.ignore_merges = pre->flags & AG_PRE_IGNORE_MERGES;
    if (pre->flags & AG_PRE_NFC) AG_TRY(ag_normalizer_add_form(&t->normalizer, AG_NFC, err));
    for (const char *const *p = pre->patterns; *p; p++) {
        AG_TRY(ag_pretokenizer_add_regex(&t->pretokenizer, *p, pre->name, AG_SPLIT_ISOLATED, false,
                                         err));
    }
    AG_TRY(ag_pretokenizer_add_bytes(&t->pretokenizer, err));
    return ag_decode_chain_add(&t->decode_chain, AG_DECODE_BYTE_LEVEL, err);
}

static ag_status set_escaped(ag_tokenizer *t, bool space_prefix, ag_error *err) {
    if (space_prefix) AG_TRY(ag_normalizer_add_prepend(&t->normalizer, SPACE, err));
    AG_TRY(ag_normalizer_add_replace(&t->normalizer, " ", SPACE, err));
    AG_TRY(ag_decode_chain_add_replace(&t->decode_chain, SPACE, " ", err));
    AG_TRY(ag_decode_chain_add(&t->decode_chain, AG_DECODE_BYTE_FALLBACK, err));
    AG_TRY(ag_decode_chain_add(&t->decode_chain, AG_DECODE_FUSE, err));
    return space_prefix ? ag_decode_chain_add_strip(&t->decode_chain, " ", 1, err) : AG_OK;
}

/* Appends the id of BOS or EOS. */
static ag_status add_bos_or_eos(ag_tokenizer *t, ag_ids *ids, const char *name, int64_t id,
                                ag_error *err) {
    if (id < 0 || id >= t->vocab.n_ids) {
        return AG_FAIL(err, FORMAT,
                       "add_%s_token is set, but %s_token_id is %lld: the vocabulary has %d tokens",
                       name, name, (long long)id, (int)t->vocab.n_ids);
    }
    return ag_ids_push(ids, (int32_t)id, err);
}

static ag_status set_bos_and_eos(ag_tokenizer *t, const ag_source_vocabulary *v,
                                 const model_kind *m, bool pre_bos, ag_error *err) {
    int64_t bos = v->bos >= 0 ? v->bos : m->bos, eos = v->eos >= 0 ? v->eos : m->eos;
    bool add_bos = v->add_bos > 0 || (m->always_bos && bos >= 0) ||
                   (v->add_bos < 0 && bos >= 0 && (m->add_bos || pre_bos));
    if (add_bos) AG_TRY(add_bos_or_eos(t, &t->postprocessor.prefix, "bos", bos, err));
    if (v->add_eos > 0) AG_TRY(add_bos_or_eos(t, &t->postprocessor.suffix, "eos", eos, err));
    return AG_OK;
}

static ag_status build(ag_tokenizer *t, const ag_source_vocabulary *v, ag_error *err) {
    const model_kind *m;
    AG_TRY(find_model(v, &m, err));
    const ag_pre_kind *pre = m->bytes ? ag_pre_find(v->pre.text, v->pre.n) : NULL;
    if (m->bytes && !pre) {
        return AG_FAIL(err, UNSUPPORTED, "pre-tokenizer \"%.*s\" is not supported",
                       v->pre.n > 60 ? 60 : (int)v->pre.n, v->pre.text);
    }
    AG_TRY(add_tokens(t, v, err));
    AG_TRY(set_model(t, v, m, err));
    if (pre) AG_TRY(set_byte_level(t, pre, err));
    else
        AG_TRY(set_escaped(
            t, v->add_space_prefix < 0 ? m->add_space_prefix : v->add_space_prefix > 0, err));
    return set_bos_and_eos(t, v, m, pre && pre->flags & AG_PRE_ADD_BOS, err);
}

ag_status ag_tokenizer_from_vocabulary(const ag_source_vocabulary *v, const char *name,
                                       ag_tokenizer **out, ag_error *err) {
    *out = NULL;
    ag_tokenizer *t = ag_calloc(1, sizeof *t);
    ag_status st = t ? build(t, v, err) : AG_FAIL(err, NOMEM, "tokenizer");
    if (st == AG_OK) *out = t;
    else ag_tokenizer_destroy(t);
    return st == AG_OK ? st : ag_error_prefix(err, st, "%s", name);
}
