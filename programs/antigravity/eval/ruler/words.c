/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const adjectives[] = {
    "amber",  "ancient", "angry",   "awake",    "bitter", "blank",    "bold",     "brave",
    "bright", "brisk",   "broad",   "broken",   "busy",   "calm",     "careful",  "cheap",
    "clean",  "clear",   "clever",  "cold",     "common", "cosy",     "crisp",    "curious",
    "damp",   "dark",    "deep",    "distant",  "dusty",  "eager",    "early",    "easy",
    "empty",  "equal",   "fair",    "faithful", "famous", "fast",     "fierce",   "fine",
    "flat",   "foreign", "formal",  "fragile",  "free",   "fresh",    "friendly", "full",
    "gentle", "giant",   "glad",    "golden",   "grand",  "grateful", "green",    "happy",
    "hard",   "harsh",   "heavy",   "hidden",   "high",   "hollow",   "honest",   "humble",
    "icy",    "idle",    "inner",   "jolly",    "keen",   "kind",     "large",    "late",
    "lazy",   "light",   "little",  "lively",   "local",  "lonely",   "long",     "loud",
    "lucky",  "mellow",  "mighty",  "mild",     "modern", "modest",   "narrow",   "near",
    "neat",   "nervous", "noble",   "noisy",    "odd",    "old",      "open",     "orange",
    "outer",  "pale",    "patient", "peaceful", "plain",  "polite",   "poor",     "precious",
    "pretty", "private", "proud",   "pure",     "quick",  "quiet",    "rapid",    "rare",
    "ready",  "rich",    "ripe",    "rough",    "round",  "royal",    "rural",    "rusty",
    "sacred", "safe",    "salty",   "scarlet",  "secret", "serious",  "shallow",  "sharp",
    "short",  "shy",     "silent",  "silver",   "simple", "sleepy",   "slow",     "small",
    "smooth", "soft",    "solid",   "sour",     "spare",  "steady",   "steep",    "stern",
    "still",  "strange", "strict",  "strong",   "sudden", "sunny",    "sweet",    "swift",
    "tall",   "tame",    "tender",  "thick",    "thin",   "tidy",     "tiny",     "tired",
    "tough",  "urban",   "useful",  "vague",    "vast",   "velvet",   "violet",   "vivid",
    "warm",   "weak",    "wet",     "whole",    "wide",   "wild",     "wise",     "wooden",
    "worthy", "yellow",  "young",
};

