#!/usr/bin/env python3
"""Does training go on as if nothing had happened, when the optimizer's state is stored in a lossy form? `make convergence`
calls it.
  convergence.py TRAINER TOOL SCRATCH RESULTS [--quick] [--beta2 X] [--first STEP] [--steps N] [--jobs N]
Trains a small GPT on the project's own text (TRAINER: train_gpt), undisturbed and with other seeds. Then goes on from one step
of it again and again, with the moments of AdamW stored and restored once, or up to 20 times at even distances, in each of the
forms of states.py; the weights come back exactly. Writes into RESULTS what this does to the loss on text that is not trained
on, and to the weights: convergence*.tsv, .md and, with gnuplot, .svg. Prints PASS or FAIL, and ends with 1 after a FAIL:
  lossless   the run ends at the same bits
  resume     at every number of restores the loss stays within the spread of other orders of the text, and the weights'
             distance within 1 % of the way that they have gone since the first restore
--quick trains a toy, to see that everything works: its figures mean nothing, and only lossless has to pass.
Example: convergence.py build/train_gpt build/bitsnap build/convergence.run bench/results"""
import argparse
import concurrent.futures
import glob
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report
from report import numpy
import states

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 0.01  # largest distance of the weights after `resume`, relative to the way since the first restore
COLUMNS = ["form", "restores", "m_bits", "v_bits", "m_huffman", "v_huffman", "v_zeroed", "update_l2", "update_worst", "loss", "loss_difference",
           "loss_in_spreads", "loss_worst", "distance"]


# ------------------------------------------------------------------------------------------------------------- runs of the
# trainer

def path(folder, step, kind):
    return os.path.join(folder, f"gpt-{step:05}-{kind}.safetensors")


def undisturbed(o):
    return os.path.join(o.scratch, "seed-1")


def new_folder(o, name):
    folder = os.path.join(o.scratch, name.replace("/", "-").replace(" ", "-"))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def train(o, folder, seed, save, resume=None):
    """Trains up to the last step in `save`. Returns False if the training diverges."""
    command = [o.trainer, "--quiet", "--threads", "1", "--steps", str(o.steps), "--until", str(save[-1]), "--save", ",".join(map(str, save)),
               "--seed", str(seed), "--beta2", str(o.beta2), "--out", folder, "--log", os.path.join(folder, "log.csv"), *o.model.split(),
               "--text", os.path.join(o.scratch, "seen.txt")]
    if save[-1] == o.steps:
        command += ["--validate", os.path.join(o.scratch, "unseen.txt")]
    if resume:
        command += ["--resume", resume]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "diverged" not in done.stderr:
        sys.exit(f"{done.stderr.strip()}\n{' '.join(command)}")
    return done.returncode == 0


def losses(folder):
    """Returns the loss of each step's batch, and the last loss on unseen text."""
    with open(os.path.join(folder, "log.csv"), encoding="utf-8") as f:
        rows = [line.rstrip("\n").split(",") for line in f if not line.startswith("step")]
    return {int(row[0]): float(row[1]) for row in rows}, ([math.nan] + [float(row[4]) for row in rows if row[4]])[-1]


def weights(folder, step):
    return states.read(path(folder, step, "master")).values.astype(numpy.float64)


def write_texts(o):
    """Writes the project's sources and documents as text. Every 32nd piece of 4 KiB is kept for validation."""
    root, whole = os.path.join(HERE, "..", ".."), b""
    for pattern in ("bitsnap*.h", "docs/*.md", "docs/examples/*.c", "docs/examples/tool/*/*.c", "tests/*/*.c"):
        for name in sorted(glob.glob(os.path.join(root, pattern))):
            with open(name, "rb") as f:
                whole += f.read()
    pieces = [whole[i:i + 4096] for i in range(0, len(whole), 4096)]
    for name, unseen in (("seen.txt", False), ("unseen.txt", True)):
        with open(os.path.join(o.scratch, name), "wb") as f:
            f.write(b"".join(piece for i, piece in enumerate(pieces) if (i % 32 == 31) == unseen))


def from_start(o, seed):
    """A run with other initial weights and another order of the text. Seed 1 is the undisturbed run."""
    folder = new_folder(o, f"seed {seed}")
    train(o, folder, seed, [o.first, o.first + 1, o.steps])
    return losses(folder)


def other_order(o, seed):
    """Follows the undisturbed run until the first restore, then takes another order of the text."""
    folder = new_folder(o, f"order {seed}")
    train(o, folder, seed, [o.steps], os.path.join(undisturbed(o), f"gpt-{o.first:05}"))
    found = losses(folder)
    shutil.rmtree(folder)
    return found


