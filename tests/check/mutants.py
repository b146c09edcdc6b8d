#!/usr/bin/env python3
"""Do the tests notice a missing check? Changes every comparison and every condition of the code that reads foreign data, one at
a time. The test programs have to fail.

    mutants.py [--count N] [--seed N] [--only REGEX] [--lines FILE] [--programs NAMES] [--jobs N] [--list] [--write]

Copies of bitsnap.h, bitsnap_file.h and two sources of the engine, in build/mutants, contain all changes. A comparison `a < b`
becomes

    (bsn_mutant == 7 ? (0) : bsn_mutant == 8 ? (a <= b) : (a < b))

so the programs are compiled once, and run once for each number, which comes from the environment. A mutant is noticed if a
program fails, crashes, or takes much too long. tests/check/mutants.txt (mutants_file.txt, ...) lists the mutants that pass all
programs, and only these, with the reason. So a new check needs a test that notices its absence, or a line there.

The changes: "off", the condition never holds; "on", the equality always holds; "wide", < becomes <= and so on; "not", the
opposite, for equality in loops; "held", one part of an && always holds. A part of an || that never holds is "off".

Mutated are all functions that the entry points of a header reach, with the exceptions in HEADERS. Kernels are called through
tables and are not reached; tests/unit/test_kernels.c compares them with each other. Header texts are an exception, too;
tests/tool/test_safetensors.c has the rules of the reference.

--count: the number of mutants of each header, at random; sources of the engine have a twelfth of it, at least one. --seed: seed
of that choice, by default the day. --only: mutants whose line matches. --list: prints all and runs none. --write: updates the
lists; new lines are "Not examined yet".
"""
import argparse
import concurrent.futures
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "mutants")
SHORT = {name: value for name, value in os.environ.items() if name != "LONG"}
# The programs tests/*/test_NAME.c for a function: those of the first pattern that matches, the most effective one first.
PROGRAMS = [(re.compile(names), programs.split()) for names, programs in [
    (r"bsf_(window|fail_piece|get_streams|get_number|unpack|new_text|decode_piece)|bitsnap_(shape|slice|tensor|tree)", "file safetensors"),
    (r"bsf_|bitsnap_(file|text)_", "file"),
    (r"bsn_(offload|device|sender)_|bitsnap_offload_|bsn_grow", "offload"),
    (r"part(ed)?$|_side(_|$)|bsn_sides|bsn_parts", "cases parted errors"),
    (r"transpose|bytes_or|put_planes|bsn_field|bsn_join|bsn_pair|put_any|load_some", "cases mask planes"),
    (r"_log_|cluster|_real|certificat|scale|fixed|_row_|octaves|thresholds|bsn_put_exact|_bins|_codes|_numbers_", "cases quantize"),
    (r"bsn_apply_|cell_state|find_place|store_in_order|mark_size|is_single|journal", "cases interrupt"),
    (r"", "cases errors pull index access pieces delta frame")]]
# cases that take long, or test code without mutants
NOT = "every_complete_code some_patterns short_patterns f32_patterns f64_patterns patterns written_files writers_that_fail same_bytes " \
      "follows_the_stage anchors_in_time bounds_follow_updates budget_is_enough killed changing late_ranks partner_hangs"

ENTRIES = re.compile(r"bitsnap_(decode|decode_range|apply|verify|test|decoder_\w+|index_\w+|block_decode|merge|invert|read_info|"
                     r"read_block|list_decode|offload_\w+)$")
# encoders, prefetches, and layers with tests of their own
NOT_HERE = re.compile(r"bitsnap_(mask_encode|mask_partition|encoder_\w+|block_encode|workspace_size)$|bsn_(words_to|words_write|plan_words|piece_plan|piece_write|"
                      r"row_(put|begin|end)|write_|push_(note|waiting|cell|same)|place_block|encode_|choose|partition|list_write|"
                      r"mask_encode|prefetch|ask|gather|compare|chain_|plane_of_bits|hardly_changed|changes_share|class_map)")

class Header:
    def __init__(self, path, reasons, entries, not_here, layers_not_here, programs=None):
        self.path, self.reasons, self.entries, self.not_here, self.layers_not_here = path, reasons, entries, not_here, layers_not_here
        self.programs = programs  # null: those of PROGRAMS


