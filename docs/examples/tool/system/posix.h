/* posix.h - selects POSIX 2008 and 64-bit file offsets. Every file includes it before the first system header.
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
/* for syscall() */
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif
/* with _XOPEN_SOURCE alone, these systems hide the number of processors */
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
