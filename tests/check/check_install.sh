#!/bin/sh
# Uses the results of make install and make lib: with pkg-config, CMake, man, bash, zsh and fish, linked statically and
# shared. make uninstall leaves nothing. CMake also takes the headers from a checkout, and with FetchContent from a git
# repository. The tool is the one in build/. The library is compiled without optimization.
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR PREFIX BINDIR INCLUDEDIR LIBDIR MANDIR COMPLETIONDIR ZSHDIR FISHDIR PKG_CONFIG_PATH BASH_ENV
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
cc=${CC:-cc}
failed=0
check() { # name, shell command
    if sh -c "$2" >"$t/out" 2>&1; then echo "ok - install: $1"; else echo "not ok - install: $1"; head -n 12 "$t/out"; failed=1; fi
}
if [ "$(uname -s)" != Linux ]; then echo "skip - install: tested on Linux"; exit 0; fi
mkdir "$t/build" && cp "${BITSNAP:-build/bitsnap}" "$t/build/bitsnap" || exit 1
make="make -s B=$t/build -o $t/build/bitsnap CC=$cc CFLAGS=-O0 WARN=-DBITSNAP_NO_AVX512"
files='bin/bitsnap include/bitsnap.h include/bitsnap_file.h include/bitsnap_references.h include/bitsnap_simd.h lib/cmake/bitsnap/bitsnapConfig.cmake
    lib/cmake/bitsnap/bitsnapConfigVersion.cmake lib/pkgconfig/bitsnap.pc share/bash-completion/completions/bitsnap
    share/fish/vendor_completions.d/bitsnap.fish share/man/man1/bitsnap.1 share/zsh/site-functions/_bitsnap'
libraries='lib/libbitsnap.a lib/libbitsnap.so lib/libbitsnap.so.1 lib/pkgconfig/libbitsnap.pc'
installed() { # directory, files: the files there, and no others
    (cd "$1" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort) >"$t/found"
    # shellcheck disable=SC2086
    printf '%s\n' $2 | LC_ALL=C sort | diff - "$t/found"
}

# ---------------------------------------------------------------------------------- where to
(umask 077; $make install DESTDIR="$t/a root" PREFIX=/opt/x) >"$t/log" 2>&1
check "DESTDIR, also with a space in its name" "cat $t/log; test -x '$t/a root/opt/x/bin/bitsnap' && ! grep -r '$t' '$t/a root/opt/x/lib'"
installed "$t/a root/opt/x" "$files" >"$t/diff"
check "headers, tool, page, completion, packages, nothing else" "cat $t/diff; test ! -s $t/diff"
check "everybody may read all, whatever the umask" "cd '$t/a root' && find . -type d ! -perm -555 -o ! -type l ! -perm -444 | grep . && exit 1;
    test -x opt/x/bin/bitsnap && test ! -x opt/x/include/bitsnap.h"
$make uninstall DESTDIR="$t/a root" PREFIX=/opt/x >"$t/log" 2>&1
check "uninstalled: nothing is left" "cat $t/log; find '$t/a root' ! -type d | grep . && exit 1; test ! -e '$t/a root/opt/x/lib/cmake/bitsnap'"
$make lib install PREFIX="$t/p" >"$t/log" 2>&1
installed "$t/p" "$files $libraries" >"$t/diff"
check "and the library where it was made" "cat $t/log $t/diff; test ! -s $t/diff"

# ---------------------------------------------------------------------------------- page and completion
commands=$("$t/p/bin/bitsnap" help | sed -n '/^Examples/q; s/^  bitsnap \([a-z]*\) .*/\1/p' | sort -u)
missing=
for command in $commands; do
    for option in $("$t/p/bin/bitsnap" help "$command" | grep -oE '^ +(-[A-Za-z], )?--[a-z][a-z0-9-]+' | grep -oE -e '--[a-z][a-z0-9-]+'); do
        sed 's/\\-/-/g; s/\\f[BIR]//g' "$t/p/share/man/man1/bitsnap.1" | grep -A1 '^\.TP' | grep -q -e "$option\b" || missing="$missing $option"
    done
