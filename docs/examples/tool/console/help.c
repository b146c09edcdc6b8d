/* help.c - the tool explains itself.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "help.h"

#include "bitsnap.h"

#include <stdio.h>

static const char general[] =
    "bitsnap - lossless compression of tensor checkpoints\n"
    "\n"
    "  bitsnap compress FILE...      FILE.bsnap for each .safetensors file\n"
    "  bitsnap decompress FILE...    the file as it was, byte for byte\n"
    "  bitsnap test FILE...          checks everything, writes nothing\n"
    "  bitsnap info FILE...          tensors, sizes, forms, the order-0 bound\n"
    "  bitsnap compare FILE FILE     tensor by tensor: equal, or how far apart\n"
    "  bitsnap apply DELTA FILE      a .safetensors file as the delta has it\n"
    "  bitsnap merge DELTA DELTA...  one delta for those that follow each other\n"
    "  bitsnap invert DELTA          the delta back\n"
    "  bitsnap benchmark FILE...     ratio and speed, in memory\n"
    "  bitsnap extract FILE NAME...  tensors, or parts of them, without reading the rest\n"
    "  bitsnap snapshot STORE FOLDER keeps a checkpoint of a run as a step of a store\n"
    "  bitsnap log STORE             its steps\n"
    "  bitsnap restore STORE STEP    a step as a folder, as it was\n"
    "  bitsnap verify STORE          checks that every step can be restored\n"
    "  bitsnap prune STORE           removes steps, and what only they needed\n"
    "  bitsnap fsck STORE            makes the list of its steps anew, if that is damaged\n"
    "\n"
    "c, d, t, i and b are short for compress, decompress, test, info and benchmark.\n"
    "bitsnap help COMMAND, or bitsnap COMMAND --help, explains a command.\n"
    "\n"
    "Examples\n"
    "  bitsnap compress model.safetensors            writes model.safetensors.bsnap\n"
    "  bitsnap info model.safetensors.bsnap\n"
    "  bitsnap d -c model.safetensors.bsnap | sha256sum\n"
    "  bitsnap compress -f -l best --rm model.safetensors   smaller, slower; replaces\n"
    "                                                it, and removes what is in it\n"
    "  bitsnap decompress model.safetensors.bsnap    writes model.safetensors again\n"
    "\n"
    "Whole folders: every tensor file in them, and copies of what else is there\n"
    "  bitsnap compress -r checkpoint -o packed      as a whole or not at all; a run that\n"
    "                                                was ended goes on when it is repeated\n"
    "  bitsnap test -r packed\n"
    "  bitsnap decompress -r packed -o again\n"
    "\n"
    "A delta stores only what differs from another file, its base (-b)\n"
    "  bitsnap compress -b step1.safetensors -o step2.delta step2.safetensors\n"
    "  bitsnap decompress -b step1.safetensors -o copy.safetensors step2.delta\n"
    "  cp step1.safetensors live.safetensors\n"
    "  bitsnap apply step2.delta live.safetensors    step 1 becomes step 2 in place,\n"
    "                                                as a whole or not at all\n"
    "\n"
    "A store keeps the checkpoints of a run, each as what has changed since the last\n"
    "  bitsnap snapshot run.store checkpoint --step 1000\n"
    "  bitsnap restore run.store 1000 -o restored\n"
    "  bitsnap prune run.store --keep-last 5\n"
    "\n"
    "A FILE of - is standard input. Outputs are written beside their place under\n"
    "another name, and get their own when they are whole and on the disk. The exit\n"
    "status is 0 where all went well, 1 after an error (one line on standard error\n"
    "says which), 2 where the command line is wrong; compare has its own.\n";

static const char common_options[] =
    "  -T, --threads N      threads; 0 for one on each processor that the process may\n"
    "                       use, which is the default but for benchmark, where it is 1\n"
    "  -M, --memory SIZE    how much memory threads, their windows and what decodes a\n"
    "                       packed BASE may take, such as 300M; by default an eighth of\n"
    "                       the machine's, or of the limit of its control group\n"
    "  -q, --quiet          says nothing but errors\n"
    "  -v, --verbose        says more\n"
    "      --json           says it as JSON on standard output, one object and line\n"
    "                       for each file (docs/TOOL.md has their members)\n"
    "      --bytes          sizes as numbers of bytes, not as KiB, MiB, ...\n"
    "      --no-progress    no progress line; without a terminal on standard error\n"
    "                       there is none anyway\n"
    "  -h, --help           this text\n"
    "  -V, --version        the version\n"
    "      --               what follows are files, even if they begin with -\n";

static const char recursive_text[] =
    "  -r, --recursive      of a FILE that is a folder all tensor files in it and its\n"
    "                       folders: .safetensors to be compressed, else .bsnap\n"
    "      --files-from LIST\n"
    "                       takes FILEs from the lines of LIST, too; - is standard input\n"
    "  -0, --null           a byte 0 ends each name in LIST, as find -print0 has it\n";

static const char chosen_text[] =
    "  -L, --dereference    links to files in folders stand for these. Without it they are\n"
    "                       not followed, and those that lead out of a folder are told of\n"
    "      --include GLOB   of folders only files of this name, such as 'model-*'; of a\n"
    "                       GLOB with a slash, of this way from the folder on. More than\n"
    "                       one may be given\n"
    "      --exclude GLOB   of folders without files and folders of this name\n";

static const char whole_folder_text[] =
    "  -r FOLDER -o OTHER   OTHER is made of FOLDER as a whole: what is no tensor file is\n"
    "                       copied, links stay links, and OTHER is there when all of it is\n"
    "                       whole and on the disk. Until then .bitsnap-part~OTHER is, and\n"
    "                       the same command goes on from there. -f replaces an OTHER\n"
    "                       that is there as a whole\n"
    "                       A BASE is a folder then, too\n"
    "      --tensors-only   with -r and -o: without what is no tensor file\n";

static const char outputs_text[] =
    "  -o FOLDER/           the outputs of one or several FILEs go into that folder\n"
    "      --skip-existing  leaves out each FILE whose output is there already\n";

static const char temp_text[] =
    "      --temp DIR       where temporary files go that take what comes from a pipe and\n"
    "                       is read more than once, and what merge and invert with -b make\n"
    "                       of BASE: they need as much room; without it $TMPDIR, or else\n"
    "                       /tmp\n";

static const char base_text[] =
    "  -b, --base BASE      what a delta is against: a .safetensors file, or a .bsnap\n"
    "                       file of one, which is decoded as it is needed. Given several\n"
    "                       times it is a chain: the first is whole, every other a delta\n"
    "                       to what stands before it, or whole again. compress, decompress,\n"
    "                       test and info take folders, too, each the files of a model:\n"
    "                       tensors may be in whatever files\n";

static const char beside_text[] =
    "                       (without -b the file that a delta names is looked for beside\n"
    "                       it, as it is or as a .bsnap file, and that is said)\n";

static const char compress_text[] =
    "bitsnap compress FILE... - writes FILE.bsnap for each FILE\n"
    "\n"
    "FILE is a .safetensors file, known by its content, or with --dtype raw\n"
    "little-endian elements. The output restores it byte for byte and carries checks\n"
    "of everything. Memory does not depend on the size of FILE.\n"
    "\n"
    "  -o, --output FILE    the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -\n"
    "  -f, --force          replaces an output that is there; never a file that the\n"
    "                       command reads\n"
    "  -l, --level LEVEL    fast, default or best\n"
    "      --dtype NAME     FILE holds raw elements, whatever it looks like: bf16 f16\n"
    "                       f32 f64 f8_e4m3 f8_e5m2 i8 i16 i32 i64 bool (u8 to u64\n"
    "                       are the same as i8 to i64)\n"
    "      --rm             removes FILE when its output, which must be a file, is whole\n"
    "                       and on the disk, if FILE is still what was read\n"
    "      --sha256         a SHA-256 of the source, for who has to fear forgery; test\n"
    "                       and decompress check it\n"
    "      --no-references  no tensor is coded against an earlier one of FILE; readers of\n"
    "                       the output then need keep nothing\n"
    "      --partners       looks for equal elements anywhere in FILE, under any names,\n"
    "                       not for equal tensors alone; level best does so anyway\n"
    "      --self-contained with -b: a delta that can be merged without its base, and\n"
    "                       inverted where no part of it is smaller without the base;\n"
    "                       larger by a tenth to a third\n"
    "      --rename FROM=TO with -b: tensors whose names begin with FROM are called TO\n"
    "                       and the rest in BASE; several times: the first that fits\n"
    "      --align SIZE     each frame begins at a multiple of SIZE bytes, a power of two\n"
    "                       from 512 to 1M, for programs that map the file; 4096 suits\n"
    "                       pages. Takes half of SIZE for each frame\n"
    "      --max-output SIZE\n"
    "                       with -b: the largest size that a .bsnap BASE may expand to,\n"
    "                       such as 500M (of 2^20 bytes) or 2T\n"
    "\n"
    "With -b the output is a delta: it stores the differences between FILE and BASE,\n"
    "and restoring needs BASE. Tensors are paired by name, dtype and shape, wherever\n"
    "they stand; F16 and BF16 tensors also with F32 tensors, their master copies,\n"
    "and F32 tensors with them. A name may have module., _orig_mod. or model. before\n"
    "it more or less, and a shape more or fewer rows, such as those of a vocabulary\n"
    "that has grown.\n"
    "Tensors without a partner, or with one that samples say does not help, are\n"
    "compressed for themselves; -v names them. If no tensor gains, that is said, and\n"
    "the output is as without -b, and needs no BASE. (Of FILE from a pipe no samples\n"
    "can be taken.)\n"
    "\n";

static const char adam_text[] =
    "Everything is restored bit for bit, but for what --adam names: it quantizes the\n"
    "moments of Adam, m (exp_avg) and v (exp_avg_sq). POLICY is\n"
    "  exact                nothing is quantized\n"
    "  resume               m LOG-70, v LOG-35: an update is at most 1.0 % off\n"
    "  standard             m LOG-16, v LOG-8: at most 4.5 %\n"
    "  small                m LOG-8, v LOG-4: at most 9.2 %\n"
    "  stage, stage=RATE    as coarse as the size of the updates at this learning rate\n"
    "                       (0.001) lets them be, between small and resume\n"
    "  clusters, clusters=N N clusters of each block, 2 to 256 (16), as in the paper\n"
    "                       BitSnap, arXiv 2511.12376: for comparison, without a bound\n"
    "  m=LOSS,v=LOSS        LOSS: a relative error (0.5% or 0.005), LOG-70, or lossless;\n"
    "                       a moment that is not named stays exact\n"
    "No element is farther from what it was than its bound, as a part of its own size,\n"
    "but with clusters; zeros (but with clusters), infinities and NaNs stay what they\n"
    "are. Moments are known by the name of\n"
    "the tensor (exp_avg, adam_m, first_moment, moment1, mu where there is a nu, and\n"
    "their counterparts), else by that of the file; the longest of these words counts.\n"
    "What belongs to moments that are quantized already (exp_avg.scale) stays exact, as\n"
    "does what has another size than its weight or the other moment; -v says which.\n"
    "A v with negative elements is none: it stays exact, and its m with it, and that is\n"
    "said. (Files are looked through before. Of a pipe that cannot be done: there such\n"
    "a v is an error, when it comes.)\n"
    "\n"
    "      --adam POLICY    quantizes moments; says what it did on standard error\n"
    "      --adam-min N     tensors of fewer elements stay exact; 4096 by default\n"
    "      --weights FILE   for stage: the file with the weights; by default one beside\n"
    "                       FILE, called master, model, weights or bf16 where FILE has\n"
    "                       the word for the moment, else FILE itself\n"
    "      --dry-run        says what would become of each tensor, and why, and what that\n"
    "                       would save: compresses in memory, writes nothing\n"
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
    "                       2^20 bytes) or 2T. Without it a file is refused that expands\n"
    "                       to more than 4 GiB and also to more than 256 times its size:\n"
    "                       a few bytes can be made to fill every disk\n";

static const char decompress_text[] =
    "bitsnap decompress FILE... - restores the file that FILE holds, byte for byte\n"
    "\n"
    "The output is called like FILE without .bsnap. It is there only if every check\n"
    "has agreed. If FILE was made with --adam, that is said on standard error: the\n"
    "output is not what was compressed.\n"
    "\n"
    "  -o, --output FILE    the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -; what has been written before an error\n"
    "                       was found stays written\n"
    "  -f, --force          replaces an output that is there\n"
    "      --rm             removes FILE when the output, which must be a file, is whole\n"
    "                       and on the disk, if FILE is still what was read\n";

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
    "Says \"FILE: ok\", or what is wrong and where; of a FILE made with --adam also how\n"
    "far its elements are from what they were, and whether that is within its bounds.\n"
    "Checks find accidents; they are no protection against somebody who wants to\n"
    "deceive.\n"
    "\n";

static const char test_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap test *.bsnap\n"
    "  bitsnap test -r packed\n"
    "  bitsnap test -q model.safetensors.bsnap && rm model.safetensors\n"
    "  bitsnap test -b step1.safetensors step2.delta\n";

static const char info_text[] =
    "bitsnap info FILE... - the tensors of a .bsnap file and what they take\n"
    "\n"
    "Of a .safetensors file it is what compressing it would save, found by doing that in\n"
    "memory; not with --no-bound.\n"
    "\n"
    "Of each tensor bits/element and ratio: its share of the blocks that hold it.\n"
    "\"order-0\" is the order-0 bound, in bits per element: what a code takes that does\n"
    "not look at neighbours. It is the smallest of three, for every 65,536 elements:\n"
    "exponents coded and all other bits as they are, but those that are constant there;\n"
    "the same with zeros apart; each byte coded. Of integers it is the last. A file may\n"
    "take less, if zeros come in rows or elements repeat. The bound has to be computed\n"
    "from the elements, so all are decoded and checked; --no-bound\n"
    "looks at sizes alone, and at once. -q leaves the tables out. The line `check`, and\n"
    "\"check\" of --json, is the check of the file's end record: two files with the same\n"
    "one are the same file. It is no signature: it finds accidents.\n"
    "\n"
    "Then how the blocks are coded: of each form how many there are, what its parts\n"
    "take, and what lists of each kind do; with -v for every frame. PARTED are blocks of\n"
    "two kinds of elements, as zeros and others, each coded for itself. The words are\n"
    "those of docs/FORMAT.md, sections 4 and 5.\n"
    "\n"
    "Of deltas: the base they were made against, by size and id, and of each frame how\n"
    "many cells (of elements that are coded together) are the same as the base's,\n"
    "differences to them, or coded for themselves. With the base, from -b, they are\n"
    "decoded: then it is known how many elements of each tensor, block and class have\n"
    "changed; without it as much of that as blocks of one class tell. Their tensors are\n"
    "known where the base is, from -b or as the file before. A delta behind another\n"
    "file in the command line is told to follow it or not.\n"
    "\n"
    "Of quantized tensors (compress --adam): the bins of an octave, columns, the bound\n"
    "of relative errors, the largest that was measured when they were encoded, and of m\n"
    "beside its v the bound of an update's error. With -v also the mean relative error,\n"
    "the mean square error, the largest absolute error, and how many elements are exact.\n"
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
    "Tensors are matched by name, wherever they stand. With -b a FILE may be a delta\n"
    "to BASE, or both. With two folders, all .safetensors and .bsnap files in them are\n"
    "compared, tensor by tensor, whichever files the tensors are in; header texts and\n"
    "other files are not (diff -r does that). The exit status is 0 if the files hold\n"
    "the same bytes, header texts included, 1 if they do not, and 2 if an error kept\n"
    "that from being found out. Equal tensors are listed with -v only.\n"
    "\n"
    "For tensors of floats (F8_E4M3 F8_E5M2 F16 BF16 F32 F64) that differ, in double\n"
    "precision, over all elements a of the first and b of the second file:\n"
    "  max abs   the largest |b - a|            MSE   the mean of (b - a)^2\n"
    "  max rel   the largest |b - a| / |a|      MRE   the mean of |b - a| / |a|\n"
    "Elements that became other numbers from a zero have no relative error: \"from\n"
    "zero\" counts them. Where an infinity or a NaN is on either side there is no error\n"
    "at all: \"not finite\" counts those that differ, but not NaNs that became other\n"
    "NaNs.\n"
    "\n"
    "A tensor that is quantized in one of the files is measured against the other's, and\n"
    "the exit status is 0, too, where nothing differs by more than its bound.\n"
    "\n"
    "      --dtype NAME     files that are no .bsnap hold raw elements\n"
    "      --adam POLICY    the bounds, where the second file is what was restored from a\n"
    "                       .bsnap file that was made so; see bitsnap compress --help\n"
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
    "bitsnap apply DELTA FILE - FILE becomes what DELTA was made from\n"
    "\n"
    "FILE is the .safetensors file that DELTA was made against. The result is written\n"
    "beside it and takes its place when it is whole, checked and on the disk: until\n"
    "then, and after every error, FILE is as it was. If it is the result already, that\n"
    "is said, and nothing changes: applying twice does no harm. A DELTA of - is\n"
    "standard input. Deltas to a master copy are refused. If another file has got the\n"
    "name of FILE meanwhile, that stays.\n"
    "\n"
    "  -f, --force          also where FILE is read-only, as files are that others share;\n"
    "                       through a symbolic link all who link to it get the result\n";

static const char apply_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap apply step2.delta live.safetensors\n"
    "  ssh host cat step2.delta | bitsnap apply - live.safetensors\n";

static const char merge_text[] =
    "bitsnap merge DELTA DELTA... -o FILE - one delta for those that follow each other\n"
    "\n"
    "FILE is a delta from the base of the first to the result of the last. Without the\n"
    "base that is possible where they were made with --self-contained, and of others\n"
    "where few elements changed; with -b always.\n"
    "\n";

static const char merge_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap merge monday.delta tuesday.delta wednesday.delta -o week.delta\n"
    "  bitsnap merge -b sunday.safetensors monday.delta tuesday.delta -o both.delta\n";

static const char invert_text[] =
    "bitsnap invert DELTA -o FILE - the delta back, from the result to the base\n"
    "\n"
    "Without the base that is possible where DELTA was made with --self-contained, no\n"
    "part of it was smaller without the base, and no tensors were taken away; with -b\n"
    "always.\n"
    "\n";

static const char invert_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap invert step2.delta -o back.delta && bitsnap apply back.delta live.safetensors\n"
    "  bitsnap invert -b step1.safetensors step2.delta -o other.delta\n";

static const char algebra_options[] =
    "  -o, --output FILE    the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -\n"
    "  -f, --force          replaces an output that is there\n"
    "  -l, --level LEVEL    with -b: fast, default or best\n"
    "      --self-contained with -b: the output can be merged without it, and inverted\n"
    "                       where no part of it is smaller without the base\n"
    "      --max-output SIZE\n"
    "                       the largest size that a file, or a part of one that has to\n"
    "                       be decoded, may expand to (see bitsnap decompress --help)\n";

static const char benchmark_text[] =
    "bitsnap benchmark FILE... - how small, and how fast, in memory\n"
    "\n"
    "FILE is a .safetensors file, or with --dtype raw elements. It is read into memory\n"
    "as a whole; then its elements are compressed and decompressed, again and again\n"
    "for a second, and the fastest of each is shown: GB of elements per second in\n"
    "and out, content ids included. \"ratio\" is that of the .bsnap file.\n"
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
    "of these tensors. Only the blocks of FILE that they are in are read and decoded, and\n"
    "some pages of its index: damage elsewhere is not noticed; bitsnap test finds it.\n"
    "\n"
    "      --range A:B,C:D  of each tensor the elements A to B - 1 of the first dimension,\n"
    "                       C to D - 1 of the second, ..., as NumPy has it: without A\n"
    "                       from the first, without B to the last, below 0 counted from\n"
    "                       the end. Dimensions that are not named come whole\n"
    "      --raw            OUTPUT has the bytes of one tensor and nothing else\n"
    "      --npy            OUTPUT is an .npy file of one tensor, as NumPy reads it\n"
    "      --safetensors    a .safetensors file, as without any of these three\n"
    "      --as f32         elements of BF16, F16, F8_E4M3 or F8_E5M2 become F32, which is\n"
    "                       exact: for --npy, as NumPy has no types for some of them\n"
    "  -o, --output OUTPUT  the output's name; - is standard output\n"
    "  -c, --stdout         the same as -o -\n"
    "  -f, --force          replaces an output that is there; never a file that the\n"
    "                       command reads\n"
    "  -b, --base BASE      what FILE is a delta to: a .safetensors file, or a .bsnap file\n"
    "                       of one. Given several times it is a chain: the first is whole,\n"
    "                       every other a delta to what stands before it, or whole again\n"
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
    "bitsnap snapshot STORE FOLDER - keeps FOLDER as a step of STORE\n"
    "\n"
    "STORE is a folder, which is made if it is not there. A .safetensors file becomes a\n"
    "delta to the file of its name in the step before, where that makes it smaller and\n"
    "its chain is not too long, else a whole .bsnap file; every other file is copied.\n"
    "The same content is kept once. The step is there when all of it is on the disk:\n"
    "after an error, a signal or a crash STORE is as it was, and the next snapshot or\n"
    "prune removes what is left. One of these at a time; the others say who is at it.\n"
    "\n"
    "      --step N         the number of the step, which must be new; without it one\n"
    "                       above the newest\n"
    "      --max-chain N    the most files that restoring one may take, up to 256; 16 by\n"
    "                       default. A file is also whole again when the deltas since\n"
    "                       it was have become twice as large as it then was\n"
    "  -l, --level LEVEL    fast, default or best\n"
    "  -L, --dereference    links to files stand for these. Without it links in FOLDER\n"
    "                       stay links, and those that lead out of it are left out\n"
    "      --include GLOB   only files of this name (see bitsnap compress --help)\n"
    "      --exclude GLOB   without files and folders of this name\n";

static const char snapshot_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap snapshot run.store checkpoint\n"
    "  bitsnap snapshot run.store checkpoint --step 2000 --exclude '*.tmp'\n"
    "  bitsnap log run.store\n";

static const char log_text[] =
    "bitsnap log STORE... - the steps of a store of snapshots\n"
    "\n"
    "Of each step its time, whether its tensor files are whole or deltas (mixed: some\n"
    "are), the step that these are deltas to, the bytes of its files, those that it\n"
    "takes besides the steps before it, and how many files restoring one takes at most.\n"
    "With -q only their sums.\n"
    "\n";

static const char log_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap log run.store\n"
    "  bitsnap log --json run.store\n";

static const char restore_text[] =
    "bitsnap restore STORE STEP -o FOLDER - FOLDER is as it was at that step\n"
    "\n"
    "STEP is a number, or latest. FOLDER is there when all of it is whole, checked and on\n"
    "the disk, byte for byte, with links, empty folders and permissions.\n"
    "\n"
    "  -o, --output FOLDER  the name of it\n"
    "  -f, --force          replaces a folder that is there, as a whole\n"
    "      --max-output SIZE\n"
    "                       the largest size that it may have, such as 500M (of 2^20\n"
    "                       bytes) or 2T. Without it a step is refused that expands to\n"
    "                       more than 4 GiB and also to more than 256 times what it takes\n";

static const char restore_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap restore run.store latest -o restored\n"
    "  bitsnap restore run.store 1000 -o restored -f\n";

static const char verify_text[] =
    "bitsnap verify STORE... - checks that every step of a store can be restored\n"
    "\n"
    "Everything is decoded, and compared with what was stored by its content id. What is\n"
    "wrong has a line on standard error, and a last one names the steps that are lost;\n"
    "the exit status is then 1. A snapshot of a file that is lost makes it whole again.\n"
    "What cannot be read (an error of the disk, no room, memory or permission) counts as\n"
    "not verified, and no step is called lost for it.\n"
    "\n";

static const char verify_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap verify run.store\n"
    "  bitsnap verify --json run.store\n";

static const char prune_text[] =
    "bitsnap prune STORE... - removes steps, and what only they needed\n"
    "\n"
    "What stays is what any of the options names. A delta to what goes becomes one to\n"
    "what was before that, or whole: every other step can be restored as before, and\n"
    "while it runs, too. Before that everything that stays is decoded and compared with\n"
    "what was stored. If some of it is damaged or cannot be read, nothing is removed.\n"
    "\n"
    "      --keep-last N    the N newest steps stay, not counting those of --remove\n"
    "      --keep-every N   steps whose number is a multiple of N stay\n"
    "      --remove N,N     these steps go, whatever would keep them; without the other\n"
    "                       options all else stays. This is the way to give up steps that\n"
    "                       bitsnap verify says are lost\n"
    "      --dry-run        only says what would be removed\n"
    "  -l, --level LEVEL    of deltas that are made: fast, default or best\n";

static const char prune_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap prune run.store --keep-last 5 --keep-every 1000 --dry-run\n"
    "  bitsnap prune run.store --keep-last 5 --keep-every 1000\n"
    "  bitsnap prune run.store --remove 1000\n";

static const char fsck_text[] =
    "bitsnap fsck STORE... - makes manifest.json of a store anew\n"
    "\n"
    "If manifest.json is damaged or absent, a new one lists every step that has a whole\n"
    "record (objects/step-N.json) and all its objects. A record that is damaged, and a\n"
    "step that lacks an object, have a line on standard error; the exit status is then 1.\n"
    "The damaged manifest becomes manifest-damaged.json. Nothing is removed, and objects\n"
    "are not decoded: bitsnap verify does that. If manifest.json is good, steps that have\n"
    "no record, as earlier versions made them, get one.\n"
    "\n"
    "      --dry-run        only says what the new manifest would have\n";

static const char fsck_examples[] =
    "\n"
    "Examples\n"
    "  bitsnap fsck --dry-run run.store\n"
    "  bitsnap fsck run.store && bitsnap verify run.store\n";

static const char store_temp_text[] =
    "      --temp DIR       where temporary files go, which need up to three times the\n"
    "                       room of the largest tensor file; without it $TMPDIR, or else\n"
    "                       /tmp\n";

/* The texts of each command; the common options come before the last. */
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
        return;
    }
    for (k = 0; helps[i].texts[k]; k++) {
        if (!helps[i].texts[k + 1]) (void)fputs(common_options, stdout);
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
