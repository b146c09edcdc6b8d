"""Tests of bitsnap.auto and bitsnap.transformers with the libraries that they are for, on tiny models of random weights.
python_transformers.py README [TEST ...]: by check_package.sh. python_transformers.py train FOLDER KILL trains in FOLDER, and kills itself before call number KILL of the system that packs."""
import os
import pathlib
import shutil
import subprocess
import sys
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import bitsnap.auto
import bitsnap.pack
import bitsnap.torch
import bitsnap.transformers
from python_checks import elsewhere, refused, run, run_blocks

CONFIG = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300}
STEPS = 8
torch.set_num_threads(1)  # sums do not depend on how many there are
words = torch.arange(20)[None]


def llama(**more):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**CONFIG, **more})).eval()


def packed(folder):
    """Packs a folder. There is at least one packed file, and no plain .safetensors file."""
    found = bitsnap.pack.pack_folder(folder, remove=True)
    assert any(isinstance(size, int) for size in found.values()), found
    assert not [path for path in pathlib.Path(folder).rglob("*.safetensors")], found
    return folder


def loading_by_transformers():
    llama().to(torch.bfloat16).save_pretrained("whole")
    llama().to(torch.bfloat16).save_pretrained("shards", max_shard_size="50KB")
    with torch.no_grad():
        for folder in ("whole", "shards"):
            expected = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()(words).logits
            packed(folder)
            for named in ({"dtype": "auto"}, {"dtype": "auto", "device_map": "cpu"}, {"dtype": torch.bfloat16, "low_cpu_mem_usage": True}):
                model = AutoModelForCausalLM.from_pretrained(folder, **named).eval()
                assert torch.equal(model(words).logits, expected), (folder, named)
    bitsnap.auto.undo()
    refused(OSError, "model.safetensors", AutoModelForCausalLM.from_pretrained, "whole")
    bitsnap.auto.enable()