static const char *const nouns[] = {
    "acorn",    "alley",   "anchor",   "ankle",   "apple",   "apron",   "arch",     "arrow",
    "attic",    "autumn",  "badge",    "bakery",  "balcony", "ball",    "bamboo",   "banjo",
    "barn",     "basin",   "basket",   "beach",   "beacon",  "bead",    "bear",     "bell",
    "bench",    "berry",   "bird",     "blanket", "blossom", "board",   "boat",     "bone",
    "book",     "boot",    "bottle",   "bowl",    "branch",  "brass",   "bread",    "brick",
    "bridge",   "brook",   "broom",    "brush",   "bucket",  "bundle",  "butter",   "button",
    "cabin",    "cable",   "cactus",   "camera",  "camp",    "canal",   "candle",   "canoe",
    "canyon",   "captain", "carpet",   "cart",    "castle",  "cave",    "cedar",    "cellar",
    "chain",    "chair",   "chalk",    "chapel",  "cheese",  "cherry",  "chest",    "chimney",
    "circle",   "circus",  "clay",     "cliff",   "clock",   "cloth",   "cloud",    "clover",
    "coach",    "coast",   "coat",     "coffee",  "coin",    "collar",  "comet",    "copper",
    "coral",    "corn",    "corner",   "cottage", "cotton",  "crane",   "crater",   "cricket",
    "crown",    "crystal", "cup",      "curtain", "cushion", "dairy",   "dance",    "desert",
    "desk",     "diamond", "doctor",   "dolphin", "door",    "dragon",  "drawer",   "dream",
    "drum",     "dust",    "eagle",    "echo",    "elbow",   "ember",   "engine",   "falcon",
    "farm",     "feather", "fence",    "fern",    "ferry",   "fiddle",  "field",    "finger",
    "flag",     "flame",   "flock",    "flour",   "flute",   "forest",  "fork",     "fossil",
    "fountain", "fox",     "frame",    "frost",   "fruit",   "galaxy",  "garden",   "gate",
    "ginger",   "glacier", "glass",    "glove",   "goose",   "grain",   "grape",    "grass",
    "guitar",   "hammer",  "harbour",  "harp",    "harvest", "hawk",    "hedge",    "helmet",
    "herb",     "hill",    "honey",    "horn",    "horse",   "hotel",   "island",   "ivory",
    "jacket",   "jewel",   "journey",  "judge",   "jungle",  "kettle",  "kitchen",  "kite",
    "kitten",   "ladder",  "lagoon",   "lake",    "lamp",    "lantern", "lawn",     "leaf",
    "lemon",    "letter",  "lever",    "library", "lily",    "lizard",  "lobster",  "locket",
    "maple",    "marble",  "market",   "marsh",   "mask",    "meadow",  "melon",    "mill",
    "mirror",   "mitten",  "monkey",   "moon",    "morning", "moss",    "mountain", "museum",
    "needle",   "nest",    "notebook", "novel",   "nut",     "oak",     "oasis",    "ocean",
    "olive",    "onion",   "orchard",  "otter",   "oven",    "owl",     "paddle",   "palace",
    "palm",     "panda",   "paper",    "parade",  "parcel",  "parrot",  "path",     "peach",
    "pearl",    "pebble",  "pencil",   "pepper",  "piano",   "pillow",  "pilot",    "pine",
    "planet",   "plaza",   "plum",     "pocket",  "poem",    "pond",    "poppy",    "porch",
    "potato",   "prairie", "puddle",   "pumpkin", "puzzle",  "quarry",  "quilt",    "rabbit",
    "radio",    "raft",    "rain",     "raven",   "reef",    "ribbon",  "rice",     "ring",
    "river",    "road",    "robin",    "rocket",  "roof",    "root",    "rope",     "rose",
    "saddle",   "sail",    "salad",    "salmon",  "sand",    "scarf",   "school",   "sculptor",
    "shadow",   "shed",    "shell",    "ship",    "shirt",   "shoe",    "shore",    "shovel",
    "signal",   "silk",    "singer",   "sister",  "smoke",   "snow",    "soap",     "sofa",
    "soldier",  "spark",   "sparrow",  "spice",   "spoon",   "spring",  "squirrel", "stable",
    "stamp",    "star",    "statue",   "steam",   "stone",   "storm",   "stove",    "stream",
    "street",   "string",  "sugar",    "summer",  "sunset",  "swamp",   "swan",     "table",
    "tailor",   "teacher", "temple",   "tent",    "theatre", "thicket", "thistle",  "thread",
    "throne",   "thunder", "ticket",   "tiger",   "timber",  "tower",   "trail",    "train",
    "tree",     "trumpet", "tulip",    "tunnel",  "turtle",  "uncle",   "valley",   "vase",
    "village",  "vine",    "violin",   "volcano", "wagon",   "walnut",  "water",    "wave",
    "wheat",    "wheel",   "whistle",  "willow",  "window",  "winter",  "wizard",   "wolf",
    "wool",     "yard",    "zebra",
};