done
check "bitsnap.1 has every option of every command" "echo missing: $missing; test -z '$missing' && test $(echo "$commands" | wc -l) -ge 9"
if command -v groff >/dev/null; then
    check "bitsnap.1 is set without a warning" "groff -man -ww -Tutf8 $t/p/share/man/man1/bitsnap.1 2>&1 >$t/page | grep . && exit 1; test \$(wc -l <$t/page) -gt 200"
else
    echo "skip - install: the manual page needs groff (Debian: groff-base)"
fi
for section in 'EXIT STATUS' ENVIRONMENT 'SEE ALSO'; do
    grep -qx ".SH $section" "$t/p/share/man/man1/bitsnap.1" || missing="$missing $section"
done
used=$(grep -rho 'getenv("[A-Z_]*")' docs/examples/tool | sed 's/.*"\(.*\)".*/\1/' | sort -u)
listed=$(sed -n '/^\.SH ENVIRONMENT/,/^\.SH SEE/s/^\.B \([A-Z_]*\)$/\1/p' "$t/p/share/man/man1/bitsnap.1" | sort -u)
check "bitsnap.1 has the exit status, the environment that the tool reads, and other pages" "echo missing: $missing; test -z '$missing' && test '$used' = '$listed'"
# what is typed, and what each shell makes of it
cat >"$t/completions" <<'END'
bitsnap comp|compare compress
bitsnap help inv|invert
bitsnap compress --self|--self-contained
bitsnap -q c --dry|--dry-run
bitsnap info --dry|
bitsnap compress -l |best default fast
bitsnap merge a b --level=f|fast
bitsnap compare --adam=|clusters exact resume small stage standard
bitsnap compress --dtype f8|f8_e4m3 f8_e5m2
bitsnap extract a b --as |f32
bitsnap compress --out|--output
END
cat >"$t/complete.bash" <<'END'
. "$1"
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bitsnap; echo "${COMPREPLY[*]}"; }
[ "$(complete_words bitsnap compress mod)" = "" ] && complete -p bitsnap | grep -q -- '-o default.*-F _bitsnap' || echo "files are not completed"
while IFS='|' read -r line expected; do
    words=${line//=/ = } last= # bash makes = a word of its own
    case $line in *[\ =]) last=1 ;; esac
    eval "got=\$(complete_words $words ${last:+\'\'})"
    got=$(printf '%s\n' $got | LC_ALL=C sort | paste -sd ' ')
    [ "$got" = "$expected" ] || echo "$line: '$got'"
