/* study: measures how checkpoints change, and the size of the change in every form that has been proposed for it.
 *
 * `make study` trains, runs every mode and draws pictures. build/study --help lists modes and options. */
#include "study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: study MODE FROM [options]\n"
    "\n"
    "Measures the change from one checkpoint to another: how many elements, the entropy of their bytes, and its size in\n"
    "every form. Prints a table; all that is not merely counted is restored and compared.\n"
    "\n"
    "modes\n"
    "  --steps DIR     between the checkpoints that train_gpt has left in DIR, from every 25th step to those 1, 5 and 25\n"
    "                  behind it: weights, master copy and both moments; the table shows every hundredth, the file all\n"
    "  --rates FILE    of 16 Mi elements of the bf16 weights in FILE, repeated as needed, a share of 0 to 1 changed by\n"
    "                  one unit in the last place\n"
    "  --pairs DIR     between the checkpoints in DIR whose names are known: bf16-1000 and bf16-1001 and the like\n"
    "\n"
    "options\n"
    "  --out FILE      write all figures there, separated by tabs\n"
    "  --quick         --rates: 1 Mi elements, few rates; --pairs: without zstd -19\n"
    "\n"
    "forms\n"
    "  full            bitsnap without a base\n"
    "  default, best   bitsnap with a base, by level; self: default and self-contained\n"
    "  xor-huffman     XOR, byte planes, runs and Huffman as in LMC (arXiv 2505.09810)\n"
    "  xor-zstd-1, -19 XOR, byte planes, zstd\n"
    "  mask            a bit for each element, then those that have changed (BitSnap, arXiv 2511.12376); counted\n"
    "  pairs           those that have changed, each with its index in 32 bits; counted\n"
    "  gaps            those that have changed, each with its distance in 16 bits; counted\n"
    "\n"
    "examples:\n"
    "  study --steps build/study.run --out steps.tsv\n"
    "  study --rates checkpoints/gpt-00400-model.safetensors --quick\n"
    "  study --pairs checkpoints --out pairs.tsv\n"
    "\n"
    "exit status: 0 done, 1 something failed, 2 wrong usage\n";

void stop(const char *what, const char *detail)
{
    fflush(stdout);
    fprintf(stderr, "study: %s%s\n", what, detail);
    exit(1);
}

static void usage(const char *what, const char *detail)
{
    fprintf(stderr, "study: %s%s\nTry study --help.\n", what, detail);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const options *);
    } modes[] = {{"--steps", study_steps}, {"--rates", study_rates}, {"--pairs", study_pairs}};
    enum { MODES = sizeof modes / sizeof *modes };
    options o = {NULL, NULL, 0};
    size_t mode = MODES;
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            return fflush(stdout) != 0;
        }
        if (!strcmp(argv[i], "--quick")) {
            o.quick = 1;
            continue;
        }
        while (k < MODES && strcmp(argv[i], modes[k].name) != 0) k++;
        if (k == MODES && strcmp(argv[i], "--out") != 0) usage("no such option: ", argv[i]);
        if (i + 1 == argc) usage("a value is missing: ", argv[i]);
        if (k < MODES && mode < MODES) usage("one mode at a time: ", argv[i]);
        if (k == MODES) o.out = argv[i + 1];
        else o.from = argv[i + 1], mode = k;
        i++;
    }
    if (mode == MODES) usage("what to measure?", "");
    modes[mode].run(&o);
    if (fflush(stdout) != 0 || ferror(stdout)) stop("cannot write to standard output", "");
    return 0;
}
