#!/usr/bin/env python3
"""Layers of bitsnap.h call downwards only. A function may name functions and tables of its own layer and of earlier ones in the
file. A table of functions belongs to its layer, and may name functions of that layer and of earlier ones. A function that calls
through a member of a table's type needs the table's layer. Kernels are exempt: the layer that a kernel serves calls it."""
import os
import re
import sys

EXCEPTIONS = {"bsn_kernels_best"}  # the dispatcher, for all layers; it is defined after all tables
LAYERS = ["PLATFORM", "HASH", "BITMASK", "PLANES", "HUFFMAN", "DELTA", "QUANTIZE", "BLOCK", "FRAME", "STREAM", "ENTRY", "PARTS"]
FUNCTION = r"^(?:static|BSN_INLINE|BSN_FUNCTION|BITSNAP_API)[^;{}#=]*?\b(?P<function>\w+)\([^;{}]*\)\s*\{"
TABLE = r"^static const (?P<type>bsn_\w+) (?P<table>\w+)\[\] = \{"
DEFINITION = re.compile(rf"@LAYER (?P<layer>\w+)@|{FUNCTION}|{TABLE}", re.M)


def read(text):
    """The layers; the layer and the text of each function or table; the function members of each type of table."""
    layers, layer_of, bodies, tables, position = [], {}, {}, {}, 0
    while m := DEFINITION.search(text, position):
        position = m.end()
        if m["layer"]:
            layers.append(m["layer"])
            continue
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            position += 1
        name = m["function"] or m["table"]
        if layers:
            layer_of[name], bodies[name] = len(layers) - 1, text[m.end():position]
        if m["table"]:
            struct = re.search(rf"typedef struct {m['type']} \{{(.*?)\n\}} {m['type']};", text, re.S)
            members = re.findall(r"\(\*(\w+)\)\(", struct[1]) if struct else ()
            if members and layers:
                tables[name] = members
    return layers, layer_of, bodies, tables


def faults(text):
    layers, layer_of, bodies, tables = read(text)
    bad = [] if layers == LAYERS else ["layers are " + " ".join(layers)]
    for name, body in bodies.items():
        for word in set(re.findall(r"\b\w+\b", body)) & set(layer_of) - EXCEPTIONS:
            if layer_of[word] > layer_of[name]:
                bad.append(f"{name} ({layers[layer_of[name]]}) names {word} ({layers[layer_of[word]]})")
        for table, members in tables.items():
            if layer_of[name] < layer_of[table] and re.search(rf"(?:->|\.)(?:{'|'.join(members)})\s*\(", body):
                bad.append(f"{name} ({layers[layer_of[name]]}) calls through {table} ({layers[layer_of[table]]})")
    if len(bodies) < 100 or len(tables) < 2:
        bad.append(f"only {len(bodies)} functions and {len(tables)} tables of functions found")
    return bad, f"{len(bodies) - len(tables)} functions and {len(tables)} tables of functions in {len(layers)} layers"


def planted(text, before, line):
    at = text.index(before)
    at = text.index("{", at) + 1
    return faults(text[:at] + line + text[at:])[0]


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bitsnap.h")
    text = open(path, encoding="utf-8").read()
    start = text.index("#define BITSNAP_IMPLEMENTED")
    text = re.sub(r"/\* =+ ([A-Z]+).*?\*/", lambda m: "@LAYER " + m[1] + "@" + "\n" * m[0].count("\n"), text[start:], flags=re.S)
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    bad, found = faults(text)
    for before, line in (("static void bsn_pieces_begin(", "bsn_decode_block(0, 0, 0);"), ("static void bsn_pieces_begin(", "use(bsn_decode_block);"),
                         ("static void bsn_pieces_begin(", "h->form->open(0);"), ("static const bsn_form bsn_forms[]", "{ bsn_read_header },")):
        if not bad and not planted(text, before, line):
            bad.append(f"does not notice {line} in {before}")
    print(("not ok - layers: " + "; ".join(bad)) if bad else f"ok - layers: {found}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