static const char *const verbs[] = {
    "accept",   "admire",  "advise",  "agree",   "allow",    "answer",   "argue",     "arrive",
    "attend",   "avoid",   "balance", "become",  "begin",    "believe",  "belong",    "borrow",
    "bounce",   "breathe", "bring",   "build",   "carry",    "catch",    "celebrate", "choose",
    "climb",    "collect", "compare", "confess", "connect",  "consider", "contain",   "copy",
    "count",    "cover",   "crawl",   "create",  "decide",   "defend",   "deliver",   "depend",
    "describe", "deserve", "divide",  "drift",   "earn",     "enjoy",    "enter",     "escape",
    "examine",  "expect",  "explain", "explore", "fasten",   "fetch",    "finish",    "float",
    "follow",   "forget",  "forgive", "gather",  "glow",     "greet",    "grow",      "guess",
    "hope",     "hurry",   "imagine", "improve", "include",  "inform",   "invent",    "invite",
    "join",     "juggle",  "kneel",   "knit",    "laugh",    "launch",   "learn",     "listen",
    "manage",   "measure", "melt",    "mention", "mix",      "move",     "notice",    "obey",
    "observe",  "obtain",  "offer",   "order",   "owe",      "pack",     "paint",     "pause",
    "perform",  "permit",  "play",    "plead",   "polish",   "pour",     "practise",  "prefer",
    "prepare",  "pretend", "prevent", "promise", "protect",  "provide",  "punish",    "reach",
    "realise",  "receive", "reduce",  "refuse",  "remember", "remind",   "remove",    "repair",
    "reply",    "rescue",  "return",  "rinse",   "scatter",  "scream",   "search",    "settle",
    "share",    "shiver",  "sigh",    "sketch",  "smile",    "sneeze",   "speak",     "spread",
    "squeeze",  "stumble", "suggest", "supply",  "surprise", "swim",     "thank",     "tremble",
    "trust",    "twist",   "unlock",  "vanish",  "visit",    "wander",   "whisper",   "wonder",
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

const char *ruler_kind_name(ruler_kind kind) {
    static const char *const known[] = {"words", "numbers", "uuids"};
    return known[kind];
}

static void write_uuid(seeded *r, char *out) {
    const uint64_t high = (seeded_next(r) & ~(uint64_t)0xf000) | 0x4000;
    const uint64_t low = (seeded_next(r) & ~((uint64_t)3 << 62)) | (uint64_t)2 << 62;
    snprintf(out, RULER_WORD_SIZE, "%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff), (unsigned)(low >> 48),
             low & 0xffffffffffff);
}

void ruler_value(ruler_kind kind, seeded *r, char out[RULER_WORD_SIZE]) {
    const char *adjective;
    switch (kind) {
    case RULER_WORDS:
        adjective = adjectives[seeded_below(r, COUNT(adjectives))];
        snprintf(out, RULER_WORD_SIZE, "%s-%s", adjective, nouns[seeded_below(r, COUNT(nouns))]);
        break;
    case RULER_NUMBERS:
        snprintf(out, RULER_WORD_SIZE, "%zu", 1000000 + seeded_below(r, 9000000));
        break;
    case RULER_UUIDS:
        write_uuid(r, out);
        break;
    }
}

void ruler_letters(seeded *r, char first, size_t n, char out[RULER_WORD_SIZE]) {
    for (size_t i = 0; i < n; i++) out[i] = (char)(first + (char)seeded_below(r, 26));
    out[n] = '\0';
}

enum { N_SINGLE = COUNT(nouns) + COUNT(verbs) + COUNT(adjectives) };

size_t ruler_n_words(void) { return N_SINGLE + COUNT(nouns) * COUNT(nouns); }

void ruler_word(size_t i, char out[RULER_WORD_SIZE]) {
    const size_t pair = i - N_SINGLE;
    const char *word = NULL;
    if (i < COUNT(nouns)) word = nouns[i];
    else if (i < COUNT(nouns) + COUNT(verbs)) word = verbs[i - COUNT(nouns)];
    else if (i < N_SINGLE) word = adjectives[i - COUNT(nouns) - COUNT(verbs)];
    if (word) snprintf(out, RULER_WORD_SIZE, "%s", word);
    else {
        snprintf(out, RULER_WORD_SIZE, "%s%s", nouns[pair / COUNT(nouns)],
                 nouns[pair % COUNT(nouns)]);
    }
}

/* Takes each number with the probability that makes n in total. */
void ruler_choose(seeded *r, size_t of, size_t n, size_t order[]) {
    size_t taken = 0;
    for (size_t i = 0; taken < n; i++)
        if (seeded_below(r, of - i) < n - taken) order[taken++] = i;
}

void ruler_shuffle(seeded *r, size_t n, size_t order[]) {
    for (size_t i = n; i > 1; i--) {
        const size_t other = seeded_below(r, i), swapped = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swapped;
    }
}

void ruler_choose_words(seeded *r, size_t n, size_t order[]) {
    ruler_choose(r, n <= N_SINGLE ? N_SINGLE : ruler_n_words(), n, order);
    ruler_shuffle(r, n, order);
}
