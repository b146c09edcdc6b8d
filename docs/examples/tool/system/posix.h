/* posix.h - stands before the first system header of every file here: POSIX 2008 and 64-bit file offsets.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_POSIX_H
#define TOOL_POSIX_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#if defined(__GLIBC__) && !defined(__USE_FILE_OFFSET64)
#error "a system header stands before posix.h: off_t would have two sizes in one program"
#endif
/* system calls that have no function */
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif
/* where _XOPEN_SOURCE alone would hide the number of processors */
#if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE 1
#endif
#if defined(__FreeBSD__) && !defined(__BSD_VISIBLE)
#define __BSD_VISIBLE 1
#endif
#if defined(__NetBSD__) && !defined(_NETBSD_SOURCE)
#define _NETBSD_SOURCE 1
#endif

#endif