def forms(o, scratch):
    """Returns the forms of states.py, with a lossless one first and one_ulp last, for comparison."""
    return {"lossless": states.lossless, **states.forms(o.tool, scratch), "one ulp": states.one_ulp}


def restored(o, name, restores):
    """Continues from the first restore. Returns the losses, and the distance of the weights from the undisturbed run, relative to
    the way that this run went since; NaN if the training diverged."""
    folder, base = new_folder(o, f"{name} {restores}"), undisturbed(o)
    scratch = os.path.join(folder, "form")
    os.makedirs(scratch)
    form = forms(o, scratch)[name]
    steps = [o.first + i * (o.steps - o.first) // restores for i in range(restores + 1)]
    source, good = base, True
    for start, end in zip(steps, steps[1:]):
        shutil.copyfile(path(source, start, "master"), path(scratch, start, "master"))
        for kind, moment in (("exp_avg", "m"), ("exp_avg_sq", "v")):
            file = states.read(path(source, start, kind))
            states.write(path(scratch, start, kind), file.head, form(file, moment).values)
        good = train(o, folder, 1, [end], os.path.join(scratch, f"gpt-{start:05}"))
        if not good:
            break
        for old in glob.glob(path(scratch, start, "*")) + (glob.glob(path(folder, start, "*")) if source == folder else []):
            os.remove(old)
        source = folder
    found, distance = losses(folder), math.nan
    if good:
        end = weights(base, o.steps)
        distance = float(numpy.linalg.norm(weights(folder, o.steps) - end) / numpy.linalg.norm(end - weights(base, o.first)))
    shutil.rmtree(folder)
    return *found, distance


def first_restore(o, name):
    """Returns the bits an element of m and v, the number of elements of v that become 0, and the error of the next update."""
    base = undisturbed(o)
    m, v = states.read(path(base, o.first, "exp_avg")), states.read(path(base, o.first, "exp_avg_sq"))
    after = states.read(path(base, o.first + 1, "exp_avg")).values.astype(numpy.float64)
    gradient = (after - states.BETA1 * m.values) / (1 - states.BETA1)  # the gradient of the undisturbed run
    with tempfile.TemporaryDirectory() as scratch:
        form = forms(o, scratch)[name]
        a, b = form(m, "m"), form(v, "v")
    n = len(m.values)
    return [a.bits / n, b.bits / n, *(x.huffman / n if x.huffman else math.nan for x in (a, b)), int(((v.values != 0) & (b.values == 0)).sum()),
            *states.update_error(m.values, v.values, a.values, b.values, gradient, o.beta2, o.first)]


# ------------------------------------------------------------------------------------------------------------------------ results

def write_curves(o, curves):
    """Writes a column for each run and a row for each step, smoothed over 10 steps, because the loss of a batch is noisy."""
    rows = []
    for step in range(o.first + 1, o.steps + 1):
        window = range(max(o.first + 1, step - 9), step + 1)
        rows.append([step] + [sum(run.get(i, math.nan) for i in window) / len(window) for run in curves.values()])
    report.write_tsv(o.results, "convergence-curves", "Loss of the batches, mean of 10 steps", [
        f"With {o.counts[-1]} restores since step {o.first}; order N: no restore, another order of the text."], ["step", *curves], rows)


def write_tables(o, table, spread, spread_seeds, elements, said):
    about = ["A toy: its figures mean nothing."] * o.quick + [
             f"{elements} parameters, {o.steps} steps, beta2 {o.beta2}; the moments are restored first after step {o.first}.",
             f"Undisturbed: loss {table[0][COLUMNS.index('loss')]:.6f} on unseen text. Spread: standard deviation {spread:.6f} with other orders",
             f"of the text since the first restore, {spread_seeds:.6f} with other seeds from the start ({o.seeds} runs and the undisturbed, each)."]
    report.write_tsv(o.results, "convergence", "Training on with restored moments", about + [
        "Bits an element at the first restore; huffman: with an order-0 stage, too. v_zeroed: elements of v not 0 that become 0.",
        "update: the first one behind the first restore; its relative L2 error, and its worst element in units of the learning rate.",
        "loss: on unseen text at the end; its difference to the undisturbed run, and in spreads of the order. loss_worst: the largest difference",
        "of a batch's loss. distance: of the weights from the undisturbed run's at the end, in parts of the way these went since the first",
        "restore. one ulp: the last bit of every moment changed, the smallest change there is. -: not measured, or the training diverged."], COLUMNS, table)
    at = COLUMNS.index
    rows = []
    for name in dict.fromkeys(row[0] for row in table):
        mine = {row[1]: row for row in table if row[0] == name}
        first = mine[o.counts[0]]
        rows.append([name, *(report.show(first[at(c)]) for c in ("m_bits", "v_bits", "v_zeroed")), report.show(first[at("update_l2")], True),
                     report.show(first[at("update_worst")])] +
                    [report.show(mine[n][at(c)], c == "distance") if n in mine else "" for c in ("loss_difference", "distance") for n in o.counts])
    report.write_markdown(o.results, "convergence", "Training on with restored moments", " ".join(about) +
                          " The columns are explained in convergence.tsv.\n\n" + "\n".join("- " + line for line in said),
                          ["form", "m, bits", "v, bits", "v to 0", "next update, L2", "worst / lr", *(f"loss, {n}x" for n in o.counts),
                           *(f"distance, {n}x" for n in o.counts)], rows)


def verdicts(o, table, spread):
    """Returns the lines to print, and whether a required one has failed."""
    rows = [dict(zip(COLUMNS, row)) for row in table]
    exact = all(row["distance"] == 0 and row["loss_difference"] == 0 for row in rows if row["form"] == "lossless")
    said, failed = [report.verdict(exact, "lossless: the same bits as the undisturbed run")], not exact
    for row in rows:
        if row["form"].split()[0] == "resume":
            good = abs(row["loss_difference"]) <= spread and row["distance"] <= LIMIT
            said.append(report.verdict(good, f"{row['form']}, {row['restores']} restores: loss {row['loss_difference']:+.6f}, spread {spread:.6f}; "
                                             f"weights' distance {100 * row['distance']:.3f} %, limit {100 * LIMIT:g} %"))
            failed |= not good and not o.quick
    return said, failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trainer", "tool", "scratch", "results"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--quick", action="store_true", help="a toy")
    parser.add_argument("--beta2", type=float, default=0.95, metavar="X", help="of AdamW [0.95]")
    parser.add_argument("--first", type=int, default=100, metavar="STEP", help="the first restore [100]")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="length of the run [300]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time [one a processor]")
    o = parser.parse_args()
    o.model, o.seeds, o.counts = "--layers 4 --dim 128 --context 64 --batch 8", 4, [1, 2, 5, 10, 20]
    if o.quick:
        o.model, o.seeds, o.counts, o.first, o.steps = "--layers 1 --dim 32 --heads 2 --context 32 --batch 2", 2, [1, 20], 20, 40
    if o.first < 1 or o.steps <= o.first or (o.steps - o.first) % 20:
        parser.error("--steps less --first should be a multiple of 20")
    return o


