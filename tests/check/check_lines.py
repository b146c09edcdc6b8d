#!/usr/bin/env python3
"""Limits on the code of the two headers: lines in all, and for each function its lines, parameters, nesting levels and branch
points. Only lines with code count. With `all`, prints every function above a limit. A function that exceeds all limits is
planted to show that the check works."""
import os
import re
import sys

HEADERS = {"bitsnap.h": 12353, "bitsnap_simd.h": 3679}  # code lines at most; lower these when lines go
LIMITS = {"lines": 80, "parameters": 8, "levels": 4, "branches": 30}

# Functions above a limit, and why. A needless entry fails.
FIXED_SHAPE = "one straight run for fixed shapes: cut in two it would pass a dozen registers"
EXCEPTIONS = {
    "bitsnap_mask_encode": "public: two arrays, their base and three outputs, and no struct to hold them",
    "bitsnap_cluster_encode": "public: as above, with a workspace",
    "bsn_avx512_start_field": FIXED_SHAPE,
    "bsn_avx512_finish_node": FIXED_SHAPE,
    "bsn_avx512_census_groups": "constants that are made once for all groups",
    "BSN_T(some_words)": "the branches are known when a template is compiled",
}

KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "defined"}


def code_of(text):
    """The text without comments and contents of strings. Line numbers stay the same."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                  lambda m: '""' if m[0][0] in "\"'" else "\n" * m[0].count("\n"), text, flags=re.S)
    return text


def directives_away(text):
    """Blanks preprocessor lines. If braces do not match in a branch of #if, blanks its later branches, too."""
    stack, more = [[[]]], False  # open conditions; a branch is a list of lines
    for line in text.split("\n"):
        d = None if more else re.match(r"\s*#\s*(\w+)", line)
        if d and d[1] in ("else", "elif"):
            stack[-1].append([])
        elif d and d[1] == "endif":
            branches = stack.pop()
            whole = all("\n".join(b).count("{") == "\n".join(b).count("}") for b in branches)
            for k, b in enumerate(branches):
                stack[-1][-1] += b if whole or not k else [""] * len(b)
        elif d and d[1].startswith("if"):
            stack.append([[]])
        stack[-1][-1].append("" if d or more else line)
        more = (more or bool(d)) and line.rstrip().endswith("\\")
    return "\n".join(stack[0][0])


def functions(text):
    """Name, code lines, parameters, levels and branch points of each function. A function is braces at depth 0 after `name(...)`."""
    body = directives_away(text)
    body = re.sub(r'extern ""\s*\{', "", body)
    position = 0
    head = re.compile(r"\b(\w+|BSN_T\(\w+\))\s*\(((?:[^(){};]|\((?:[^(){};]|\([^(){};]*\))*\))*)\)\s*\{")
    while True:
        m = head.search(body, position)
        if not m:
            return
        if m[1] in KEYWORDS:
            position = m.end()
            continue
        depth, end = 1, m.end()
        while depth and end < len(body):
            depth += {"{": 1, "}": -1}.get(body[end], 0)
            end += 1
        inside = body[m.end():end]
        parameters = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", m[2]))
        start = body.count("\n", 0, body.rfind("\n", 0, m.start()) + 1)
        finish = body.count("\n", 0, end)
        yield (m[1], {
            "lines": sum(1 for line in body.split("\n")[start:finish + 1] if line.strip()),
            "parameters": 0 if parameters.strip() in ("", "void") else parameters.count(",") + 1,
            "levels": levels(inside),
            "branches": len(re.findall(r"\b(?:if|for|while|case)\b|&&|\|\||\?", inside)),
        })
        position = end


def levels(inside):
    """The depth of nested statements, with or without braces, from the indentation: 4 columns for each level. A second statement
    on one line is one level more."""
    deepest = 0
    for line in inside.split("\n"):
        control = re.findall(r"(?<!else )(?<!} )\b(?:if|for|while|switch|do)\b", line)
        if control and re.match(r"\s*(?:case .*?: *|} else |else )?(?:if|for|while|switch|do)\b", line):
            deepest = max(deepest, (len(line) - len(line.lstrip())) // 4 + len(control) - 1)
    return deepest


def unnoticed():
    """The limits that the planted function is not found to exceed."""
    parameters = ", ".join(f"int a{k}" for k in range(LIMITS["parameters"] + 1))
    nested = "".join("    " * k + "if (a0)\n" for k in range(1, LIMITS["levels"] + 2))
    found = dict(functions(f"static int f({parameters})\n{{\n{nested}" + "    a1 = a2 ? 1 : 2;\n" * LIMITS["lines"] + "}\n"))
    return [k for k, limit in LIMITS.items() if found.get("f", {}).get(k, 0) <= limit]


def main():
    bad, at_limit = [f"does not notice too many {k}" for k in unnoticed()], []
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    totals = []
    for name, limit in HEADERS.items():
        with open(os.path.join(root, name), encoding="utf-8") as f:
            text = code_of(f.read())
        lines = sum(1 for line in text.split("\n") if line.strip())
        found = list(functions(text))
        totals.append(f"{name} {lines} of {limit} code lines, {len(found)} functions")
        if lines > limit:
            bad.append(f"{name} has {lines} code lines, {lines - limit} above its limit")
        if len(found) < 150:
            bad.append(f"only {len(found)} functions found in {name}")
        for function, of in found:
            above = {k: v for k, v in of.items() if v > LIMITS[k]}
            text_of = ", ".join(f"{v} {k}" for k, v in above.items())
            if above:
                at_limit.append(f"{function}: {text_of}")
            if above and function not in EXCEPTIONS:
                bad.append(f"{function} has {text_of}")
    above = {line.split(":")[0] for line in at_limit}
    bad += [f"{function} is within the limits: take it out of EXCEPTIONS" for function in EXCEPTIONS if function not in above]
    if "all" in sys.argv[1:]:
        print("\n".join(at_limit))
    print("not ok - lines: " + "; ".join(bad) if bad else "ok - lines: " + "; ".join(totals) + f"; {len(EXCEPTIONS)} exceptions")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
