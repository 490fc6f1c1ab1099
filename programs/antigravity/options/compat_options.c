/* SPDX-License-Identifier: Apache-2.0 */
#include "compat_options.h"

#include <string.h>

#define FETCH "fetch it with 'antigravity pull ORG/NAME[:QUANT]' or a URL, then use -m NAME"
#define CHAT "use 'antigravity chat', or 'generate --chat' for one question"
#define SAMPLERS "choose tokens with --temperature, --top-k, --top-p and --min-p"
#define SELF_EXTEND "use --rope-scaling yarn with --rope-scale N"
#define ONE_DEVICE "a model runs on one device: choose it with --device"
#define GRAMMAR "constraints of generate, chat and serve: --json-schema, --grammar, --regex"
#define ADAPTER "adapters are not supported: merge it into the model first"
#define DRAFT \
    "the length of drafts is adapted: leave it out (--speculate, --draft-max, --draft-model)"
#define LOGGING "use -q for fewer messages and -v for more"
#define SERVER "'antigravity serve' answers over HTTP"

/* `names`: one or more words, each between blanks. */
typedef struct compat_entry {
    const char *names, *text;
} compat_entry;

static const compat_entry unsupported[] = {
    {" -hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr --docker-repo ",
     FETCH},
    {" -cnv --conversation -i --interactive -if --interactive-first "
     "-st --single-turn --in-prefix --in-suffix --reasoning-format --reasoning-budget ",
     CHAT},
    {" -tb --threads-batch -tbd ",
     "one number of threads reads the prompt and generates: use -t N (--threads)"},
    {" -mg --main-gpu -dev --device-index ", "use --device N|NAME, with -b opencl"},
    {" -sm --split-mode -ts --tensor-split -ot --override-tensor -cmoe --cpu-moe -ncmoe "
     "--n-cpu-moe --rpc ",
     ONE_DEVICE},
    {" -nkvo --no-kv-offload ", "use --no-gpu-attn, with -b opencl"},
    {" --numa --prio --poll --cpu-strict --cpu-range -Cr ",
     "use --cpu-mask to choose the cores that may be used"},
    {" -co --color ", "the text is not coloured: leave it out"},
    {" --display-prompt ", "use --echo to print the prompt"},
    {" --verbose-prompt ", "'antigravity tokenize' shows the tokens of a prompt"},
    {" --log-disable -lv --verbosity --log-verbosity --no-perf --log-file --log-colors "
     "--log-prefix --log-timestamps --perf ",
     LOGGING},
    {" --mirostat --mirostat-lr --mirostat-ent --samplers --sampling-seq --sampler-seq --tfs "
     "--penalize-nl ",
     SAMPLERS},
    {" -gan --grp-attn-n -gaw --grp-attn-w ", SELF_EXTEND},
    {" --override-kv ", "the model's files are used as they are; --rope-... change its positions"},
    {" --grammar --grammar-file -j --json-schema -jf --json-schema-file ", GRAMMAR},
    {" --lora --lora-scaled --lora-base --control-vector ", ADAPTER},
    {" --draft-min --draft-p-min -ngld --gpu-layers-draft -cd --ctx-size-draft ", DRAFT},
    {" --prompt-cache-all --prompt-cache-ro ",
     "--prompt-cache keeps the prompt, --save-cache the prompt and the answer"},
    {" -np --parallel ", "only 'antigravity bench' and 'serve' decode sequences together"},
    {" --host --port --api-key ", SERVER},
    {" -nocb --no-cont-batching -dt --defrag-thold --swa-full --no-context-shift "
     "--context-shift -kvu --kv-unified ",
     "the KV cache is managed by --eviction-policy"},
    {" --no-flash-attn -nfa ", "flash attention cannot be turned off: leave it out"},
    {" --infill --spm-infill --rerank --mmproj --image ",
     "this version generates text from text only"},
    {" --max-new-tokens --max_new_tokens --max_tokens --num-predict --max-length ",
     "use -n N (--max-tokens)"},
    {" --num-ctx --max-model-len --max_model_len --context-length ", "use -c N (--max-seq-len)"},
    {" --num-thread --num-threads --nthreads ", "use -t N (--threads)"},
    {" --memory ",
     "only 'antigravity serve' limits its memory: use -c N, --kv-type or --kv-budget for a smaller "
     "KV cache, --weights for smaller weights"},
    {" --weights-cache ", "removed: use 'antigravity quantize' once instead"},
    {" --dtype --quantization --load-in-8bit --load-in-4bit ", "use --weights TYPE"},
    {" --kv-cache-dtype ", "use --kv-type TYPE"},
    {" --gpu --gpus --cuda --tensor-parallel-size ", "use -b opencl; 'antigravity devices' lists "
                                                     "the backends"},
};

