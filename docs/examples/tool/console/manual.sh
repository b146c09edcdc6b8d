#!/bin/sh
# The manual page and the completions of shells, all made from the help texts, on standard output.
#   manual.sh TOOL man|bash|zsh|fish
LC_ALL=C; export LC_ALL
tool=$1
version=$("$tool" --version | cut -d ' ' -f 2)
commands=$("$tool" help | awk '/^Examples/ { exit } /^  bitsnap / && !seen[$2]++ { print $2 }')
texts() { # a line "@COMMAND", then its help, with the options of all commands; the first has no name and is that of the tool as a whole
    echo @; "$tool" help | sed '/^Options of all commands$/,$d'
    for command in $commands; do
        echo "@$command"; "$tool" help "$command" | sed '/^Options of all commands, /d; /^Examples$/,$d'
        "$tool" help | sed '1,/^Options of all commands$/d'
        "$tool" help "$command" | sed -n '/^Examples$/,$p'
    done
}
shortened() { # a line "=LETTER COMMAND" for each command that has a letter
    for letter in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
        "$tool" help $letter 2>/dev/null | sed -n "1s/^bitsnap \([a-z]*\) .*/=$letter \1/p"
    done
}

# In the help texts an option, or another word that is explained, is before column 24, its meaning from there on.
columns='
function is_entry(line)
{
    if (line !~ /^  [^ ]/ && line !~ /^      --/) return 0
    return length(line) < 24 ? line ~ /^ +-/ : substr(line, 23, 1) == " " && substr(line, 24, 1) != " "
}
function head(line) { line = substr(line, 1, 23); gsub(/^ +| +$/, "", line); return line }
function body(line) { line = substr(line, 24); sub(/^ +/, "", line); return line }
function is_body(line) { return length(line) > 23 && substr(line, 1, 23) ~ /^ *$/ }
'

# Items are kept until all have been read: C and S begin a command, P are paragraphs, H headings, T entries, E lines as they are.
# An entry that all commands have alike is printed once, at the end.
page='
function escaped(text)
{
    gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/\047/, "\\(aq", text); gsub(/\^/, "\\(ha", text); gsub(/~/, "\\(ti", text)
    return text ~ /^\./ ? "\\&" text : text
}
function item(kind, text) { items++; kinds[items] = last = kind; texts[items] = text }
function more(text) { texts[items] = texts[items] (texts[items] == "" ? "" : "\n") text }
function print_lines(text,    lines, n, l)
{
    n = split(text, lines, "\n")
    for (l = 1; l <= n; l++) print escaped(lines[l])
}
function print_entry(i,    words, n, w, text)
{
    n = split(heads[i], words, " ")
    for (w = 1; w <= n; w++) text = text (w > 1 ? " " : "") (words[w] ~ /^[A-Z]+$/ ? "\\fI" : "\\fB") escaped(words[w]) "\\fR"
    print ".TP\n" text
    print_lines(texts[i])
}
/^@/ { command = substr($0, 2); count += command != ""; item("C", ""); examples = 0; next }
last == "C" && command == "" { summary = $0; last = ""; next }
last == "C" {
    dash = index($0, " - ")
    item("S", substr($0, 1, dash - 1))
    item("P", toupper(substr($0, dash + 3, 1)) substr($0, dash + 4) ".")
    last = ""
    next
}
/^$/ { last = ""; next }
/^Examples$/ { item("H", $0); last = ""; examples = 1; next }
last == "T" && is_body($0) { more(body($0)); next }
command != "" && !examples && is_entry($0) { item("T", body($0)); heads[items] = head($0); next }
{ kind = /^ / ? "E" : "P"; if (last == kind) more($0); else item(kind, $0) }
END {
    print ".\\\" made from the help texts by manual.sh\n.TH BITSNAP 1 \"\" \"bitsnap " version "\"\n.nh\n.ad l"
    print ".SH NAME\n" escaped(summary)
    print ".SH SYNOPSIS\n.B bitsnap\n.I COMMAND\n[\\fIOPTION\\fR...] \\fIFILE\\fR...\n.SH DESCRIPTION"
    for (i = 1; i <= items; i++) if (kinds[i] == "T") uses[heads[i] "\n" texts[i]]++
    for (i = 1; i <= items; i++) {
        kind = kinds[i]
        if (kind == "C" && i > 1 && !commands++) print ".SH COMMANDS"
        if (kind == "S") print ".SS " escaped(texts[i])
        if (kind == "H") print ".PP\n.B " texts[i]
        if (kind == "P") { print ".PP"; print_lines(texts[i]) }
        if (kind == "E") { print ".PP\n.EX"; print_lines(texts[i]); print ".EE" }
        if (kind == "T" && uses[heads[i] "\n" texts[i]] < count) print_entry(i)
    }
    print ".SH OPTIONS OF ALL COMMANDS"
    for (i = 1; i <= items; i++)
        if (kinds[i] == "T" && uses[heads[i] "\n" texts[i]] == count) {
            print_entry(i)
            uses[heads[i] "\n" texts[i]] = 0
        }
    print ".SH EXIT STATUS"
    print ".TP\n.B 0\nDone.\n.B compare\nreturns it if the files are equal, or quantized elements lie within their bounds."
    print ".TP\n.B 1\nAt least one file failed; one line on standard error says why. The others were still processed."
    print ".B compare\nreturns it if the files differ."
    print ".TP\n.B 2\nThe command line was wrong, and nothing was done.\n.B compare\nreturns it after an error, too."
    print ".SH ENVIRONMENT\n.TP\n.B TMPDIR\nThe directory of temporary files, unless\n.B \\-\\-temp\nnames one. Without both it is\n.IR /tmp ."
    print ".SH SEE ALSO\n.BR zstd (1),\n.BR sha256sum (1)\n.PP\nIn the repository: TOOL.md (recipes, JSON), FORMAT.md (the files), TRUST.md (promises and their tests)."
}'