def loading_by_accelerate():
    import accelerate

    model = llama()
    model.save_pretrained("a-shards", max_shard_size="100KB")
    model.save_pretrained("a-whole")
    with torch.no_grad():
        for path in (packed("a-shards"), os.path.join(packed("a-whole"), "model.safetensors")):
            with accelerate.init_empty_weights():
                again = LlamaForCausalLM(model.config)
            again = accelerate.load_checkpoint_and_dispatch(again, path, device_map={"": "cpu"}).eval()
            assert torch.equal(again(words).logits, model(words).logits), path
    accelerator = accelerate.Accelerator(cpu=True)
    net = torch.nn.Linear(300, 300)
    net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
    weights = []
    for again in (False, True):
        if again:
            accelerator.load_state(packed("state"))
        for step in range(4):
            net(torch.ones(300)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 1 and not again:
                accelerator.save_state("state")
        if not again:
            weights = [x.clone() for x in net.parameters()]
    with torch.no_grad():  # two steps more than the first time
        accelerator.load_state("state")
        assert os.path.exists("state/optimizer.bin.bsnap")
    for _ in range(2):
        net(torch.ones(300)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.equal(x, y) for x, y in zip(net.parameters(), weights))


def loading_by_diffusers():
    import diffusers

    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(sample_size=8, block_out_channels=(32, 32), norm_num_groups=8, layers_per_block=1,
                                 down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D")).eval()
    diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler()).save_pretrained("pipeline")
    unet.save_pretrained("unet", max_shard_size="200KB")
    noise = torch.ones(1, 3, 8, 8)
    with torch.no_grad():
        for again in (diffusers.DDPMPipeline.from_pretrained(packed("pipeline")).unet, diffusers.UNet2DModel.from_pretrained(packed("unet"))):
            assert torch.equal(again.eval()(noise, 1).sample, unet(noise, 1).sample)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(0, 300, (16,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


def trained(folder, *callbacks, resume=False, **named):
    """A model that was trained for STEPS steps."""
    torch.manual_seed(0)
    options = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=STEPS, save_steps=2, report_to=[], use_cpu=True, seed=1,
                                logging_steps=100, disable_tqdm=True, learning_rate=1e-3, **named)
    trainer = Trainer(LlamaForCausalLM(LlamaConfig(**CONFIG)), options, train_dataset=Data(), callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model.state_dict()


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def optimizers(*folders):
    """The state of the optimizer at the end in two folders is the same, bit by bit."""
    a, b = (torch.load(os.path.join(folder, f"checkpoint-{STEPS}", "optimizer.pt"), weights_only=True) for folder in folders)
    states = a["state"], b["state"]
    return a["param_groups"] == b["param_groups"] and states[0].keys() == states[1].keys() and all(equal(*(x[k] for x in states)) for k in states[0])


def training():
    """The bits of the weights and of the optimizer are those of a run without bitsnap: packed while it runs, and resumed from a packed checkpoint."""
    expected = trained("plain")
    assert equal(trained("packed", bitsnap.transformers.PackCheckpoints(), save_total_limit=2), expected) and optimizers("plain", "packed")
    assert sorted(os.listdir("packed")) == [f"checkpoint-{STEPS - 2}", f"checkpoint-{STEPS}"]
    for folder in os.listdir("packed"):
        names = set(os.listdir(os.path.join("packed", folder)))
        assert {"model.safetensors.bsnap", "optimizer.pt.bsnap", "training_args.bin", "rng_state.pth"} <= names, names
        assert not names & {"model.safetensors", "optimizer.pt"} and not [name for name in names if name.startswith(".bitsnap-")], names
    shutil.rmtree(f"packed/checkpoint-{STEPS}")
    callback = bitsnap.transformers.PackCheckpoints(level="fast", threads=2)
    assert equal(trained("packed", callback, resume=True, save_total_limit=1), expected) and optimizers("plain", "packed")
    assert os.listdir("packed") == [f"checkpoint-{STEPS}"]


def best_models():
    """The best checkpoint, packed, is loaded at the end of the training."""
    torch.manual_seed(0)
    options = TrainingArguments("best", per_device_train_batch_size=4, max_steps=4, save_steps=1, eval_strategy="steps", eval_steps=1, report_to=[],
                                use_cpu=True, disable_tqdm=True, load_best_model_at_end=True, metric_for_best_model="loss", save_total_limit=1,
                                save_strategy="best")
    trainer = Trainer(LlamaForCausalLM(LlamaConfig(**CONFIG)), options, train_dataset=Data(), eval_dataset=Data(),
                      callbacks=[bitsnap.transformers.PackCheckpoints()])
    trainer.train()
    state = bitsnap.torch.load_file(os.path.join(trainer.state.best_model_checkpoint, "model.safetensors.bsnap"))
    assert equal({name: x for name, x in trainer.model.state_dict().items() if name in state}, state) and len(state) > 10


def killed_training():
    """A run that is killed while it packs resumes with the bits of one that was not."""
    expected, kills = trained("undisturbed"), 0
    for kill in (3, 8, 11, 17, 22):
        shutil.rmtree("killed", ignore_errors=True)
        status = subprocess.run([sys.executable, os.path.abspath(__file__), "train", "killed", str(kill)], capture_output=True).returncode
        kills += status == -9
        for folder in os.listdir("killed"):
            names = os.listdir(os.path.join("killed", folder))
            assert all({name, name + ".bsnap"} & set(names) for name in ("model.safetensors", "optimizer.pt")), names
        assert equal(trained("killed", bitsnap.transformers.PackCheckpoints(), resume=True), expected) and optimizers("undisturbed", "killed"), kill
    assert kills == 5, kills


def train_and_die(folder, kill):
    for call in "replace", "unlink", "fsync":
        def counted(*arguments, original=getattr(os, call)):
            nonlocal kill
            kill -= 1
            if kill == 0:
                os.kill(os.getpid(), 9)
            return original(*arguments)

        setattr(os, call, counted)
    trained(folder, bitsnap.transformers.PackCheckpoints())


def times():
    """How long from_pretrained takes, of plain and packed files in the page cache: the smallest of 5 times."""
    model = llama(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8).to(torch.bfloat16)
    model.save_pretrained("time")
    size, took = os.path.getsize("time/model.safetensors"), {}
    for kind in ("plain", "packed"):
        if kind == "packed":
            packed("time")
        each = []
        for _ in range(5):
            begin = time.perf_counter()
            AutoModelForCausalLM.from_pretrained("time", dtype="auto")
            each.append(time.perf_counter() - begin)
        took[kind] = min(each)
    print(f"# from_pretrained of {size / 1e6:.0f} MB of BF16, {os.path.getsize('time/model.safetensors.bsnap') / size:.3f} of that packed: "
          f"{1000 * took['plain']:.0f} ms plain, {1000 * took['packed']:.0f} ms packed, {os.cpu_count()} processors")


def the_readme():
    run_blocks(readme, "python transformers")
    bitsnap.auto.enable()


if sys.argv[1] == "train":
    train_and_die(sys.argv[2], int(sys.argv[3]))
    sys.exit()
readme = os.path.abspath(sys.argv[1])
elsewhere()
every = [loading_by_transformers, loading_by_accelerate, loading_by_diffusers, training, best_models, killed_training, times, the_readme]
sys.exit(run("transformers", [test for test in every if not sys.argv[2:] or test.__name__ in sys.argv[2:]]))
