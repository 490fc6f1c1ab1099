/* SPDX-License-Identifier: Apache-2.0 */
#include "sampling_options.h"

#include "clock.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPTION_STRUCT sampling_options

sampling_options sampling_options_defaults(void) {
    ag_sampler_params d = ag_sampler_defaults();
    return (sampling_options){
        .temperature = (double)d.temperature,
        .dynamic_range = (double)d.dynamic_range,
        .dynamic_exponent = (double)d.dynamic_exponent,
        .top_n_sigma = (double)d.top_n_sigma,
        .typical_p = (double)d.typical_p,
        .top_p = (double)d.top_p,
        .min_p = (double)d.min_p,
        .xtc_probability = (double)d.xtc_probability,
        .xtc_threshold = (double)d.xtc_threshold,
        .presence_penalty = (double)d.presence_penalty,
        .frequency_penalty = (double)d.frequency_penalty,
        .repetition_penalty = (double)d.repetition_penalty,
        .top_k = d.top_k,
        .repetition_window = d.repetition_window,
        .dry_multiplier = (double)d.dry_multiplier,
        .dry_base = (double)d.dry_base,
        .dry_allowed_length = d.dry_allowed_length,
        .dry_window = -1,
    };
}

sampling_options sampling_options_unset(void) {
    return (sampling_options){
        .temperature = NAN,
        .dynamic_range = NAN,
        .dynamic_exponent = NAN,
        .top_n_sigma = NAN,
        .typical_p = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .xtc_probability = NAN,
        .xtc_threshold = NAN,
        .repetition_penalty = NAN,
        .presence_penalty = NAN,
        .frequency_penalty = NAN,
        .dry_multiplier = NAN,
        .dry_base = NAN,
        .top_k = UINT32_MAX,
        .repetition_window = SAMPLING_UNSET,
        .dry_window = SAMPLING_UNSET,
    };
}

void sampling_options_free(sampling_options *o) {
    free(o->bias);
    o->bias = NULL;
    o->n_bias = 0;
    ag_dry_breakers_destroy(o->dry_breakers);
    o->dry_breakers = NULL;
}

static void show_seed(const void *target, char *buf, size_t cap) {
    const sampling_options *o = target;
    if (o->has_seed) snprintf(buf, cap, "%" PRIu64, o->seed);
}

static void show_bias(const void *target, char *buf, size_t cap) {
    const sampling_options *o = target;
    if (o->n_bias) snprintf(buf, cap, "of %zu tokens", o->n_bias);
}

static bool set_seed(void *target, const char *value, char *message) {
    sampling_options *o = target;
    int64_t seed;
    if (!parse_integer(value, -1, INT64_MAX, &seed, message)) return false;
    o->has_seed = seed >= 0;
    o->seed = (uint64_t)seed;
    return true;
}

/* Parses "ID:BIAS", "ID+BIAS" or "ID-BIAS". The bias "-inf" forbids the token. */
static bool parse_bias(const char *text, ag_logit_bias *out, char *message) {
    size_t n = strspn(text, "0123456789");
    char id_text[32];
    int64_t id;
    double bias;
    if (!n || n >= sizeof id_text || !text[n] || !strchr(":+-", text[n]))
        return reject(message, "'%.60s' is not of the form ID:BIAS, such as 15:-2.5 or 15:-inf",
                      text);
    memcpy(id_text, text, n);
    id_text[n] = '\0';
    if (!parse_integer(id_text, 0, INT32_MAX, &id, message)) return false;
    const char *value = text + n + (text[n] != '-');
    if (!strcmp(value, "-inf")) bias = -INFINITY;
    else if (!parse_real(value, -(double)FLT_MAX, (double)FLT_MAX, &bias, message)) return false;
    *out = (ag_logit_bias){(int32_t)id, (float)bias};
    return true;
}

static bool add_bias(void *target, const char *value, char *message) {
    sampling_options *o = target;
    ag_logit_bias bias;
    if (!parse_bias(value, &bias, message)) return false;
    ag_logit_bias *grown = realloc(o->bias, (o->n_bias + 1) * sizeof *grown);
    if (!grown) return reject(message, "out of memory");
    o->bias = grown;
    o->bias[o->n_bias++] = bias;
    return true;
}