# The values of an option are its text if that is "a, b or c"; the words at its end as in ": bf16 f16 bool"; its argument if that is in small
# letters; or the words after a sentence of the help that ends with the name of its argument and "is".
options='
function finish(    list)
{
    sub(/^ *(with -b: )?/, "", text)
    list = text
    if (list ~ /^([a-z]+, )*[a-z]+ or [a-z]+$/) { gsub(/,| or/, "", list); text = "" }
    else if (list ~ /: [a-z]+[0-9]+ [a-z]+[0-9]+ [a-z0-9_ ]+( \(.*)?$/) { sub(/ \(.*/, "", list); sub(/.*: /, "", list) }
    else if (argument ~ /^[a-z][a-z0-9]+$/) list = argument
    else list = argument in listed ? substr(listed[argument], 2) : ""
    if (list != "") values[option] = list
    if (!(option in about)) { sub(/[.,;:(] .*/, "", text); about[option] = text; takes[option] = argument }
    open = 0
}
open && is_body($0) { text = text " " body($0); next }
open { finish() }
/^=/ { short[$2] = short[$2] " " substr($1, 2); next }
/^@/ { command = substr($0, 2); if (command != "") commands[++count] = command; examples = 0; next }
/^Examples$/ { examples = 1 }
examples || command == "" { next }
/ [A-Z]+ is$/ { argument = $(NF - 1); listed[argument] = ""; next }
/^ +-/ && is_entry($0) {
    option = argument = ""
    n = split(head($0), words, /[ ,]+/)
    for (i = 1; i <= n; i++)
        if (words[i] !~ /^-/) argument = words[i]
        else if (words[i] != "--") {
            if (!index(of[command] " ", " " words[i] " ")) of[command] = of[command] " " words[i]
            option = option (option == "" ? "" : "|") words[i]
        }
    if (!(option in values)) { names[++option_count] = option; values[option] = "" }
    in_command[command, option] = 1
    text = body($0)
    open = 1
    next
}
is_entry($0) { word = head($0); sub(/[, ].*/, "", word); if (word ~ /^[a-z]+$/) listed[argument] = listed[argument] " " word }
# prints an arm of a case for each command: it sets command, and `list`, an assignment that %s in it completes, to its options
function print_commands(list,    i, text)
{
    for (i = 1; i <= count; i++) {
        text = commands[i] short[commands[i]]
        gsub(/ /, "|", text)
        printf "        %s) command=1 " list "; break ;;\n", text, substr(of[commands[i]], 2)
        all = all commands[i] " "
    }
}
# the same for each option that has values: a statement with these for %s
function print_values(statement,    i)
{
    for (i = 1; i <= option_count; i++) if (values[names[i]] != "") printf "    %s) " statement " ;;\n", names[i], values[names[i]]
}
'
bash='END {
    print "# Completion for bash, made from the help texts by manual.sh\n_bitsnap()\n{"
    print "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= words= i"
    print "    if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi"
    print "    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in"
    print_commands("words=\"%s\"")
    print "        esac\n    done\n    [[ $command ]] || words=\"" all "help --help --version\""
    print "    [[ $command && $word != -* ]] && words= # files, which bash completes by itself\n    case $before in"
    print_values("words=\"%s\"")
    print "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o bashdefault -o default -F _bitsnap bitsnap"
}'
zsh='END {
    print "#compdef bitsnap\n# Completion for zsh, made from the help texts by manual.sh\n_bitsnap()\n{"
    print "    local word=$words[CURRENT] before=$words[CURRENT-1] command i\n    local -a options"
    print "    if [[ $word == --*=* ]]; then before=${word%%=*} word=${word#*=}; compset -P \"*=\"; fi"
    print "    for i in $words[2,CURRENT-1]; do\n        case $i in"
    print_commands("options=(%s)")
    print "        esac\n    done\n    case $before in"
    print_values("compadd -- %s; return")
    print "    esac\n    if [[ -z $command ]]; then compadd -- " all "help --help --version"
    print "    elif [[ $word == -* ]]; then compadd -- $options\n    else _files; fi\n}\n_bitsnap \"$@\""
}'
fish='END {
    print "# Completion for fish, made from the help texts by manual.sh"
    for (i = 1; i <= count; i++) { all = all " " commands[i]; known = known " " commands[i] short[commands[i]] }
    print "complete -c bitsnap -n \"not __fish_seen_subcommand_from" known "\" -f -a \"" substr(all, 2) " help\""
    print "complete -c bitsnap -n \"not __fish_seen_subcommand_from" known "\" -s h -l help\ncomplete -c bitsnap -s V -l version"
    for (k = 1; k <= option_count; k++) {
        option = names[k]
        if (option !~ /--/) continue # an entry about options that have one of their own
        line = seen = ""
        n = split(option, words, "|")
        for (i = 1; i <= n; i++) line = line (words[i] ~ /^--/ ? " -l " substr(words[i], 3) : " -s " substr(words[i], 2))
        for (i = 1; i <= count; i++) if ((commands[i], option) in in_command) seen = seen " " commands[i] short[commands[i]]
        if (values[option] != "") line = line " -x -a \"" values[option] "\""
        else if (takes[option] ~ /^(FILE|BASE|FOLDER|OUTPUT|DIR|LIST)/) line = line " -r"
        else if (takes[option] != "") line = line " -x"
        text = about[option]
        gsub(/[\\\047]/, "\\\\&", text)
        print "complete -c bitsnap -n \"__fish_seen_subcommand_from" seen "\"" line (text == "" ? "" : " -d \047" text "\047")
    }
}'
case $2 in
man) texts | awk -v version="$version" "$columns$page" ;;
bash) (shortened; texts) | awk "$columns$options$bash" ;;
zsh) (shortened; texts) | awk "$columns$options$zsh" ;;
fish) (shortened; texts) | awk "$columns$options$fish" ;;
*) echo 'manual.sh TOOL man|bash|zsh|fish' >&2; exit 2 ;;
esac
