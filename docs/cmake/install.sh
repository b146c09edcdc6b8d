#!/bin/sh
# make install and make uninstall: one list of files for both. What is made stands in BUILD; the environment says where it goes.
#   install.sh install|uninstall BUILD
set -e
umask 022
what=$1 build=$2
version=$(sed -n 's/^#define BITSNAP_VERSION "\(.*\)"/\1/p' bitsnap.h)
made=$(mktemp)
trap 'rm -f "$made"' EXIT

file() { # MODE DIRECTORY NAME SOURCE
    if [ "$what" = uninstall ]; then rm -f "$DESTDIR$2/$3"; return; fi
    mkdir -p "$DESTDIR$2"
    cp "$4" "$DESTDIR$2/$3.new"
    chmod "$1" "$DESTDIR$2/$3.new"
    mv -f "$DESTDIR$2/$3.new" "$DESTDIR$2/$3"
    echo "$DESTDIR$2/$3"
}
package() { # DIRECTORY NAME
    sed -e "s|@INCLUDEDIR@|$INCLUDEDIR|g; s|@LIBDIR@|$LIBDIR|g; s|@VERSION@|$version|g" "docs/cmake/$2" >"$made"
    file 644 "$1" "$2" "$made"
}
file 755 "$BINDIR" bitsnap "$build/bitsnap"
file 644 "$MANDIR/man1" bitsnap.1 "$build/bitsnap.man"
file 644 "$COMPLETIONDIR" bitsnap "$build/bitsnap.bash"
file 644 "$ZSHDIR" _bitsnap "$build/bitsnap.zsh"
file 644 "$FISHDIR" bitsnap.fish "$build/bitsnap.fish"
for header in bitsnap.h bitsnap_simd.h docs/examples/file/bitsnap_file.h docs/examples/file/bitsnap_references.h; do file 644 "$INCLUDEDIR" "${header##*/}" $header; done
package "$LIBDIR/pkgconfig" bitsnap.pc
package "$LIBDIR/cmake/bitsnap" bitsnapConfig.cmake
package "$LIBDIR/cmake/bitsnap" bitsnapConfigVersion.cmake
if [ "$what" = uninstall ] || [ -f "$build/libbitsnap.so.1" ]; then
    file 644 "$LIBDIR" libbitsnap.a "$build/libbitsnap.a"
    file 755 "$LIBDIR" libbitsnap.so.1 "$build/libbitsnap.so.1"
    package "$LIBDIR/pkgconfig" libbitsnap.pc
fi
if [ "$what" = uninstall ]; then
    rm -f "$DESTDIR$LIBDIR/libbitsnap.so"
    if [ -d "$DESTDIR$LIBDIR/cmake/bitsnap" ]; then rmdir "$DESTDIR$LIBDIR/cmake/bitsnap"; fi
elif [ -f "$build/libbitsnap.so.1" ]; then
    ln -sf libbitsnap.so.1 "$DESTDIR$LIBDIR/libbitsnap.so"
fi
