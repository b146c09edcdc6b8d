/* help.c - the help texts of the tool and of each command.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "help.h"

#include "bitsnap.h"

#include <stdio.h>

static const char general[] =
    "bitsnap - lossless compression of tensor checkpoints\n"
    "\n"
    "  bitsnap compress FILE...      FILE.bsnap for each .safetensors file\n"
    "  bitsnap decompress FILE...    the original file, byte for byte\n"
    "  bitsnap test FILE...          checks everything, writes nothing\n"
    "  bitsnap info FILE...          tensors, sizes, forms, the order-0 bound\n"
    "  bitsnap compare FILE FILE     tensor by tensor: equal, or how far apart\n"
    "  bitsnap apply DELTA FILE      changes a .safetensors file to the delta's result\n"
    "  bitsnap merge DELTA DELTA...  one delta from consecutive ones\n"
    "  bitsnap invert DELTA          the delta that leads back\n"
    "  bitsnap benchmark FILE...     ratio and speed, in memory\n"
    "  bitsnap extract FILE NAME...  tensors, or parts of them, without reading the rest\n"
    "  bitsnap snapshot STORE FOLDER adds a checkpoint to a store, as a step\n"
    "  bitsnap log STORE             the steps of a store\n"
    "  bitsnap restore STORE STEP    a step as a folder\n"
    "  bitsnap verify STORE          checks that every step can be restored\n"
    "  bitsnap prune STORE           removes steps, and what only they needed\n"
    "  bitsnap fsck STORE            rebuilds the list of steps, if it is damaged\n"
    "\n"
    "c, d, t, i and b are short for compress, decompress, test, info and benchmark.\n"
    "bitsnap help COMMAND, or bitsnap COMMAND --help, explains a command.\n"
    "\n"
    "Examples\n"
    "  bitsnap compress model.safetensors            writes model.safetensors.bsnap\n"
    "  bitsnap info model.safetensors.bsnap\n"
    "  bitsnap d -c model.safetensors.bsnap | sha256sum\n"
    "  bitsnap compress -f -l best --rm model.safetensors   smaller, slower; replaces\n"
    "                                                the .bsnap file, removes the other\n"
    "  bitsnap decompress model.safetensors.bsnap    writes model.safetensors again\n"
    "\n"
    "Whole folders: tensor files are packed, all others copied\n"
    "  bitsnap compress -r checkpoint -o packed      all or nothing; if interrupted, the\n"
    "                                                same command resumes\n"
    "  bitsnap test -r packed\n"
    "  bitsnap decompress -r packed -o again\n"
    "\n"
    "A delta stores only what differs from another file, its base (-b)\n"
    "  bitsnap compress -b step1.safetensors -o step2.delta step2.safetensors\n"
    "  bitsnap decompress -b step1.safetensors -o copy.safetensors step2.delta\n"
    "  cp step1.safetensors live.safetensors\n"
    "  bitsnap apply step2.delta live.safetensors    step 1 becomes step 2 in place,\n"
    "                                                all or nothing\n"
    "\n"
    "A store keeps the checkpoints of a run, each as what has changed since the last\n"
    "  bitsnap snapshot run.store checkpoint --step 1000\n"
    "  bitsnap restore run.store 1000 -o restored\n"
    "  bitsnap prune run.store --keep-last 5\n"
    "\n"
    "A FILE of - is standard input. An output gets its name only when it is complete\n"
    "and on disk. The exit status is 0 for success, 1 after an error (one line on\n"
    "standard error names it), 2 if the command line is wrong; compare has its own.\n"
    "\n"
    "Options of all commands\n";

static const char common_options[] =
    "  -T, --threads N      threads; 0 for one on each processor that the process may\n"
    "                       use. Default 0, for benchmark 1\n"
    "  -M, --memory SIZE    memory limit for threads, their windows and a packed BASE,\n"
    "                       such as 300M; by default an eighth of the machine's memory,\n"
    "                       or of the limit of its control group\n"
    "  -q, --quiet          prints only errors\n"
    "  -v, --verbose        prints more\n"
    "      --json           prints JSON on standard output, one line with an object\n"
    "                       for each file (docs/TOOL.md has their members)\n"
    "      --bytes          sizes as numbers of bytes, not as KiB, MiB, ...\n"
    "      --no-progress    no progress line; there is only one if standard error is a\n"
    "                       terminal\n"
    "  -h, --help           what a command does, and its options\n"
    "  -V, --version        the version\n"
    "      --               all that follows are files, even if they begin with -\n";

static const char recursive_text[] =
    "  -r, --recursive      FILE may be a folder: takes all tensor files in it and its\n"
    "                       folders, .safetensors to be compressed, else .bsnap\n"
    "      --files-from LIST\n"
    "                       also takes FILEs from the lines of LIST; - is standard input\n"
    "  -0, --null           each name in LIST ends with a zero byte, as with find -print0\n";

static const char chosen_text[] =
    "  -L, --dereference    follows links to files in folders. By default links are not\n"
    "                       followed, and those that lead out of a folder are reported\n"
    "      --include GLOB   in folders, takes only files of this name, such as 'model-*';\n"
    "                       a GLOB with a slash is matched with the path from the folder\n"
    "                       on. May be given several times\n"
    "      --exclude GLOB   in folders, leaves out files and folders of this name\n";

static const char whole_folder_text[] =
    "  -r FOLDER -o OTHER   makes OTHER from all of FOLDER: copies all but tensor files,\n"
    "                       keeps links. OTHER appears when it is complete and on disk.\n"
    "                       Until then it is .bitsnap-part~OTHER, from which the same\n"
    "                       command resumes. -f replaces an existing OTHER as a whole.\n"
    "                       A BASE is then a folder, too\n"
    "      --tensors-only   with -r and -o: leaves out all but tensor files\n";

static const char outputs_text[] =
    "  -o FOLDER/           puts the outputs of one or several FILEs into that folder\n"
    "      --skip-existing  leaves out each FILE whose output exists; with --rm, removes it\n"
    "                       if one decodes to the other, else that is an error\n";

static const char temp_text[] =
    "      --temp DIR       the folder for temporary files: what comes from a pipe and is\n"
    "                       read more than once, and the decoded results of merge and\n"
    "                       invert with -b. Needs as much room; default $TMPDIR, else\n"
    "                       /tmp\n";

static const char base_text[] =
    "  -b, --base BASE      what a delta is against: a .safetensors file, or a .bsnap\n"
    "                       file of one, which is decoded as needed. Several are a\n"
    "                       chain: the first is whole, each other one is a delta to the\n"
    "                       one before it, or whole again. compress, decompress, test\n"
    "                       and info also take folders, each with the files of one\n"
    "                       model, whichever files its tensors are in\n";

static const char beside_text[] =
    "                       (without -b, the file that a delta names is looked for in\n"
    "                       its folder, plain or as a .bsnap file, and reported)\n";

static const char compress_text[] =
    "bitsnap compress FILE... - writes FILE.bsnap for each FILE\n"
    "\n"
    "FILE is a .safetensors file, recognised by its content, or with --dtype raw\n"
    "little-endian elements. The output restores it byte for byte, and has checks\n"
    "for all of it. Memory does not depend on the size of FILE.\n"
    "\n"
    "  -o, --output FILE    the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -\n"
    "  -f, --force          replaces an existing output; never a file that the command\n"
    "                       reads\n"
    "  -l, --level LEVEL    fast, default or best\n"
    "      --dtype NAME     FILE holds raw elements, whatever it looks like: bf16 f16\n"
    "                       f32 f64 f8_e4m3 f8_e5m2 i8 i16 i32 i64 bool (u8 to u64\n"
    "                       are the same as i8 to i64)\n"
    "      --rm             removes FILE once its output, which must be a file, is\n"
    "                       complete and on disk, if FILE has not changed\n"
    "      --sha256         adds a SHA-256 of the source, against forgery; test and\n"
    "                       decompress verify it\n"
    "      --no-references  no tensor is coded against an earlier one of FILE, or with -r\n"
    "                       against other files of its folder; readers of the output\n"
    "                       then need keep nothing, and no other file\n"
    "      --partners       looks for equal elements anywhere in FILE, under any names,\n"
    "                       not for equal tensors alone; level best does so anyway\n"
    "      --self-contained with -b: a delta that can be merged without its base, and\n"
    "                       inverted if no part of it is smaller without the base;\n"
    "                       larger by a tenth to a third\n"
    "      --rename FROM=TO with -b: tensors whose names begin with FROM have TO in its\n"
    "                       place in BASE; several times: the first that fits\n"
    "      --align SIZE     each frame begins at a multiple of SIZE bytes, a power of two\n"
    "                       from 512 to 1M, for programs that map the file; 4096 suits\n"
    "                       pages. Costs half of SIZE for each frame\n"
    "      --max-output SIZE\n"
    "                       with -b: the largest size that a .bsnap BASE may expand to,\n"
    "                       such as 500M (of 2^20 bytes) or 2T\n"
    "\n"
    "With -b the output is a delta: it stores the differences between FILE and BASE,\n"
    "and restoring needs BASE. Tensors are paired by name, dtype and shape, in\n"
    "whatever order; F16 and BF16 tensors also with F32 tensors, their master copies,\n"
    "and F32 tensors with them. Names may differ by a leading module., _orig_mod. or\n"
    "model., and shapes in the number of rows, as of a vocabulary that has grown.\n"
    "A tensor without a counterpart, or with one that does not help in samples, is\n"
    "compressed alone; -v names it. If no tensor gains, a warning says so, and the\n"
    "output is as without -b, and needs no BASE. (A FILE from a pipe cannot be\n"
    "sampled.)\n"
    "\n";

static const char adam_text[] =
    "Everything is restored bit for bit, except what --adam names: it quantizes the\n"
    "moments of Adam, m (exp_avg) and v (exp_avg_sq). POLICY is\n"
    "  exact                nothing is quantized\n"
    "  resume               m LOG-70, v LOG-35: an update is at most 1.0 % off\n"
    "  standard             m LOG-16, v LOG-8: at most 4.5 %\n"
    "  small                m LOG-8, v LOG-4: at most 9.2 %\n"
    "  stage, stage=RATE    as coarse as the size of the updates at this learning rate\n"
    "                       (0.001) allows, between small and resume\n"
    "  clusters, clusters=N N clusters of each block, 2 to 256 (16), as in the paper\n"
    "                       BitSnap, arXiv 2511.12376: for comparison, without a bound\n"
    "  m=LOSS,v=LOSS        LOSS: a relative error (0.5% or 0.005), LOG-70, or lossless;\n"
    "                       a moment that is not named stays exact\n"
    "No element's relative error exceeds its bound; zeros, infinities and NaNs do not\n"
    "change. With clusters there is no bound, and zeros may change. Moments are\n"
    "recognised by the name of the tensor (exp_avg, adam_m, first_moment, moment1, mu\n"
    "if there is a nu, and their counterparts), else of the file; the longest of these\n"
    "words counts. Parts of moments that are quantized already (exp_avg.scale) stay\n"
    "exact, as does a moment whose size is not that of its weight or of the other\n"
    "moment; -v names them. A v with negative elements is not a second moment: it and\n"
    "its m stay exact, with a warning. (FILE is searched for such elements first. In a\n"
    "pipe that is impossible: there they are an error.)\n"
    "\n"
    "      --adam POLICY    quantizes moments; reports the result on standard error\n"
    "      --adam-min N     tensors of fewer elements stay exact; 4096 by default\n"
    "      --weights FILE   for stage: the file with the weights; by default one beside\n"
    "                       FILE, called master, model, weights or bf16 where FILE has\n"
    "                       the word for the moment, else FILE itself\n"
    "      --dry-run        prints how each tensor would be stored, why, and what that\n"
    "                       saves: compresses in memory, writes nothing\n"
    "\n";

static const char compress_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap compress model.safetensors\n"
    "  bitsnap compress --adam standard optimizer.safetensors\n"
    "  bitsnap compress --adam m=0.5%,v=1% --dry-run optimizer.safetensors\n"
    "  bitsnap compress -f --adam stage=3e-4 --weights model.safetensors optimizer.safetensors\n"
    "  bitsnap compress -r checkpoint -o packed --exclude '*.tmp'\n"
    "  bitsnap compress -l fast -o backup/model.bsnap model.safetensors\n"
    "  curl -s https://example.org/model.safetensors | bitsnap compress - >model.bsnap\n"
    "  bitsnap compress --dtype bf16 weights.bin\n"
    "  bitsnap compress -b step1.safetensors -o step2.delta step2.safetensors\n"
    "  bitsnap compress -b step1.safetensors -b step2.delta -o step3.delta step3.safetensors\n"
    "  bitsnap compress -b step1.safetensors --rename encoder.=bert. -o step2.renamed step2.safetensors\n"
    "  bitsnap compress -b master.safetensors -o model.delta model.bf16.safetensors\n";

static const char max_output_text[] =
    "      --max-output SIZE\n"
    "                       the largest size that FILE may expand to, such as 500M (of\n"
    "                       2^20 bytes) or 2T. By default a file is refused if it expands\n"
    "                       to more than 4 GiB and to more than 256 times its size:\n"
    "                       a few bytes can be made to fill every disk\n";

static const char decompress_text[] =
    "bitsnap decompress FILE... - restores the file that FILE holds, byte for byte\n"
    "\n"
    "The output has the name of FILE without .bsnap. It appears only if every check\n"
    "succeeds. If FILE was made with --adam, a line on standard error says that the\n"
    "output differs from what was compressed.\n"
    "\n"
    "  -o, --output FILE    the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -; what was written before an error was found\n"
    "                       stays written\n"
    "  -f, --force          replaces an existing output\n"
    "      --rm             removes FILE once the output, which must be a file, is\n"
    "                       complete and on disk, if FILE has not changed\n";

static const char decompress_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap decompress model.safetensors.bsnap\n"
    "  bitsnap decompress -r packed -o checkpoint\n"
    "  bitsnap decompress -o copy.safetensors model.safetensors.bsnap\n"
    "  ssh host cat model.safetensors.bsnap | bitsnap decompress - >remote.safetensors\n"
    "  bitsnap decompress -b step1.safetensors -o step2.safetensors step2.delta\n"
    "  bitsnap decompress -b step1.bsnap -b step2.delta -o step3.safetensors step3.delta\n";

static const char test_text[] =
    "bitsnap test FILE... - decodes everything, checks everything, writes nothing\n"
    "\n"
    "Prints \"FILE: ok\", or what is wrong and where; for a FILE made with --adam also\n"
    "the errors of its elements, and whether they are within the bounds. The checks\n"
    "detect accidents, not forgery.\n"
    "\n";

static const char test_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap test *.bsnap\n"
    "  bitsnap test -r packed\n"
    "  bitsnap test -q model.safetensors.bsnap && rm model.safetensors\n"
    "  bitsnap test -b step1.safetensors step2.delta\n";

static const char info_text[] =
    "bitsnap info FILE... - the tensors of a .bsnap file and their sizes\n"
    "\n"
    "For a .safetensors file: what compressing it would save. It is compressed in\n"
    "memory to find that out; not with --no-bound.\n"
    "\n"
    "The first table has the bits/element and ratio of each tensor: its share of the\n"
    "blocks that hold it. \"order-0\" is the order-0 bound in bits per element: the size\n"
    "of a code that does not use neighbours. For every 65,536 elements it is the\n"
    "smallest of three: exponents coded, and all other bits that are not constant\n"
    "there as they are; the same with zeros coded apart; each byte coded. For integers\n"
    "it is the last. A file may be smaller if zeros come in rows or elements repeat.\n"
    "The bound takes decoding all elements, which also checks them; --no-bound reads\n"
    "only sizes, which is quick. -q leaves the tables out. The line `check`, and\n"
    "\"check\" of --json, is the check of the file's end record: it identifies the file.\n"
    "It is not a signature: it detects accidents, not forgery.\n"
    "\n"
    "The second table shows how the blocks are coded: the number of blocks of each\n"
    "form, the sizes of their parts, and those of each kind of list; with -v for every\n"
    "frame. PARTED blocks have two kinds of elements, such as zeros and others, each\n"
    "coded apart. The words are those of docs/FORMAT.md, sections 4 and 5.\n"
    "\n"
    "For deltas: the base that they were made against, by size and id, and for each\n"
    "frame how many cells (elements that are coded together) are equal to the base's,\n"
    "coded as differences to them, or coded without them. With the base from -b all is\n"
    "decoded, which gives the number of changed elements of each tensor, block and\n"
    "class; without it only blocks of one class have that number. Tensors are named if\n"
    "the base is given with -b or as the file before. A delta after another file is\n"
    "reported to follow it or not.\n"
    "\n"
    "For quantized tensors (compress --adam): the bins of an octave, columns, the bound\n"
    "of relative errors, the largest that was measured when they were encoded, and for\n"
    "m beside its v the bound of an update's error. With -v also the mean relative\n"
    "error, the mean square error, the largest absolute error, and the number of exact\n"
    "elements.\n"
    "\n"
    "      --no-bound       without the bound, and how blocks are coded\n"
    "      --chain          every file must follow the one before, else status 1\n";

static const char info_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap info model.safetensors.bsnap\n"
    "  bitsnap info -v -b step1.safetensors step2.delta\n"
    "  bitsnap info --no-bound --json model.safetensors.bsnap\n"
    "  bitsnap info -q --chain step1.bsnap step2.delta step3.delta\n";

static const char compare_text[] =
    "bitsnap compare FILE FILE - two files, tensor by tensor\n"
    "\n"
    "Each FILE is a .safetensors or a .bsnap file, or with --dtype raw elements.\n"
    "Tensors are matched by name, in whatever order. With -b one FILE or both may be\n"
    "deltas to BASE. In two folders, all .safetensors and .bsnap files are compared,\n"
    "tensor by tensor, whichever files the tensors are in; header texts and other\n"
    "files are not (use diff -r). The exit status is 0 if the files hold the same\n"
    "bytes, header texts included, 1 if they do not, and 2 after an error. Equal\n"
    "tensors are listed only with -v.\n"
    "\n"
    "For tensors of floats (F8_E4M3 F8_E5M2 F16 BF16 F32 F64) that differ, in double\n"
    "precision, over all elements a of the first and b of the second file:\n"
    "  max abs   the largest |b - a|            MSE   the mean of (b - a)^2\n"
    "  max rel   the largest |b - a| / |a|      MRE   the mean of |b - a| / |a|\n"
    "A zero that became another number has no relative error: \"from zero\" counts these.\n"
    "A pair with an infinity or a NaN has no error at all: \"not finite\" counts those\n"
    "that differ, except NaNs that became other NaNs.\n"
    "\n"
    "If a tensor is quantized in one of the files, it is compared with the other's; the\n"
    "exit status is also 0 if nothing differs by more than its bound.\n"
    "\n"
    "      --dtype NAME     files other than .bsnap hold raw elements\n"
    "      --adam POLICY    the bounds, if the second file was restored from a .bsnap file\n"
    "                       that was made with POLICY; see bitsnap compress --help\n"
    "      --adam-min N     likewise\n";

static const char compare_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap compare model.safetensors model.safetensors.bsnap\n"
    "  bitsnap compare step1000.bsnap step2000.bsnap\n"
    "  bitsnap compare checkpoint packed\n"
    "  bitsnap compare -q a.safetensors b.safetensors && echo they are equal\n"
    "  bitsnap compare -b step1.safetensors step2.safetensors step2.delta\n"
    "  bitsnap compare --adam standard states.safetensors restored.safetensors\n";

static const char apply_text[] =
    "bitsnap apply DELTA FILE - changes FILE to what DELTA was made from\n"
    "\n"
    "FILE is the .safetensors file that DELTA was made against. The result is written\n"
    "to the same folder, and replaces FILE when it is complete, checked and on disk:\n"
    "until then, and after every error, FILE is unchanged. If FILE is the result\n"
    "already, a line says so and nothing changes, so applying twice is harmless. A\n"
    "DELTA of - is standard input. Deltas to a master copy are refused. If another file\n"
    "is renamed to FILE while the command runs, that file stays.\n"
    "\n"
    "bitsnap apply DELTAS FOLDER does the same for a folder. compress -r -b FOLDER\n"
    "-o DELTAS makes DELTAS. FOLDER becomes the folder that was compressed, completely\n"
    "or not at all: a new folder is made beside it, then the two are exchanged. Before\n"
    "anything is written, every delta is compared with what it was made against. After\n"
    "an interruption the same command resumes.\n"
    "\n"
    "  -f, --force          also if FILE is read-only, as shared files are; through a\n"
    "                       symbolic link, all links to the file get the result. In\n"
    "                       FOLDER, what DELTAS does not have is removed: without -f\n"
    "                       that is an error\n";

static const char apply_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap apply step2.delta live.safetensors\n"
    "  bitsnap apply deltas live\n"
    "  ssh host cat step2.delta | bitsnap apply - live.safetensors\n";

static const char merge_text[] =
    "bitsnap merge DELTA DELTA... -o FILE - one delta from consecutive ones\n"
    "\n"
    "FILE is a delta from the base of the first to the result of the last. Without the\n"
    "base this works if they were made with --self-contained, or, for others, if few\n"
    "elements changed; with -b always.\n"
    "\n";

static const char merge_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap merge monday.delta tuesday.delta wednesday.delta -o week.delta\n"
    "  bitsnap merge -b sunday.safetensors monday.delta tuesday.delta -o both.delta\n";

static const char invert_text[] =
    "bitsnap invert DELTA -o FILE - the delta back, from the result to the base\n"
    "\n"
    "Without the base this works if DELTA was made with --self-contained, no part of it\n"
    "was smaller without the base, and no tensors were removed; with -b always.\n"
    "\n";

static const char invert_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap invert step2.delta -o back.delta && bitsnap apply back.delta live.safetensors\n"
    "  bitsnap invert -b step1.safetensors step2.delta -o other.delta\n";

static const char algebra_options[] =
    "  -o, --output FILE    the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -\n"
    "  -f, --force          replaces an existing output\n"
    "  -l, --level LEVEL    with -b: fast, default or best\n"
    "      --self-contained with -b: the output can be merged without it, and inverted\n"
    "                       if no part of it is smaller without the base\n"
    "      --max-output SIZE\n"
    "                       the largest size that a file, or a part that has to be\n"
    "                       decoded, may expand to (see bitsnap decompress --help)\n";

static const char benchmark_text[] =
    "bitsnap benchmark FILE... - how small, and how fast, in memory\n"
    "\n"
    "FILE is a .safetensors file, or with --dtype raw elements. All of it is read into\n"
    "memory; then its elements are compressed and decompressed repeatedly for a second,\n"
    "and the fastest of each is printed: GB of elements per second in and out, content\n"
    "ids included. \"ratio\" is that of the .bsnap file.\n"
    "\n"
    "  -l, --level LEVEL    fast, default or best\n"
    "      --dtype NAME     FILE holds raw elements\n";

static const char benchmark_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap benchmark *.safetensors\n"
    "  bitsnap benchmark -T 0 -l fast model.safetensors\n";

static const char extract_text[] =
    "bitsnap extract FILE NAME... -o OUTPUT - tensors of FILE, or parts of them\n"
    "\n"
    "FILE is a .safetensors or a .bsnap file, or a folder of such files. NAME is that of a\n"
    "tensor, or, if no tensor has that name, a GLOB such as 'layers.0.*'; in a folder\n"
    "model.safetensors.index.json says which file it is in. OUTPUT is a .safetensors file\n"
    "of these tensors. Only the blocks of FILE that hold them, and some pages of its\n"
    "index, are read and decoded: to find damage elsewhere, use bitsnap test.\n"
    "\n"
    "      --range A:B,C:D  of each tensor the elements A to B - 1 of the first dimension,\n"
    "                       C to D - 1 of the second, ..., as in NumPy: without A from\n"
    "                       the first, without B to the last, below 0 counted from the\n"
    "                       end. Dimensions that are not named are whole\n"
    "      --raw            OUTPUT has the bytes of one tensor and nothing else\n"
    "      --npy            OUTPUT is an .npy file of one tensor, for NumPy\n"
    "      --safetensors    OUTPUT is a .safetensors file, the default\n"
    "      --as f32         elements of BF16, F16, F8_E4M3 or F8_E5M2 become F32, exactly:\n"
    "                       for --npy, because NumPy lacks some of these types\n"
    "  -o, --output OUTPUT  the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -\n"
    "  -f, --force          replaces an existing output; never a file that the command\n"
    "                       reads\n"
    "  -b, --base BASE      what FILE is a delta to: a .safetensors file, or a .bsnap file\n"
    "                       of one. Several are a chain: the first is whole, each other\n"
    "                       one is a delta to the one before it, or whole again\n"
    "      --max-output SIZE\n"
    "                       the largest size that OUTPUT may have (see bitsnap decompress\n"
    "                       --help)\n";

static const char extract_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap extract model.safetensors.bsnap w -o w.safetensors\n"
    "  bitsnap extract blocks.safetensors 'layers.0.*' -o layer.safetensors\n"
    "  bitsnap extract checkpoint w --range 100:200 --npy -o some.npy\n"
    "  bitsnap extract -b step1.safetensors step2.delta w --as f32 --npy -o w.npy\n"
    "  bitsnap extract model.safetensors.bsnap w --range -10: --raw -c | od -A d -t f4\n";

static const char snapshot_text[] =
    "bitsnap snapshot STORE FOLDER - adds FOLDER to STORE, as a step\n"
    "\n"
    "STORE is a folder, which is made if it does not exist. A .safetensors file becomes a\n"
    "delta to the file of its name in the step before, if that makes it smaller and its\n"
    "chain is not too long, else a whole .bsnap file; every other file is copied. The\n"
    "same content is stored once. The step is added when all of it is on disk: after an\n"
    "error, a signal or a crash STORE is unchanged, and the next snapshot or prune removes\n"
    "what is left. Only one snapshot or prune runs at a time; the others say which.\n"
    "\n"
    "      --step N         the number of the step, which must be new; by default one\n"
    "                       above the newest\n"
    "      --max-chain N    the largest number of files that restoring one may read, up to\n"
    "                       256; 16 by default. A file is also stored whole when the deltas\n"
    "                       since it last was have twice its size\n"
    "  -l, --level LEVEL    fast, default or best\n"
    "  -L, --dereference    follows links to files. By default links in FOLDER stay links,\n"
    "                       and those that lead out of it are left out\n"
    "      --include GLOB   takes only files of this name (see bitsnap compress --help)\n"
    "      --exclude GLOB   leaves out files and folders of this name\n";

static const char snapshot_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap snapshot run.store checkpoint\n"
    "  bitsnap snapshot run.store checkpoint --step 2000 --exclude '*.tmp'\n"
    "  bitsnap log run.store\n";

static const char log_text[] =
    "bitsnap log STORE... - the steps of a store of snapshots\n"
    "\n"
    "For each step: its time; whether its tensor files are whole, deltas, or mixed; the\n"
    "step that the deltas are to; the bytes of its files; the bytes that it adds to the\n"
    "steps before it; and the largest number of files that restoring one takes. With -q\n"
    "only the sums.\n";

static const char log_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap log run.store\n"
    "  bitsnap log --json run.store\n";

static const char restore_text[] =
    "bitsnap restore STORE STEP -o FOLDER - restores a step as FOLDER\n"
    "\n"
    "STEP is a number, or latest. FOLDER appears when all of it is complete, checked and on\n"
    "disk: byte for byte, with links, empty folders and permissions.\n"
    "\n"
    "  -o, --output FOLDER  the name of the folder\n"
    "  -f, --force          replaces an existing folder as a whole\n"
    "      --max-output SIZE\n"
    "                       the largest size that it may have, such as 500M (of 2^20\n"
    "                       bytes) or 2T. By default a step is refused if it expands to\n"
    "                       more than 4 GiB and to more than 256 times its stored size\n";

static const char restore_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap restore run.store latest -o restored\n"
    "  bitsnap restore run.store 1000 -o restored -f\n";

static const char verify_text[] =
    "bitsnap verify STORE... - checks that every step of a store can be restored\n"
    "\n"
    "Everything is decoded and compared with its content id. Each fault has a line on\n"
    "standard error, and a last line names the steps that are lost; the exit status is\n"
    "then 1. A snapshot of a lost file stores it again. An object that cannot be read (a\n"
    "disk error; no room, memory or permission) counts as not verified, and no step is\n"
    "called lost for it.\n"
    "\n";

static const char verify_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap verify run.store\n"
    "  bitsnap verify --json run.store\n";

static const char prune_text[] =
    "bitsnap prune STORE... - removes steps, and what only they needed\n"
    "\n"
    "A step stays if any of the options names it. A delta to a removed file becomes a delta\n"
    "to the file before that, or whole: every other step can be restored as before, even\n"
    "while prune runs. First everything that stays is decoded and compared with its content\n"
    "id. If some of it is damaged or cannot be read, nothing is removed.\n"
    "\n"
    "      --keep-last N    the N newest steps stay, not counting those of --remove\n"
    "      --keep-every N   steps whose number is a multiple of N stay\n"
    "      --remove N,N     removes these steps, even if another option would keep them;\n"
    "                       without the other options, all other steps stay. Use it to give\n"
    "                       up steps that bitsnap verify calls lost\n"
    "      --dry-run        prints what would be removed, and removes nothing\n"
    "  -l, --level LEVEL    of deltas that are made: fast, default or best\n";

static const char prune_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap prune run.store --keep-last 5 --keep-every 1000 --dry-run\n"
    "  bitsnap prune run.store --keep-last 5 --keep-every 1000\n"
    "  bitsnap prune run.store --remove 1000\n";

static const char fsck_text[] =
    "bitsnap fsck STORE... - rebuilds manifest.json of a store\n"
    "\n"
    "If manifest.json is damaged or absent, a new one lists every step that has an intact\n"
    "record (objects/step-N.json) and all its objects. Each damaged record, and each step\n"
    "that lacks an object, has a line on standard error; the exit status is then 1. The\n"
    "damaged manifest becomes manifest-damaged.json. Nothing is removed, and objects are\n"
    "not decoded: use bitsnap verify for that. If manifest.json is good, steps without a\n"
    "record, as of earlier versions, get one.\n"
    "\n"
    "      --dry-run        prints what the new manifest would have\n";

static const char fsck_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap fsck --dry-run run.store\n"
    "  bitsnap fsck run.store && bitsnap verify run.store\n";

static const char store_temp_text[] =
    "      --temp DIR       the folder for temporary files, which need up to three times\n"
    "                       the room of the largest tensor file; default $TMPDIR, else\n"
    "                       /tmp\n";

static const char see_common[] = "\nOptions of all commands, such as -T, -M, -q, -v, --json and --bytes: see bitsnap help\n";

/* The texts of each command; the last ones are examples. */
static const struct {
    command command;
    const char *texts[11];
} helps[] = {
    { COMPRESS, { compress_text, adam_text, outputs_text, whole_folder_text, recursive_text, chosen_text, base_text, temp_text, compress_examples } },
    { DECOMPRESS, { decompress_text, outputs_text, whole_folder_text, recursive_text, chosen_text, base_text, beside_text, temp_text, max_output_text, decompress_examples } },
    { TEST, { test_text, recursive_text, chosen_text, base_text, beside_text, temp_text, max_output_text, test_examples } },
    { INFO, { info_text, recursive_text, chosen_text, base_text, temp_text, max_output_text, info_examples } },
    { BENCHMARK, { benchmark_text, recursive_text, chosen_text, benchmark_examples } },
    { COMPARE, { compare_text, chosen_text, base_text, beside_text, temp_text, max_output_text, compare_examples } },
    { APPLY, { apply_text, temp_text, max_output_text, apply_examples } },
    { MERGE, { merge_text, algebra_options, base_text, temp_text, merge_examples } },
    { INVERT, { invert_text, algebra_options, base_text, temp_text, invert_examples } },
    { EXTRACT, { extract_text, chosen_text, extract_examples } },
    { SNAPSHOT, { snapshot_text, store_temp_text, snapshot_examples } },
    { LOG, { log_text, log_examples } },
    { RESTORE, { restore_text, store_temp_text, restore_examples } },
    { VERIFY, { verify_text, store_temp_text, verify_examples } },
    { PRUNE, { prune_text, store_temp_text, prune_examples } },
    { FSCK, { fsck_text, fsck_examples } }
};

void print_help(command c)
{
    size_t i, k;
    for (i = 0; i < sizeof helps / sizeof *helps && helps[i].command != c; i++) continue;
    if (i == sizeof helps / sizeof *helps) {
        (void)fputs(general, stdout);
        (void)fputs(common_options, stdout);
        return;
    }
    for (k = 0; helps[i].texts[k]; k++) {
        if (!helps[i].texts[k + 1]) (void)fputs(see_common, stdout);
        (void)fputs(helps[i].texts[k], stdout);
    }
}

void print_version(void)
{
    const bitsnap_kernels *best = NULL, *next;
    unsigned i;
    for (i = 0; (next = bitsnap_kernels_get(i)) != NULL; i++) best = next;
    (void)printf("bitsnap %s (kernels: %s)\n", BITSNAP_VERSION, best ? bitsnap_kernels_name(best) : "none");
}
