#!/usr/bin/env python3
"""Joins .safetensors files: join.py OUTPUT FILE... The name of a tensor is that of its file and its own."""
import json
import os
import sys

header, size = {}, 0
parts = []
for path in sys.argv[2:]:
    with open(path, "rb") as f:
        text = f.read(int.from_bytes(f.read(8), "little"))
        data = f.read()
    for name, tensor in json.loads(text).items():
        if name != "__metadata__":
            tensor["data_offsets"] = [size + offset for offset in tensor["data_offsets"]]
            header[os.path.basename(path).split(".")[0] + "." + name] = tensor
    parts.append(data)
    size += len(data)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text)
    f.writelines(parts)