/* Adds a breaker to those given so far; "none" removes all. */
static bool add_breaker(void *target, const char *value, char *message) {
    sampling_options *o = target;
    const size_t n = strlen(value);
    ag_dry_breakers_destroy(o->dry_breakers);
    o->dry_breakers = NULL;
    o->no_dry_texts = !strcmp(value, "none");
    if (o->no_dry_texts) o->n_dry_texts = 0;
    if (o->no_dry_texts) return true;
    if (n < 1 || n > MAX_BREAKER_BYTES)
        return reject(message, "it has %zu bytes; it must have 1 to %d", n, MAX_BREAKER_BYTES);
    if (o->n_dry_texts == MAX_DRY_BREAKERS)
        return reject(message, "given more than %d times", MAX_DRY_BREAKERS);
    strcpy(o->dry_texts[o->n_dry_texts++], value);
    return true;
}

/* Lower limit: 0 would leave top-p no token, and the repetition penalty divides by its value. */
#define ABOVE_ZERO 1e-6

static const option_def defs[] = {
    {.name = "temperature",
     SETS_REAL("X", temperature, 0, 1000),
     .aliases = {"temp"},
     .help = "randomness; 0: always the likeliest token, without a penalty unless one is given"},
    {.name = "top-k",
     SETS_U32("N", top_k, 0, INT32_MAX),
     .help = "choose among the N likeliest tokens; 0: all"},
    {.name = "top-p",
     SETS_REAL("X", top_p, ABOVE_ZERO, 1),
     .help = "of these, the fewest with a total probability of X; 1: all"},
    {.name = "min-p",
     SETS_REAL("X", min_p, 0, 1),
     .help = "no token below X times the probability of the likeliest; 0: off"},
    {.name = "typical",
     SETS_REAL("X", typical_p, 0, 1),
     .aliases = {"typical-p"},
     .help = "the tokens nearest to the entropy, with a total probability of X; 1: all"},
    {.name = "top-n-sigma",
     SETS_REAL("X", top_n_sigma, -1, 1000),
     .aliases = {"top-nsigma"},
     .help = "no logit more than X standard deviations below the largest; 0: off"},
    {.name = "xtc-probability",
     SETS_REAL("X", xtc_probability, 0, 1),
     .help = "how often the top choices are removed, all but the last; 0: never"},
    {.name = "xtc-threshold",
     SETS_REAL("X", xtc_threshold, 0, 1),
     .help = "the least probability of a top choice; above 0.5: off"},
    {.name = "dynatemp-range",
     SETS_REAL("X", dynamic_range, 0, 1000),
     .help = "move the temperature by up to X, with the entropy; 0: off"},
    {.name = "dynatemp-exp",
     SETS_REAL("X", dynamic_exponent, 0, 1000),
     .aliases = {"dynatemp-exponent"},
     .help = "exponent of the entropy"},
    {.name = "repetition-penalty",
     SETS_REAL("X", repetition_penalty, ABOVE_ZERO, 1000),
     .aliases = {"repeat-penalty"},
     .help = "make recent tokens less likely; 1: off"},
    {.name = "repetition-window",
     SETS_I64("N", repetition_window, -1, INT32_MAX),
     .aliases = {"repeat-last-n"},
     .help = "how many tokens are recent; -1: the entire context"},
    {.name = "presence-penalty",
     SETS_REAL("X", presence_penalty, -1000, 1000),
     .help = "subtract X from the logit of every recent token"},
    {.name = "frequency-penalty",
     SETS_REAL("X", frequency_penalty, -1000, 1000),
     .help = "subtract X for each time that a recent token occurs"},
    {.name = "dry-multiplier",
     SETS_REAL("X", dry_multiplier, 0, 1000),
     .help = "DRY: penalty of a token that continues a repetition of several tokens; 0: off"},
    {.name = "dry-base",
     SETS_REAL("X", dry_base, 1, 1000),
     .help = "DRY: factor of the penalty for each further token"},
    {.name = "dry-allowed-length",
     SETS_U32("N", dry_allowed_length, 1, INT32_MAX),
     .help = "DRY: longest repetition without a penalty"},
    {.name = "dry-penalty-last-n",
     SETS_I64("N", dry_window, -1, INT32_MAX),
     .help = "DRY: tokens to search for repetitions; -1: the entire context"},
    {.name = "dry-sequence-breaker",
     CALLS("TEXT", add_breaker),
     .help = "DRY: no repetition goes across TEXT; may be given several times; none: no text "
             "(default newline, colon, quotation mark, asterisk)"},
    {.name = "logit-bias",
     CALLS("ID:BIAS", add_bias),
     .show = show_bias,
     .aliases = {"--l"},
     .help = "add BIAS to the logit of token ID, -inf forbids it; may be given several times; also "
             "ID+BIAS and ID-BIAS"},
    {.name = "seed",
     .letter = 's',
     CALLS("N", set_seed),
     .show = show_seed,
     .help = "the same seed gives the same text, for any -t; without it, or "
             "with -1, the seed is drawn and printed"},
};

