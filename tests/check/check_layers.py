#!/usr/bin/env python3
"""Layers of bitsnap.h call downwards only: a function may call functions of its own layer and of those above it in the
file. (Static functions cannot do otherwise; public ones are declared at the top, so that only a look tells.)"""
import re
import sys
import os

EXCEPTIONS = {"bsn_kernels_best"}  # the dispatcher: asked for from everywhere, defined where all tables are known

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bitsnap.h")
text = open(path, encoding="utf-8").read()
start = text.index("#define BITSNAP_IMPLEMENTED")
text = re.sub(r"/\* =+ ([A-Z]+).*?\*/", lambda m: "@LAYER " + m[1] + "@" + "\n" * m[0].count("\n"), text[start:], flags=re.S)
text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
text = re.sub(r'"(\\.|[^"\\])*"', '""', text)

layers, layer_of, bodies = [], {}, []
position = 0
definition = re.compile(r"@LAYER (\w+)@|^(?:static|BSN_INLINE|BSN_FUNCTION|BITSNAP_API)[^;{}#=]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)
while True:
    m = definition.search(text, position)
    if not m:
        break
    position = m.end()
    if m[1]:
        layers.append(m[1])
        continue
    depth, end = 1, m.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    if layers:
        layer_of[m[2]] = len(layers) - 1
        bodies.append((m[2], text[m.end():end]))
    position = end

expected = ["PLATFORM", "HASH", "BITMASK", "PLANES", "HUFFMAN", "DELTA", "QUANTIZE", "BLOCK", "FRAME", "STREAM", "ENTRY", "PARTS"]
bad = [] if layers == expected else ["layers are " + " ".join(layers)]
for name, body in bodies:
    for called in set(re.findall(r"\b(\w+)\s*\(", body)):
        if called in layer_of and called not in EXCEPTIONS and layer_of[called] > layer_of[name]:
            bad.append(f"{name} ({layers[layer_of[name]]}) calls {called} ({layers[layer_of[called]]})")
if len(bodies) < 100:
    bad.append(f"only {len(bodies)} functions found")
print(("not ok - layers: " + "; ".join(bad)) if bad else f"ok - layers: {len(bodies)} functions in {len(layers)} layers")
sys.exit(bool(bad))