/* Replaces rows of `unsupported` for 'antigravity serve'. */
static const compat_entry unsupported_by_server[] = {
    {" --api-key ", "write keys to a file for --api-key-file, or set ANTIGRAVITY_API_KEY"},
    {" --preset ", "a request chooses a preset: it names it as its model"},
    {" --timeout -to ", "use --read-timeout, --write-timeout and --request-timeout"},
    {" --no-webui --no-slots ", "the page and /slots cannot be turned off: leave it out"},
    {" --props ",
     "GET /props is always answered, and its settings cannot be changed: leave it out"},
    {" -n --predict --n-predict --max-tokens -s --seed --temp --temperature --top-k --top-p "
     "--min-p "
     "--typical --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --samplers "
     "--mirostat -l --logit-bias --ignore-eos -r --reverse-prompt --grammar --grammar-file -j "
     "--json-schema -jf --json-schema-file -sys --system --system-prompt ",
     "a request sets it, or the preset that it names as its model"},
    {" -md --model-draft --draft-model --draft --draft-n --draft-max --draft-min --draft-p-min "
     "--speculate ",
     "the server decodes without drafts: leave it out"},
    {" --reasoning-format ", "reasoning is always separated from the answer: leave it out"},
    {" --reasoning-budget ",
     "use --chat-template-kwargs '{\"enable_thinking\": false}' to turn reasoning off"},
    {" --slot-save-path ", "use --prefix-dir to write cached sessions to disk"},
    {" --no-cache-prompt --cache-reuse ", "use --prefix-memory N; 0 caches no session"},
};

/* `text`: the values that are accepted; "": no value; NUMBER: one number. */
#define NUMBER "0123456789"
static const compat_entry ignored[] = {
    {" -fa --flash-attn ", " on auto 1 true "},
    {" --keep ", NUMBER},
    {" --no-display-prompt --no-warmup -no-cnv --no-conversation --simple-io --mmap --no-mmap "
     "--mlock --no-escape --jinja -cb --cont-batching --embedding --embeddings --metrics --slots "
     "--cache-prompt ",
     ""},
};
const char compat_options_ignored[] =
    "--flash-attn (-fa), --no-display-prompt, --no-warmup, --no-conversation (-no-cnv), "
    "--simple-io, --jinja, --mmap, --no-mmap, --mlock, --no-escape, --cont-batching (-cb), "
    "--embedding, --metrics, --slots, --cache-prompt and --keep N";

static const compat_entry commands[] = {
    {" server ", SERVER},
    {" ps stop ",
     "no model stays loaded after its command: 'antigravity models' lists those on disk"},
    {" download fetch ", FETCH},
    {" remove delete ", "'antigravity rm NAME' removes a model"},
    {" show ", "use 'antigravity info DIR'"},
    {" convert create ", "weights are converted while they are loaded: 'generate --weights TYPE'"},
    {" perplexity ppl ", "use 'antigravity eval ppl FILE'"},
    {" cli ", "use 'antigravity chat', or 'antigravity generate' for one text"},
    {" complete completion ", "use 'antigravity generate'"},
};

static bool is_number(const char *s) {
    s += *s == '-';
    return *s && strspn(s, NUMBER) == strlen(s);
}

/* Returns whether `names` contains the n bytes at `word` between blanks. */
static bool has_name(const char *names, const char *word, size_t n) {
    for (const char *at = names + 1; *at; at += strcspn(at, " ") + 1)
        if (strcspn(at, " ") == n && !strncmp(at, word, n)) return true;
    return false;
}

#define FIND_MESSAGE(list, word) find_message(list, sizeof(list) / sizeof *(list), word)

static const char *find_message(const compat_entry *list, size_t n, const char *word) {
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < n; i++)
        if (has_name(list[i].names, word, length)) return list[i].text;
    return NULL;
}

const char *compat_option_message(const char *word, bool is_server) {
    const char *text = is_server ? FIND_MESSAGE(unsupported_by_server, word) : NULL;
    if (!text) text = FIND_MESSAGE(unsupported, word);
    const char *done = FIND_MESSAGE(ignored, word);
    if (!text && done && !strcmp(done, NUMBER)) text = "it needs a number, and has no effect";
    if (!text && done) text = "only 'on' is supported, which is the default: leave it out";
    return text;
}

size_t compat_option_words(char *const *words) {
    const char *values = FIND_MESSAGE(ignored, words[0]);
    const char *value = strchr(words[0], '=');
    if (!values) return 0;
    if (!strcmp(values, NUMBER)) {
        if (value) return is_number(value + 1);
        return words[1] && is_number(words[1]) ? 2 : 0;
    }
    if (value) return *values && has_name(values, value + 1, strlen(value + 1)) ? 1 : 0;
    if (*values && words[1] && !strcmp(words[1], "off")) return 0;
    return *values && words[1] && has_name(values, words[1], strlen(words[1])) ? 2 : 1;
}

const char *compat_command_message(const char *name) { return FIND_MESSAGE(commands, name); }
