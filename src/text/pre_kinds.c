/* SPDX-License-Identifier: Apache-2.0 */
#include "text/pre_kinds.h"

#include "text/pretokenizer.h"

#include <stdbool.h>
#include <string.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define NO_LETTER "[^\\r\\n\\p{L}\\p{N}]?"
#define SYMBOLS(suffix) " ?[^\\s\\p{L}\\p{N}]+" suffix
#define BREAKS "|\\s*[\\r\\n]+"
#define SPACES "|\\s+(?!\\S)|\\s+"

/* Pattern of cl100k and its descendants, by their treatment of numbers. */
#define CL100K(numbers) \
    CONTRACTION "|" NO_LETTER "\\p{L}+|" numbers "|" SYMBOLS("[\\r\\n]*") BREAKS SPACES
/* Pattern of o200k: splits words where a capital follows a small letter. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(contraction, numbers)                                                         \
    NO_LETTER UPPER "*" LOWER "+" contraction "|" NO_LETTER UPPER "+" LOWER "*" contraction \
                    "|" numbers "|" SYMBOLS("[\\r\\n/]*") BREAKS SPACES
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
/* Letters with two cases, in the pattern of DeepSeek LLM. */
#define CASED_LETTERS                                                                         \
    "\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}" \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"     \
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"            \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"                \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}"            \
    "\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"            \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}"    \
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"   \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"            \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"    \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"    \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"              \
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"             \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"            \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"            \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"        \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"    \
    "\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_WORDS                                      \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"

static const char *const gpt2[] = {AG_REGEX_GPT2, NULL};
static const char *const digits_gpt2[] = {"\\p{N}", AG_REGEX_GPT2, NULL};
static const char *const cl100k[] = {CL100K("\\p{N}{1,3}"), NULL};
static const char *const qwen2[] = {CL100K("\\p{N}"), NULL};
static const char *const qwen35[] = {
    CONTRACTION "|" NO_LETTER
                "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BREAKS SPACES,
    NULL};
static const char *const o200k[] = {O200K(CONTRACTION "?", "\\p{N}{1,3}"), NULL};
static const char *const tekken[] = {O200K("", "\\p{N}"), NULL};
static const char *const minicpm5[] = {"\\p{N}{1,3}", CL100K("\\p{N}+"), NULL};
static const char *const falcon[] = {"[\\p{P}$+<=>^~|`]+", AG_REGEX_GPT2, "[0-9][0-9][0-9]", NULL};
/* For files without a name or with "default". */
static const char *const plain[] = {"[\\p{P}$+<=>^~|]+", AG_REGEX_GPT2, "\\p{N}+",
                                    "[0-9][0-9][0-9]", NULL};
static const char *const deepseek_llm[] = {
    "[\\r\\n]",
    "\\s?[A-Za-z" CASED_LETTERS "]+",
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    "\\s+$",
    DEEPSEEK_CJK,
    "\\p{N}+",
    NULL};
static const char *const deepseek_coder[] = {"[\\r\\n]",   "\\s?\\p{L}+", "\\s?\\p{P}+",
                                             DEEPSEEK_CJK, "\\p{N}",      NULL};
static const char *const deepseek_v3[] = {
    "\\p{N}{1,3}", CJK, DEEPSEEK_WORDS "| ?[\\p{P}\\p{S}]+[\\r\\n]*" BREAKS SPACES, NULL};
static const char *const bloom[] = {
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+", NULL};
static const char *const viking[] = {
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+", "\\p{N}", NULL};
static const char *const seed_coder[] = {
    CONTRACTION "|" NO_LETTER "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" BREAKS SPACES, NULL};

static const ag_pre_kind kinds[] = {
    {"", 0, plain},
    {"default", 0, plain},
    {"gpt-2", 0, gpt2},
    {"phi-2", 0, gpt2},
    {"mpt", AG_PRE_NFC, gpt2},
    {"olmo", AG_PRE_NFC, gpt2},
    {"jais", 0, gpt2},
    {"exaone4", 0, gpt2},
    {"gigachat", 0, gpt2},
    {"mellum", 0, gpt2},
    {"trillion", 0, gpt2},
    {"granite-docling", 0, gpt2},
    {"starcoder", 0, digits_gpt2},
    {"refact", 0, digits_gpt2},
    {"command-r", AG_PRE_NFC, digits_gpt2},
    {"smollm", 0, digits_gpt2},
    {"codeshell", 0, digits_gpt2},
    {"exaone", 0, digits_gpt2},
    {"minerva-7b", 0, digits_gpt2},
    {"mellum2", 0, digits_gpt2},
    {"llama-bpe", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"llama3", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"llama-v3", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"falcon3", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"falcon-h1", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"pixtral", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"lfm2", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, cl100k},
    {"dbrx", 0, cl100k},
    {"smaug-bpe", 0, cl100k},
    {"chatglm-bpe", 0, cl100k},
    {"glm4", AG_PRE_IGNORE_MERGES, cl100k},
    {"qwen2", AG_PRE_NFC, qwen2},
    {"deepseek-r1-qwen", 0, qwen2},
    {"stablelm2", 0, qwen2},
    {"hunyuan", 0, qwen2},
    {"megrez", 0, qwen2},
    {"grok-2", 0, qwen2},
    {"solar-open", 0, qwen2},
    {"qwen35", 0, qwen35},
    {"gpt-4o", 0, o200k},
    {"llama4", 0, o200k},
    {"kanana2", 0, o200k},
    {"minimax-m2", 0, o200k},
    {"tekken", AG_PRE_IGNORE_MERGES | AG_PRE_ADD_BOS, tekken},
    {"minicpm5", AG_PRE_IGNORE_MERGES, minicpm5},
    {"falcon", 0, falcon},
    {"deepseek-llm", 0, deepseek_llm},
    {"deepseek-coder", 0, deepseek_coder},
    {"deepseek-v3", 0, deepseek_v3},
    {"hunyuan-dense", 0, deepseek_v3},
    {"joyai-llm", 0, deepseek_v3},
    {"bloom", 0, bloom},
    {"gpt3-finnish", 0, bloom},
    {"poro-chat", 0, bloom},
    {"viking", 0, viking},
    {"seed-coder", 0, seed_coder},
};

const ag_pre_kind *ag_pre_find(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].name) != n) continue;
        if (n == 0 || memcmp(kinds[i].name, name, n) == 0) return &kinds[i];
    }
    return NULL;
}

static bool are_equal(const char *const *a, const char *const *b) {
    while (*a && *b && !strcmp(*a, *b)) a++, b++;
    return !*a && !*b;
}

const char *ag_pre_name(const char *const *patterns, unsigned flags) {
    const unsigned compared = AG_PRE_IGNORE_MERGES | AG_PRE_NFC;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if ((kinds[i].flags & compared) != (flags & compared) || !kinds[i].name[0]) continue;
        if (are_equal(kinds[i].patterns, patterns)) return kinds[i].name;
    }
    return NULL;
}