option_group sampling_group(sampling_options *o) { return OPTION_GROUP("Sampling", defs, o); }

/* Draws 32 bits, so that JSON readers with double numbers keep the seed exact. glibc has
 * getrandom() since 2.25 only. */
uint64_t sampling_draw_seed(void) {
    uint64_t seed;
    if (syscall(SYS_getrandom, &seed, sizeof seed, 0) != (long)sizeof seed)
        seed = (uint64_t)(clock_s() * 1e9) * 0x9e3779b97f4a7c15u + (uint64_t)getpid();
    return seed >> 32;
}

const char *const sampling_usual_breakers[N_USUAL_BREAKERS] = {"\n", ":", "\"", "*"};

ag_status sampling_prepare(sampling_options *o, const ag_tokenizer *t, ag_error *err) {
    if (o->dry_multiplier == 0 || o->no_dry_texts || o->dry_breakers) return AG_OK;
    const char *given[MAX_DRY_BREAKERS];
    const size_t n = o->n_dry_texts;
    for (size_t i = 0; i < n; i++) given[i] = o->dry_texts[i];
    return ag_dry_breakers_create(t, n ? given : sampling_usual_breakers, n ? n : N_USUAL_BREAKERS,
                                  &o->dry_breakers, err);
}

uint32_t sampling_window(int64_t n, uint32_t n_context) {
    const uint32_t max = n_context < AG_SAMPLER_MAX_WINDOW ? n_context : AG_SAMPLER_MAX_WINDOW;
    return n < 0 || n > max ? max : (uint32_t)n;
}

ag_sampler_params sampling_params(sampling_options *o, uint32_t n_context) {
    if (!o->has_seed) o->seed = sampling_draw_seed();
    return (ag_sampler_params){
        .logit_bias = o->bias,
        .n_logit_bias = o->n_bias,
        .repetition_penalty = (float)o->repetition_penalty,
        .repetition_window = sampling_window(o->repetition_window, n_context),
        .presence_penalty = (float)o->presence_penalty,
        .frequency_penalty = (float)o->frequency_penalty,
        .dry_multiplier = (float)o->dry_multiplier,
        .dry_base = (float)o->dry_base,
        .dry_allowed_length = o->dry_allowed_length,
        .dry_window = sampling_window(o->dry_window, n_context),
        .dry_breakers = o->dry_breakers,
        .temperature = (float)o->temperature,
        .dynamic_range = (float)o->dynamic_range,
        .dynamic_exponent = (float)o->dynamic_exponent,
        .top_n_sigma = o->top_n_sigma > 0 ? (float)o->top_n_sigma : 0,
        .typical_p = (float)o->typical_p,
        .xtc_probability = (float)o->xtc_probability,
        .xtc_threshold = (float)o->xtc_threshold,
        .top_k = o->top_k,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .seed = o->seed,
    };
}