def main():
    o = arguments()
    os.makedirs(o.scratch, exist_ok=True)
    os.makedirs(o.results, exist_ok=True)
    write_texts(o)
    start = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - start:5.0f} s  {text}", flush=True)

    stored = states.forms(o.tool, o.scratch)
    names = ["lossless", *stored, "one ulp"]
    with concurrent.futures.ProcessPoolExecutor(o.jobs) as pool:
        seeds = [pool.submit(from_start, o, seed) for seed in range(1, o.seeds + 2)]
        straight, final = seeds[0].result()
        say(f"undisturbed: loss {final:.6f}")
        orders = [pool.submit(other_order, o, seed) for seed in range(2, o.seeds + 2)]
        firsts = {name: pool.submit(first_restore, o, name) for name in names}
        runs = {(name, n): pool.submit(restored, o, name, n) for name in names
                for n in (o.counts if name in stored else [o.counts[0], o.counts[-1]])}
        spread, spread_seeds = (float(numpy.std([final] + [run.result()[1] for run in group], ddof=1)) for group in (orders, seeds[1:]))
        say(f"spread of the loss: {spread:.6f} with other orders of the text, {spread_seeds:.6f} with other seeds")
        table = []
        for (name, n), run in runs.items():
            curve, loss, distance = run.result()
            worst = max(abs(curve[step] - straight[step]) for step in curve)
            table.append([name, n, *firsts[name].result(), loss, loss - final, (loss - final) / spread, worst, distance])
            say(f"{name}, {n} restores: loss {loss - final:+.6f}, distance {100 * distance:.3f} %")
    curves = {"undisturbed": straight, **{name: runs[name, o.counts[-1]].result()[0] for name in names},
              **{f"order {i}": run.result()[0] for i, run in enumerate(orders, 2)}}
    write_curves(o, curves)
    said, failed = verdicts(o, table, spread)
    write_tables(o, table, spread, spread_seeds, len(weights(undisturbed(o), o.first)), said)
    if shutil.which("gnuplot"):
        subprocess.run(["gnuplot", "-e", f"results='{o.results}'", os.path.join(HERE, "plots.gp")], check=True)
    else:
        print(f"SKIP pictures: needs gnuplot (Debian: gnuplot-nox); the figures are in {o.results}")
    print("\n".join(said))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
