/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that obey a rule: a JSON schema, any JSON object, a regular expression, a list of choices,
 * or a grammar. A constraint says which tokens may follow; ag_sampler_constrain() (sampler.h) makes
 * a sampler ask it. docs/constraints.md tells what is supported. */
#ifndef ANTIGRAVITY_CONSTRAIN_H
#define ANTIGRAVITY_CONSTRAIN_H

#include <antigravity/sampler.h>
#include <antigravity/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A vocabulary prepared for constraints: made once for a tokenizer, shared by all constraints. Any
 * number of threads may make constraints with one at the same time. */
typedef struct ag_constraint_vocab ag_constraint_vocab;

/* n_vocab: ids of the model (ag_model_info.n_vocab); the mask has so many bits. eos_ids: what may
 * end a text, at least one. Special tokens are never part of a text. Copies what it needs of t.
 * AG_INVALID for ids outside. */
AG_API ag_status ag_constraint_vocab_create(const ag_tokenizer *t, size_t n_vocab,
                                            const int32_t *eos_ids, size_t n_eos,
                                            ag_constraint_vocab **out, ag_error *err);
/* After every constraint made with it. */
AG_API void ag_constraint_vocab_destroy(ag_constraint_vocab *v);

typedef enum ag_constraint_kind {
    AG_CONSTRAINT_JSON_SCHEMA, /* JSON that obeys a schema: draft 2020-12, and drafts 4 to 7 */
    AG_CONSTRAINT_JSON_OBJECT, /* any JSON object */
    AG_CONSTRAINT_REGEX,       /* all of the text matches: ECMAScript's syntax, flag u */
    AG_CONSTRAINT_CHOICES,     /* one of the choices */
    AG_CONSTRAINT_GRAMMAR,     /* a grammar of rules, of which "root" is the text: GBNF */
} ag_constraint_kind;

/* The space between the parts of JSON. There is none before "," and ":" or around the value. */
typedef enum ag_json_spacing {
    AG_JSON_NEAT,      /* none, one space, or a line break and up to 40 spaces or tabs */
    AG_JSON_COMPACT,   /* none */
    AG_JSON_ANY_SPACE, /* as many spaces, tabs and line breaks as there may be in JSON */
} ag_json_spacing;

/* Of the properties that a schema names. Others always come behind them, or, in any order,
 * anywhere.
 */
typedef enum ag_json_order {
    AG_JSON_DECLARED_ORDER, /* as the schema has them: what follows is predictable */
    AG_JSON_ANY_ORDER,      /* objects with minProperties or maxProperties excepted */
} ag_json_order;

typedef struct ag_constraint_params {
    ag_constraint_kind kind;
    const char *text; /* [len] the schema, the regular expression or the grammar, UTF-8 */
    size_t len;
    const char *const *choices; /* [n_choices] UTF-8 */
    size_t n_choices;
    ag_json_spacing spacing; /* NEAT */
    ag_json_order order;     /* DECLARED_ORDER */
    /* Beyond these a constraint is AG_LIMIT: what is hostile fails within a second. */
    size_t max_instructions; /* 2^20 of the compiled grammar */
    size_t max_states;       /* 2^16 of one automaton; those of the text as it goes on, 16 times */
    /* 2^24 steps of making one automaton, and of one token: to accept it and to make the mask that
     * follows. 8 times as many for all tokens of a constraint and its clones, until one is reset.
     * Steps do not depend on the machine or on other threads. */
    size_t max_work;
    size_t max_readings;    /* 1024 ways to read a text, at any place of it */
    size_t max_mask_bytes;  /* 64 MiB of masks that are kept; beyond, all are made anew */
    size_t max_state_bytes; /* 128 MiB of states of the text, and as many of its open rules */
    uint64_t reserved[3];   /* 0: what later versions ask for */
} ag_constraint_params;
AG_API ag_constraint_params ag_constraint_defaults(ag_constraint_kind kind);

/* An ag_constraint is where a text stands. It and its clones belong to one thread at a time.
 *
 * The vocabulary is borrowed and must outlive the constraint; params are not needed afterwards.
 * AG_FORMAT and AG_UNSUPPORTED name what is wrong and where; AG_INVALID if no text obeys. */
AG_API ag_status ag_constraint_create(const ag_constraint_vocab *v,
                                      const ag_constraint_params *params, ag_constraint **out,
                                      ag_error *err);
/* Another text that stands where c's does: for several answers. What is compiled is shared. */
AG_API ag_status ag_constraint_clone(const ag_constraint *c, ag_constraint **out, ag_error *err);
AG_API void ag_constraint_destroy(ag_constraint *c);
/* Back to the beginning of a text. */
AG_API ag_status ag_constraint_reset(ag_constraint *c, ag_error *err);

/* Bit id % 32 of word id / 32 is set if the token may follow: (*mask)[(n_vocab + 31) / 32], valid
 * until the next call. The ids that end a text are set where it may end. AG_INVALID if no token of
 * the vocabulary goes on. */
AG_API ag_status ag_constraint_mask(ag_constraint *c, const uint32_t **mask, ag_error *err);
/* The token is part of the text. AG_INVALID if it may not follow: the text then stands where it
 * stood. */
AG_API ag_status ag_constraint_accept(ag_constraint *c, int32_t id, ag_error *err);
/* The text may end here; has ended, with an id that ends it. */
AG_API bool ag_constraint_may_end(const ag_constraint *c);
AG_API bool ag_constraint_has_ended(const ag_constraint *c);

/* Appends the bytes that follow in any case, `most` at most: none where there is a choice or the
 * text may end. */
AG_API ag_status ag_constraint_forced_text(ag_constraint *c, size_t most, ag_text *out,
                                           ag_error *err);
/* The same as tokens, for a draft: other tokens may spell the same text, so a model is asked which,
 * but for these it can be asked at once. What may be the beginning of a longer token is left out.
 */
AG_API ag_status ag_constraint_forced(ag_constraint *c, size_t most, ag_ids *out, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