done <"$2"
END
cat >"$t/complete.zsh" <<'END'
compset() { : } # replace the functions that the shell offers to completions
_files() { found=(files) }
compadd() { local w; shift; for w; do [[ $w == ${typed}* ]] && found+=($w); done }
complete_words() { local -a words found; words=("$@"); integer CURRENT=$#; typed=${words[CURRENT]#--*=}; source $completion; print -r -- ${(o)found} }
completion=$1
[[ $(complete_words bitsnap compress mod) == files ]] || print files are not completed
while IFS='|' read -r line expected; do
    got=$(complete_words "${(@s: :)line}")
    [[ $got == $expected ]] || print -r -- "$line: '$got'"
done <$2
END
cat >"$t/complete.fish" <<'END'
source $argv[1]
cd (dirname $argv[2])
test (complete -C"bitsnap compress complet" | count) -gt 3; or echo files are not completed
while read -d '|' line expected
    set got (complete -C"$line" | string split -f1 \t | string replace -r '^--.*=' '' | string join ' ')
    test "$got" = "$expected"; or echo "$line: '$got'"
end <$argv[2]
END
for shell in 'bash bash-completion/completions/bitsnap --norc' 'zsh zsh/site-functions/_bitsnap -f' 'fish fish/vendor_completions.d/bitsnap.fish --no-config'; do
    # shellcheck disable=SC2086
    set -- $shell
    if command -v "$1" >/dev/null; then
        check "completion in $1" "HOME=$t $1 $3 $t/complete.$1 $t/p/share/$2 $t/completions >$t/wrong 2>&1; cat $t/wrong; test ! -s $t/wrong"
    else
        echo "skip - install: completion needs $1"
    fi
done

# ---------------------------------------------------------------------------------- programs
cat >"$t/use.c" <<'END'
#include "bitsnap.h"
int main(void)
{
    static unsigned char workspace[BITSNAP_WORKSPACE], frame[4096];
    unsigned short a[1000], back[1000];
    size_t size, i;
    bitsnap b = {0};
    for (i = 0; i < 1000; i++) a[i] = (unsigned short)(0x3C00 + i * 37 % 512);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    if (bitsnap_encode(&b, frame, sizeof frame, &size, a, 1000, BITSNAP_BF16)) return 1;
    if (bitsnap_decode(&b, back, 1000, BITSNAP_BF16, frame, size)) return 2;
    for (i = 0; i < 1000; i++) if (a[i] != back[i]) return 3;
    return 0;
}
END
{ printf '#define BITSNAP_IMPLEMENTATION\n'; cat "$t/use.c"; } >"$t/whole.c"
version=$(sed -n 's/^#define BITSNAP_VERSION "\(.*\)"/\1/p' bitsnap.h)
strict='-std=c99 -Wall -Wextra -Wpedantic -Werror'
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$t/p/lib/pkgconfig"
    check "pkg-config: the headers" "test \$(pkg-config --modversion bitsnap) = $version && test -z \"\$(pkg-config --libs bitsnap)\" &&
        $cc $strict \$(pkg-config --cflags bitsnap) $t/whole.c -o $t/whole && $t/whole"
    printf '#define BITSNAP_FILE_IMPLEMENTATION\n#include "bitsnap_file.h"\n#define BITSNAP_REFERENCES_IMPLEMENTATION\n#include "bitsnap_references.h"\n' >"$t/file.c"
    check "pkg-config: the header of files" "$cc $strict \$(pkg-config --cflags bitsnap) -c $t/file.c -o $t/file.o"
    check "pkg-config: the shared library, known by its soname" "$cc $strict \$(pkg-config --cflags libbitsnap) $t/use.c -o $t/shared \$(pkg-config --libs libbitsnap) &&
        LD_LIBRARY_PATH=$t/p/lib $t/shared && readelf -d $t/shared | grep -q 'NEEDED.*\[libbitsnap.so.1\]'"
    check "pkg-config: the static library" "$cc $strict \$(pkg-config --cflags libbitsnap) $t/use.c -o $t/static $t/p/lib/libbitsnap.a &&
        $t/static && ! readelf -d $t/static | grep bitsnap"
else
    echo "skip - install: needs pkg-config (Debian: pkgconf)"
fi
# (the hook for devices is for who defines BITSNAP_OFFLOAD)
grep '^BITSNAP_API' bitsnap.h | grep -oE '\bbitsnap_[a-z0-9_]+\(' | tr -d '(' | grep -v '^bitsnap_offload_' | LC_ALL=C sort -u >"$t/declared"
nm -D --defined-only "$t/p/lib/libbitsnap.so" | awk '{ print $3 }' | LC_ALL=C sort -u >"$t/exported"
check "the shared library exports the functions that bitsnap.h declares, and no more" "diff $t/declared $t/exported"
check "the static library keeps its functions to the program that it is part of" "printf 'int f(void);\nint f(void) { return 0; }' >$t/f.c &&
    $cc -shared -fPIC $t/f.c -Wl,--whole-archive $t/p/lib/libbitsnap.a -Wl,--no-whole-archive -o $t/f.so && ! nm -D --defined-only $t/f.so | grep bitsnap_"
if command -v cmake >/dev/null; then
    cat >"$t/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.5...3.28)
project(use C)
find_package(bitsnap 1.0 CONFIG REQUIRED)
add_executable(whole whole.c)
target_link_libraries(whole bitsnap::bitsnap)
foreach(kind static shared)
  add_executable(with_${kind} use.c)
  target_link_libraries(with_${kind} bitsnap::${kind})
endforeach()
find_package(bitsnap 2.0 CONFIG QUIET)
if(bitsnap_FOUND)
  message(FATAL_ERROR "version 2.0 was found")
endif()
END
    check "CMake: headers, static and shared library, no other version" "CMAKE_PREFIX_PATH=$t/p CC=$cc cmake -S $t -B $t/cmake &&
        cmake --build $t/cmake && $t/cmake/whole && $t/cmake/with_static && $t/cmake/with_shared && readelf -d $t/cmake/with_shared | grep -q libbitsnap.so.1"
    # the headers without an installation: from a copy, and by FetchContent as docs/EMBEDDING.md shows it
    head=$t/repository
    mkdir -p "$head/docs/examples/file" "$t/copy" "$t/git" "$t/folder" && cp bitsnap.h bitsnap_simd.h "$head" && cp -R docs/cmake "$head/docs" &&
        cp docs/examples/file/bitsnap_file.h "$head/docs/examples/file"
    sed 's/= {0}/= {}/; s/#include "bitsnap.h"/&\n#include "bitsnap_file.h"/' "$t/whole.c" >"$t/copy/whole.cpp"
    cp "$t/whole.c" "$t/copy/whole.c"
    cat >"$t/copy/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.5...3.28)
project(use C CXX)
add_subdirectory($head/docs/cmake bitsnap)
add_subdirectory($head/docs/cmake again)
foreach(language c cpp)
  add_executable(whole_\${language} whole.\${language})
  target_link_libraries(whole_\${language} PRIVATE bitsnap::bitsnap)
endforeach()
END
    check "CMake: add_subdirectory, for C and C++, twice in one project, installs nothing" "CC=$cc cmake -S $t/copy -B $t/copy/build &&
        cmake --build $t/copy/build && $t/copy/build/whole_c && $t/copy/build/whole_cpp && cmake --install $t/copy/build --prefix $t/none &&
        test ! -e $t/none"
    for from in git folder; do
        cp "$t/whole.c" "$t/$from/main.c"
        sed -n '/^```cmake$/,/^```$/{/^```/!p;}' docs/EMBEDDING.md >"$t/$from/CMakeLists.txt"
    done
    check "CMake: FetchContent of a folder" "CC=$cc cmake -S $t/folder -B $t/folder/build -DFETCHCONTENT_SOURCE_DIR_BITSNAP=$head &&
        cmake --build $t/folder/build && $t/folder/build/app"
    if command -v git >/dev/null; then
        sed -i "s|https://example.org/bitsnap.git|file://$head|" "$t/git/CMakeLists.txt"
        check "CMake: FetchContent of a repository of git" "cd $head && git init -q -b main && git add . &&
            git -c user.name=a -c user.email=a@example.org commit -q -m a && CC=$cc cmake -S $t/git -B $t/git/build &&
            test -f $t/git/build/_deps/bitsnap-src/bitsnap_simd.h && cmake --build $t/git/build --target help | grep -q app"
    else
        echo "skip - install: FetchContent of a repository needs git"
    fi
else
    echo "skip - install: needs cmake"
fi
$make uninstall PREFIX="$t/p" >"$t/log" 2>&1
check "uninstalled with the library: nothing is left" "cat $t/log; find $t/p ! -type d | grep . && exit 1; true"
exit $failed
