"""Keys and values that a published model has for real text, as pages of raw elements for kv_bench.c.

    kv_extract.py MODELS OUT [--tokens 8192] [TEXT...]

MODELS holds minilm.safetensors and minilm-tokenizer.json, as `make models` puts them there: all-MiniLM-L6-v2, 6 layers, 12 heads of 32. It
reads TEXT (without one this project's documents) in sequences of 256 tokens. OUT/keys-DTYPE.raw and OUT/values-DTYPE.raw get a page for each
64 tokens and layer, all layers of 64 tokens in turn: bf16, f16, and f8_e4m3 with scale 1, the default of serving engines.
Needs torch, safetensors, tokenizers.
"""
import argparse
import pathlib

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

LENGTH, PAGE, HEADS, LAYERS = 256, 64, 12, 6
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f8_e4m3": torch.float8_e4m3fn}


def keys_and_values(w, tokens):
    """Returns keys and values of each layer: [layer, sequence, token, element]."""
    def dense(x, name):
        return linear(x, w[name + ".weight"], w[name + ".bias"])

    def normed(x, name):
        return layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)

    x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.position_embeddings.weight"][:tokens.shape[1]]
    x, keys, values = normed(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"), [], []
    for k in range(LAYERS):
        name = f"encoder.layer.{k}."
        q, key, v = (dense(x, f"{name}attention.self.{part}") for part in ("query", "key", "value"))
        keys.append(key)
        values.append(v)
        y = scaled_dot_product_attention(*(t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, key, v))).transpose(1, 2).flatten(2)
        x = normed(x + dense(y, name + "attention.output.dense"), name + "attention.output.LayerNorm")
        x = normed(x + dense(gelu(dense(x, name + "intermediate.dense")), name + "output.dense"), name + "output.LayerNorm")
    return torch.stack(keys), torch.stack(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path, nargs="*")
    parser.add_argument("--tokens", type=int, default=8192)
    a = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[3]
    text = "\n".join(f.read_text() for f in a.text or sorted([root / "README.md", *root.glob("docs/*.md")]))
    tokenizer = Tokenizer.from_file(str(a.models / "minilm-tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = tokenizer.encode(text).ids[:a.tokens // LENGTH * LENGTH]
    tokens = torch.tensor(ids[:len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)
    weights = {name.removeprefix("bert."): t.float() for name, t in load_file(a.models / "minilm.safetensors").items() if t.is_floating_point()}
    with torch.no_grad():
        both = dict(zip(("keys", "values"), keys_and_values(weights, tokens)))
    a.out.mkdir(parents=True, exist_ok=True)
    for kind, t in both.items():
        pages = t.unflatten(2, (-1, PAGE)).permute(1, 2, 0, 3, 4)  # sequence, page, layer, token, element
        for name, dtype in DTYPES.items():
            (a.out / f"{kind}-{name}.raw").write_bytes(pages.to(dtype).contiguous().view(torch.uint8).numpy().tobytes())
        print(f"{kind}: {pages.shape[0] * pages.shape[1] * LAYERS} pages of {PAGE} tokens, {pages.shape[-1]} elements each")


main()