HEADERS = [
    Header("bitsnap.h", "tests/check/mutants.txt", ENTRIES, NOT_HERE, {"PLATFORM", "HASH"}),
    Header("docs/examples/file/bitsnap_file.h", "tests/check/mutants_file.txt",
           re.compile(r"bitsnap_file_(open|find|tensors|text|read|read_data|frames|frame_at|verify)$"), re.compile(r"$"),
           {"MEMORY", "TOKENS", "VALUES", "HEADER"}),
    Header("docs/examples/engine/bitsnap_engine.c", "tests/check/mutants_engine.txt", re.compile(r"(segment_check|snapshot_open|verify|decode_piece|restore)$"),
           re.compile(r"(reserve|reserve_workspace|segment_map|engine_\w+|no_memory|say|pool_\w+|round_elements|elements_at|bring|wrong_tensor)$"), set(), ["engine"]),
    Header("docs/examples/engine/engine_disk.c", "tests/check/mutants_disk.txt", re.compile(r"(disk_parse|disk_recover|disk_find_all|disk_recover_all)$"),
           re.compile(r"(engine_\w+|read_at|path_of)$"), set(), ["engine"])]


# ---- finding the code ----

LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''


def blanked(text, literals):
    """The text with comments and preprocessor lines replaced by spaces; unless `literals`, also strings and characters."""
    space = lambda m: m[0] if literals and m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0])
    text = re.sub(r"/\*.*?\*/|" + LITERAL, space, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", space, text, flags=re.M)


DEFINITION = re.compile(r"^(?:static|BSN_INLINE|BSN_FUNCTION|BITSNAP_API|const char|engine_status|size_t)[^;{}#=]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)


IMPLEMENTED = re.compile(r"^#define BITSNAP_(?:FILE_)?IMPLEMENTED\n", re.M)


def functions(text, code):
    """(name, layer, begin and end of the body) of each function, in order."""
    layers = [(m.start(), m[1]) for m in re.finditer(r"/\* =+ ([A-Z]+)", text)]
    implemented = IMPLEMENTED.search(text)
    position = implemented.start() if implemented else 0
    while True:
        m = DEFINITION.search(code, position)
        if not m:
            return
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        position = end
        yield m[1], ["", *(name for at, name in layers if at < m.start())][-1], m.end(), end


def reached(header, all_functions, code):
    calls = {}
    for m in re.finditer(r"^static const \w+ (\w+)\[\] = \{.*?^\};", code, re.M | re.S):  # a function that uses a table calls its entries
        calls[m[1]] = set(re.findall(r"\b[a-z]\w+\b", m[0])) - {m[1]}
    for name, _, begin, end in all_functions:
        calls.setdefault(name, set()).update(re.findall(r"\b[a-z]\w+\b", code[begin:end]))
    found, waiting = set(), [name for name in calls if header.entries.match(name) and not header.not_here.match(name)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [other for other in calls[name] if other in calls and not header.not_here.match(other)]
    return found


# ---- finding what is compared ----

TOKEN = re.compile(LITERAL + r"|\w+|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||->|\+\+|--|[-+*/%&|^]=|\S")
ORDER, EQUAL = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}, {"==", "!="}
STOPS = {"&&", "||", "?", ":", "=", ",", ";", "{", "}", "|", "^", "return", "else", "do", "case",
         "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="} | EQUAL
CONDITION_STOPS = STOPS - EQUAL - {"&&", "||", "|", "^"}
PART_STOPS = CONDITION_STOPS | {"&&", "||"}
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}


class Site:
    def __init__(self, begin, end, kind, text, changes):
        self.begin, self.end, self.kind, self.text, self.changes = begin, end, kind, text, changes


def sites(code, begin, end):
    """The sites between two positions. Their spans are nested or disjoint."""
    tokens = [(m.start() + begin, m[0]) for m in TOKEN.finditer(code[begin:end])]
    words = [t for _, t in tokens]
    partner, stack = {}, []
    for i, t in enumerate(words):
        if t in OPEN:
            stack.append(i)
        elif t in CLOSE and stack:
            partner[i] = stack.pop()
            partner[partner[i]] = i
    loops, conditions = [], []  # (first, last token) inside the parentheses
    for i, t in enumerate(words):
        if t in ("for", "while") and words[i + 1] == "(":
            first, last = i + 2, partner[i + 1] - 1
            if t == "for":
                parts = [j for j in range(first, last + 1) if words[j] == ";"]
                first, last = parts[0] + 1, parts[1] - 1
            loops.append((first, last))
        elif t == "if" and words[i + 1] == "(":
            conditions.append((i + 2, partner[i + 1] - 1))

    def unary(i):
        before = words[i - 1] if i else ";"
        return not (re.match(r"\w", before) and before != "return" or before in (")", "]"))

    def operand(i, step, kind):
        """The last token of the operand beside operator i. kind: a comparison of order or of equality, a ?, or an &&."""
        stops = {"?": CONDITION_STOPS, "&&": PART_STOPS}.get(kind, STOPS)
        j = i + step
        while 0 <= j < len(words):
            t = words[j]
            if t in (CLOSE if step < 0 else OPEN):
                j = partner[j] + step
                continue
            if t in (OPEN if step < 0 else CLOSE) or t in stops or (kind == "order" and t in ORDER) or \
                    (kind not in ("?", "&&") and t == "&" and not unary(j)):
                break
            j += step
        return j - step

    def text(first, last):
        return code[tokens[first][0]:tokens[last][0] + len(words[last])]

    def site(first, last, kind, changes):
        return Site(tokens[first][0], tokens[last][0] + len(words[last]), kind, " ".join(text(first, last).split()), changes)

    found = []
    for i, t in enumerate(words):
        if t not in ORDER and t not in EQUAL:
            continue
        first, last = (operand(i, step, "equal" if t in EQUAL else "order") for step in (-1, 1))
        looping = any(a <= i <= b for a, b in loops)
        if t in ORDER:
            changes = {"wide": text(first, i - 1) + " " + ORDER[t] + " " + text(i + 1, last)}
            if not looping:
                changes["off"] = "0"
        elif looping:
            changes = {"not": "!(" + text(first, last) + ")"}
        else:
            changes = {"off": "0", "on": "1"}
        found.append(site(first, last, "compare", changes))

    def leaves(first, last):
        """Splits a condition at && and ||, also inside parentheses."""
        while words[first] == "(" and partner[first] == last:
            first, last = first + 1, last - 1
        parts, j, start = [], first, first
        while j <= last:
            if words[j] in OPEN:
                j = partner[j]
            elif words[j] in ("&&", "||"):
                parts.append((start, j - 1))
                start = j + 1
            j += 1
        parts.append((start, last))
        if len(parts) > 1:
            for a, b in parts:
                leaves(a, b)
        elif not any(t in ORDER or t in EQUAL or t == "=" for t in words[first:last + 1]):
            found.append(site(first, last, "leaf", {"off": "0"}))

    for first, last in conditions:
        leaves(first, last)
    for i, t in enumerate(words):
        if t == "?":
            leaves(operand(i, -1, "?"), i - 1)
        elif t in ("&&", "||") and not any(a <= i <= b for a, b in conditions + loops):
            first, last = operand(i, -1, "?"), operand(i, 1, "?")
            if words[last + 1] != "?" and not any(j < i and words[j] in ("&&", "||") and operand(j, 1, "?") == last for j in range(first, i)):
                leaves(first, last)
    joins = [i for i, t in enumerate(words) if t == "&&"]
    for first, last in {(operand(i, -1, "&&"), i - 1) for i in joins} | {(i + 1, operand(i, 1, "&&")) for i in joins}:
        part = site(first, last, "part", {"held": "((void)(%s), 1)" % text(first, last)})
        same = next((s for s in found if (s.begin, s.end) == (part.begin, part.end)), None)
        if not same:
            found.append(part)
        elif "on" not in same.changes:
            same.changes.update(part.changes)
    return sorted(found, key=lambda s: (s.begin, -s.end))


class Mutant:
    def __init__(self, header, number, function, change, text):
        self.header, self.number, self.function, self.change, self.text = header, number, function, change, text

    def line(self):
        return "%s: %s: %s" % (self.function, self.change, self.text)


def instrumented(header, text, before):
    """The text of a header with all mutants in it, and these mutants. before: the number of mutants of other headers."""
    code = blanked(text, False)
    all_functions = list(functions(text, code))
    found = reached(header, all_functions, code)
    code = blanked(text, True)
    mutants, pieces, position = [], [], 0

    def emit(begin, end, inside):
        """text[begin:end] with the sites `inside`, which are removed from the list."""
        out, at = [], begin
        while inside and inside[0][0].begin < end:
            s, numbers = inside.pop(0)
            out.append(text[at:s.begin])
            out.append("(" + "".join("bsn_mutant == %d ? (%s) : " % (number, s.changes[change]) for change, number in numbers))
            out.append("(" + emit(s.begin, s.end, inside) + "))")
            at = s.end
        out.append(text[at:end])
        return "".join(out)

    for name, layer, begin, end in all_functions:
        if name not in found or layer in header.layers_not_here:
            continue
        todo, times = [], {}
        for s in sites(code, begin, end):
            numbers = []
            for change in s.changes:
                key = (change, s.text)
                times[key] = times.get(key, 0) + 1
                mutants.append(Mutant(header, before + len(mutants) + 1, name, change, s.text + (" (%d)" % times[key] if times[key] > 1 else "")))
                numbers.append((change, mutants[-1].number))
            todo.append((s, numbers))
        pieces.append(text[position:begin] + emit(begin, end, todo))
        position = end
    return "".join(pieces) + text[position:], mutants


DECLARATION = """
#include <stdlib.h>
static unsigned bsn_mutant; /* 0: none */
__attribute__((constructor)) static void bsn_mutant_begin(void)
{
    const char *number = getenv("MUTANT");
    bsn_mutant = number ? (unsigned)atoi(number) : 0;
}
"""


# ---- building and running ----

class Program:
    """A test program that contains all mutants. It is compiled when it is first needed."""

    def __init__(self, name):
        self.name, self.lock, self.limit = name, threading.Lock(), None

    def build(self):
        compiler = [os.environ.get("CC", "cc"), "-std=c99", "-O1", "-w", "-DTEST_FAILURES=1", "-DBITSNAP_IMPLEMENTATION", "-I" + BUILD, "-I" + ROOT]
        checked = ["-fsanitize=bounds,null", "-fsanitize-undefined-trap-on-error"]  # needs no library
        files = [*glob.glob(os.path.join(ROOT, "tests", "*", "test_%s.c" % self.name)), "-o", os.path.join(BUILD, self.name), "-lpthread", "-lm"]
        if subprocess.run(compiler + checked + files, stderr=subprocess.DEVNULL).returncode:
            subprocess.run(compiler + files, check=True)
        failed, seconds = self.run(0, 600)
        if failed:
            raise RuntimeError("test_%s.c fails without any mutant" % self.name)
        self.limit = int(4 * seconds) + 2

    def notices(self, number):
        with self.lock:
            if self.limit is None:
                self.build()
        return self.run(number, self.limit)[0]

    def run(self, number, limit):
        """Whether it fails, and its processor time. Exceeding `limit` is a failure, too."""
        command = ["sh", "-c", 'ulimit -c 0; ulimit -t "$0"; exec "$1"', str(limit), os.path.join(BUILD, self.name)]
        process = subprocess.Popen(command, cwd=ROOT, env=dict(SHORT, MUTANT=str(number), NOT=NOT, TMPDIR=BUILD),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60 * limit  # a program that waits forever uses no processor time
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = status
                return status != 0, usage.ru_utime + usage.ru_stime
            if time.monotonic() > end:
                process.kill()
            time.sleep(0.005)


def write_copies(texts):
    for folder in ("docs/examples/tool", "docs/examples/engine"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(BUILD, folder), dirs_exist_ok=True)
    for header, text in texts.items():
        path = os.path.join(BUILD, header.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text if "/" in header.path else IMPLEMENTED.sub(lambda m: m[0] + DECLARATION, text, count=1))
    with open(os.path.join(BUILD, "bitsnap_simd.h"), "w", encoding="utf-8") as f:
        f.write('#include "bitsnap.h"\n')  # the portable kernels only


UNEXAMINED = "Not examined yet"  # reason of a line that was noticed by no program, or never run


def read_reasons(header):
    """Maps lines to reasons. A reason is the last line above that begins with #."""
    reasons, reason = {}, ""
    if not os.path.exists(os.path.join(ROOT, header.reasons)):  # everything is noticed
        return {}
    with open(os.path.join(ROOT, header.reasons), encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith("#"):
                reason = line[2:]
            elif line:
                reasons[line] = reason
    return reasons


def write_reasons(header, reasons):
    with open(os.path.join(ROOT, header.reasons), "w", encoding="utf-8") as f:
        for reason in sorted(set(reasons.values()), key=lambda reason: (reason.startswith(UNEXAMINED), reason)):
            lines = [line for line in reasons if reasons[line] == reason]
            f.write("# %s\n%s\n\n" % (reason, "\n".join(lines)))


def choose(arguments, mutants, reasons, seed, count):
    chosen = [m for m in mutants if not arguments.only or re.search(arguments.only, m.line())]
    if arguments.lines:
        with open(arguments.lines, encoding="utf-8") as f:
            lines = set(f.read().split("\n"))
        chosen = [m for m in chosen if m.line() in lines]
    if count and count < len(chosen):
        # mutants that pass all programs take longest, so one in ten is such a mutant
        known = [m for m in chosen if m.line() in reasons]
        others = [m for m in chosen if m.line() not in reasons]
        chance, few = random.Random(seed), count // 10
        chosen = chance.sample(known, min(few, len(known))) + chance.sample(others, min(count - few, len(others)))
    return chosen


def main():
    parser = argparse.ArgumentParser(description="Changes checks of bitsnap.h and bitsnap_file.h one at a time; the tests have to notice.")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", metavar="REGEX")
    parser.add_argument("--lines", metavar="FILE", help="only those that stand there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--programs", help="only these of the test programs, by name")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    texts, mutants = {}, []
    for header in HEADERS:
        with open(os.path.join(ROOT, header.path), encoding="utf-8") as f:
            texts[header], more = instrumented(header, f.read(), len(mutants))
        mutants += more
    if arguments.list:
        for m in mutants:
            print(m.line())
        print("%d mutants in %d functions" % (len(mutants), len({m.function for m in mutants})))
        return 0
    seed = arguments.seed if arguments.seed is not None else int(time.strftime("%j"))
    programs = {name: Program(name) for names in [names for _, names in PROGRAMS] + [header.programs or [] for header in HEADERS] for name in names}
    wanted = arguments.programs.split() if arguments.programs else list(programs)
    write_copies(texts)

    def noticed(m):
        names = m.header.programs or next(names for pattern, names in PROGRAMS if pattern.search(m.function))
        return next((name for name in names if name in wanted and programs[name].notices(m.number)), None)

    failed = False
    for header in HEADERS:
        all_here = [m for m in mutants if m.header is header]
        reasons = read_reasons(header)
        count = arguments.count and (arguments.count if not header.programs else max(1, arguments.count // 12))  # each takes seconds
        chosen = choose(arguments, all_here, reasons, seed, count)
        gone = set(reasons) - {m.line() for m in all_here}
        unexamined = [line for line in reasons if reasons[line].startswith(UNEXAMINED)]
        for line in sorted(gone - set(unexamined)):
            print("not ok - mutants: %s has what %s has not: %s" % (header.reasons, header.path, line))
        by, missed, stale, better = {}, [], [], []
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for m, name in zip(chosen, pool.map(noticed, chosen)):
                line = m.line()
                by[name] = by.get(name, 0) + 1
                if name and reasons.get(line, "").startswith(UNEXAMINED):
                    better.append(line)
                elif name and line in reasons:
                    stale.append(line)
                    print("not ok - mutants: %s says that nothing notices, test_%s does: %s" % (header.reasons, name, line), flush=True)
                elif not name and line not in reasons:
                    missed.append(line)
                    print("not ok - mutants: nothing notices %s" % line, flush=True)
        if arguments.write:
            for line in [*gone, *stale, *better]:
                del reasons[line]
            reasons.update((line, UNEXAMINED) for line in missed)
            write_reasons(header, reasons)
        failed_here = bool(gone - set(unexamined) or missed or stale)
        failed |= failed_here
        print("%s - mutants of %s: %d of %d (seed %d): %s, nothing notices %d; not examined yet are %d of all%s"
              % ("not ok" if failed_here else "ok", os.path.basename(header.path), len(chosen), len(all_here), seed,
                 ", ".join("test_%s notices %d" % (name, by[name]) for name in programs if name in by), by.get(None, 0),
                 len(unexamined),
                 ", of which %d here are noticed (--write)" % len(better) if better else ""))
    for name in os.listdir(BUILD):
        if name.startswith("bitsnap-test-"):  # left by programs that were killed
            shutil.rmtree(os.path.join(BUILD, name))
    return failed


sys.exit(main())
