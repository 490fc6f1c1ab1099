#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the small Llama-architecture demo model on one GPU and export it in Hugging Face form.

usage: train_demo.py CORPUS_DIR OUT_DIR --minutes M
CORPUS_DIR holds NAME.txt(.xz) files, documents separated by a line '<|doc|>'; --mix gives each NAME its share of the batch.
'held' is never trained on: whole novels for perplexity. Needle documents (facts asked for later) are made here.
"""
import argparse, glob, json, lzma, math, os, random, time
import numpy as np, torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers, processors, Regex
from transformers import LlamaConfig, LlamaForCausalLM

LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|finetune_right_pad_id|>"]

ap = argparse.ArgumentParser()
ap.add_argument("corpus"); ap.add_argument("out")
ap.add_argument("--minutes", type=float, default=8)
ap.add_argument("--hidden", type=int, default=256); ap.add_argument("--layers", type=int, default=8)
ap.add_argument("--heads", type=int, default=4); ap.add_argument("--kv", type=int, default=2)
ap.add_argument("--ffn", type=int, default=768); ap.add_argument("--vocab", type=int, default=4096)
ap.add_argument("--seq", type=int, default=2048); ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--lr", type=float, default=3e-3); ap.add_argument("--needle", type=float, default=0.15)
ap.add_argument("--seed", type=int, default=7)
ap.add_argument("--mix", default="synth=0.42,tiny=0.13,kids=0.17,novels=0.13")
a = ap.parse_args()
os.makedirs(a.out, exist_ok=True)
random.seed(a.seed); np.random.seed(a.seed); torch.manual_seed(a.seed)
t0 = time.time()

def read(p):
    raw = lzma.open(p).read() if p.endswith(".xz") else open(p, "rb").read()
    return raw.decode("utf-8", "ignore")
MIX = {k: float(v) for k, v in (m.split("=") for m in a.mix.split(","))}
sources = {}
for p in sorted(glob.glob(a.corpus + "/*.txt*")):
    n = os.path.basename(p).split(".")[0]
    sources[n] = [d.strip() for d in read(p).split("<|doc|>") if len(d.strip()) > 80]
    print(n, len(sources[n]), "docs", f"{sum(map(len, sources[n]))/1e6:.1f} MB", flush=True)
held = sources.pop("held")
MIX = {k: v for k, v in MIX.items() if k in sources}
for n in ("tiny", "synth"):
    if n in sources: random.shuffle(sources[n]); held_s = sources[n][:300]; sources[n] = sources[n][300:]; sources.setdefault("_heldstories", []).extend(held_s)
held_stories = sources.pop("_heldstories", [])

# --- needle documents: facts scattered in story text, asked for at the end ---
NAMES = "Tom Mia Ben Lily Max Anna Sam Rose Jack Ella Finn Grace Leo Ruby Hugo Ivy Otto Nora Paul Zoe Carl Emma Fred Lucy".split()
THINGS = "box key door chest bag garden boat lamp tower cave drum ring kite cup book hat".split()
COLOURS = "red blue green gold silver white black brown pink grey".split()
def needle_doc(rng, fillers, target_chars):
    n = rng.randint(1, 4); facts = []
    while len(facts) < n:
        k = (rng.choice(NAMES), rng.choice(COLOURS), rng.choice(THINGS))
        if k not in [f[0] for f in facts]: facts.append((k, str(rng.randint(100, 999)) + " " + rng.choice(COLOURS)))
    size = int(target_chars * rng.random() ** 1.5) + 60
    text = fillers; st = rng.randint(0, max(1, len(text) - size - 1)); body = text[st: st + size]
    sents = body.split(". ")
    for k, v in facts:
        sents.insert(rng.randint(0, len(sents)), f"The secret of {k[0]}'s {k[1]} {k[2]} is {v}")
    qs = ""
    for k, v in rng.sample(facts, len(facts)):
        qs += f"\nQuestion: What is the secret of {k[0]}'s {k[1]} {k[2]}?\nAnswer: {v}."
    return ". ".join(sents) + "." + qs

rng = random.Random(1)
fill = [d for n in sources for d in rng.sample(sources[n], min(len(sources[n]), 4000))]; rng.shuffle(fill)
big = " ".join(d[k: k + 3000] for d in fill for k in [rng.randint(0, max(0, len(d) - 3000))])
sample_needles = [needle_doc(rng, big, 800) for _ in range(3000)]

# --- tokenizer: Llama-3-shaped byte-level BPE ---
tok = Tokenizer(models.BPE(ignore_merges=True))
tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated", False), pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
tok.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
tr = trainers.BpeTrainer(vocab_size=a.vocab - len(SPECIALS), special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
sample = sample_needles + [d[k: k + 20000] for n in sources for d in rng.sample(sources[n], min(len(sources[n]), 20000)) for k in range(0, min(len(d), 200000), 20000)]
tok.train_from_iterator(sample, tr)
tok.add_special_tokens(SPECIALS)
bos, eos = tok.token_to_id(SPECIALS[0]), tok.token_to_id(SPECIALS[1])
tok.post_processor = processors.Sequence([processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True),
    processors.TemplateProcessing(single=f"{SPECIALS[0]} $A", pair=f"{SPECIALS[0]} $A {SPECIALS[0]}:1 $B:1", special_tokens=[(SPECIALS[0], bos)])])
tok.save(a.out + "/tokenizer.json")
V = tok.get_vocab_size(); print("vocab", V, "bos", bos, "eos", eos, f"{time.time()-t0:.0f}s", flush=True)

def encode(ds):
    out = []
    for i in range(0, len(ds), 20000):
        for e in tok.encode_batch_fast(ds[i:i+20000], add_special_tokens=False):
            out.append(np.array([bos] + e.ids + [eos], dtype=np.uint16))
    return np.concatenate(out)
train = {n: torch.from_numpy(encode(sources[n]).astype(np.int32)).cuda() for n in MIX}
val = torch.from_numpy(encode(held).astype(np.int32)).cuda(); val_s = torch.from_numpy(encode(held_stories).astype(np.int32)).cuda()
nd = encode([needle_doc(rng, big, 7000) for _ in range(120000)])
needles = torch.from_numpy(nd.astype(np.int32)).cuda()
print("tokens M", {n: round(t.numel()/1e6, 1) for n, t in train.items()}, f"needles {needles.numel()/1e6:.1f}M, val {val.numel()/1e3:.0f}k, {time.time()-t0:.0f}s", flush=True)

cfg = LlamaConfig(vocab_size=V, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers, num_attention_heads=a.heads,
    num_key_value_heads=a.kv, head_dim=a.hidden // a.heads, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
    bos_token_id=bos, eos_token_id=eos, attention_bias=False, mlp_bias=False)
rp = dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
try: cfg.rope_parameters = rp
except Exception: pass
cfg._attn_implementation = "sdpa"
model = LlamaForCausalLM(cfg).cuda()
print("params", sum(p.numel() for p in model.parameters()) / 1e6, "M; rope", getattr(cfg, "rope_parameters", None), flush=True)
decay = [p for n, p in model.named_parameters() if p.dim() >= 2]; nodecay = [p for n, p in model.named_parameters() if p.dim() < 2]
opt = torch.optim.AdamW([dict(params=decay, weight_decay=0.1), dict(params=nodecay, weight_decay=0.0)], lr=a.lr, betas=(0.9, 0.95), fused=True)
fwd = torch.compile(model, dynamic=False)
def batch(src, n):
    ix = torch.randint(0, src.numel() - a.seq - 1, (n,), device="cuda")
    return src[ix[:, None] + torch.arange(a.seq + 1, device="cuda")[None]].long()
def loss_of(m, b):
    with torch.autocast("cuda", torch.bfloat16):
        lg = m(input_ids=b[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(lg.float().view(-1, V), b[:, 1:].reshape(-1))
nn_ = max(1, int(round(a.batch * a.needle)))
tot_mix = sum(MIX.values()); names = list(MIX); probs = np.array([MIX[n] / tot_mix for n in names])
start = time.time(); step = 0; budget = a.minutes * 60; warm = 200
while True:
    el = time.time() - start; fr = min(1.0, el / budget)
    if fr >= 1: break
    lr = a.lr * min(1, (step + 1) / warm) * (1.0 if fr < 0.4 else max(0.02, 0.5 * (1 + math.cos(math.pi * (fr - 0.4) / 0.6))))
    for g in opt.param_groups: g["lr"] = lr
    cnt = np.random.multinomial(a.batch - nn_, probs)
    b = torch.cat([batch(train[n], int(c)) for n, c in zip(names, cnt) if c] + [batch(needles, nn_)])
    l = loss_of(fwd, b); opt.zero_grad(set_to_none=True); l.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step(); step += 1
    if step == 20: torch.cuda.synchronize(); print(f"warm {time.time()-start:.0f}s", flush=True)
    if step % 500 == 0:
        print(f"step {step} {step*a.batch*a.seq/1e6:.0f}M tok loss {l.item():.3f} lr {lr:.2e} {time.time()-start:.0f}s", flush=True)
model.eval()
with torch.no_grad():
    vl = [loss_of(model, batch(val, 8)).item() for _ in range(10)] if val.numel() > a.seq + 10 else [float("nan")]
print("held novels loss", np.mean(vl), "ppl", math.exp(np.mean(vl)), flush=True)
with torch.no_grad(): vs = np.mean([loss_of(model, batch(val_s, 8)).item() for _ in range(10)])
print("held stories loss", vs, "ppl", math.exp(vs), flush=True)
model = model.to(torch.bfloat16)
model.save_pretrained(a.out, safe_serialization=True)
# classic Llama-3.2 style config.json
j = json.load(open(a.out + "/config.json"))
j.update(rope_theta=500000.0, rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192), torch_dtype="bfloat16")
j.pop("rope_parameters", None); j.pop("dtype", None); j.pop("transformers_version", None)
json.dump(j, open(a.out + "/config.json", "w"), indent=2)
json.dump(dict(bos_token_id=bos, eos_token_id=[eos, tok.token_to_id("<|eot_id|>")], do_sample=True, temperature=0.8, top_p=0.95), open(a.out + "/generation_config.json", "w"), indent=2)
# held-out documents and needles for evaluation
open(a.out + "/heldout_stories.txt", "w").write("\n<|doc|>\n".join(held_stories))
r2 = random.Random(99); hb = " ".join(held)
json.dump([needle_doc(r2, hb, c) for c in [400, 1500, 3000, 5000, 7000] for _ in range(20)], open(a.out + "/needles.json", "w"))
m2 = LlamaForCausalLM.from_pretrained(a.out, dtype=torch.float32).cuda().eval()
print("reloaded rope:", m2.config.rope_parameters if hasattr(m2.config, "rope_parameters") else m2.config.rope_scaling)
def gen(p, n=150, **k):
    i = torch.tensor([tok.encode(p).ids]).cuda()
    with torch.no_grad(): o = m2.generate(i, max_new_tokens=n, pad_token_id=eos, **k)
    return tok.decode(o[0].tolist())
for p in ["Once upon a time", "The old king had three sons", "\"Where are you going?\" said the fox."]:
    print("GREEDY:", gen(p, 120, do_sample=False)); print("SAMPLE:", gen(p, 150, do_sample=True, temperature=0.8, top_p=0.95)); print("--")
ok = tot = 0
for d in json.load(open(a.out + "/needles.json"))[:60]:
    head, ans = d.split("\nAnswer: ", 1); ans = ans.split(".")[0]
    g = gen(head + "\nAnswer:", 12, do_sample=False).split("\nAnswer:")[-1].strip(); tot += 1; ok += g.startswith(ans)
print("needle accuracy", ok, "/", tot, flush=True)
