#!/bin/sh
# The manual page and the completion of bash, both made from the help texts, on standard output.
#   manual.sh TOOL man|bash
LC_ALL=C; export LC_ALL
tool=$1
version=$("$tool" --version | cut -d ' ' -f 2)
commands=$("$tool" help | awk '/^Examples/ { exit } /^  bitsnap / && !seen[$2]++ { print $2 }')
texts() { # a line "@COMMAND", then its help; the first has no name and is that of the tool as a whole
    # shellcheck disable=SC2086
    for command in '' $commands; do echo "@$command"; "$tool" help $command; done
}
shortened() { # a line "=LETTER COMMAND" for each command that has a letter
    for letter in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
        "$tool" help $letter 2>/dev/null | sed -n "1s/^bitsnap \([a-z]*\) .*/=$letter \1/p"
    done
}

# An option, or another word that is explained, stands before column 24 of the help texts, and what it means from there on.
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
}'

# An option has values to choose from where its text is nothing but "a, b or c", or where a sentence of the help that ends with the
# name of its argument and "is" explains them.
completion='
function finish()
{
    sub(/^with -b: /, "", text)
    if (text ~ /^([a-z]+, )*[a-z]+ or [a-z]+$/) { gsub(/,| or/, "", text); values[option] = text }
    else if (argument in listed) values[option] = substr(listed[argument], 2)
    open = 0
}
open && is_body($0) { text = text " " body($0); next }
open { finish() }
/^=/ { short[$2] = short[$2] "|" substr($1, 2); next }
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
    if (!(option in values)) { options[++option_count] = option; values[option] = "" }
    text = body($0)
    open = 1
    next
}
is_entry($0) { word = head($0); sub(/[, ].*/, "", word); if (word ~ /^[a-z]+$/) listed[argument] = listed[argument] " " word }
END {
    print "# Completion for bash, made from the help texts by manual.sh\n_bitsnap()\n{"
    print "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= words= i"
    print "    if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi"
    print "    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in"
    for (i = 1; i <= count; i++) {
        print "        " commands[i] short[commands[i]] ") command=1 words=\"" substr(of[commands[i]], 2) "\"; break ;;"
        all = all commands[i] " "
    }
    print "        esac\n    done\n    [[ $command ]] || words=\"" all "help --help --version\""
    print "    [[ $command && $word != -* ]] && words= # files, which bash completes by itself\n    case $before in"
    for (i = 1; i <= option_count; i++) if (values[options[i]] != "") print "    " options[i] ") words=\"" values[options[i]] "\" ;;"
    print "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o bashdefault -o default -F _bitsnap bitsnap"
}'
case $2 in
man) texts | awk -v version="$version" "$columns$page" ;;
bash) (shortened; texts) | awk "$columns$completion" ;;
*) echo 'manual.sh TOOL man|bash' >&2; exit 2 ;;
esac
