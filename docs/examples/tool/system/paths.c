/* paths.c - splits and joins paths, and writes names of a directory to the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "posix.h"

#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *directory_of(const char *path, size_t more)
{
    const char *slash = strrchr(path, '/');
    const size_t size = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    char *directory = (char *)malloc(size + 2 + more);
    if (!directory) return NULL;
    memcpy(directory, slash ? path : ".", size);
    directory[size] = 0;
    return directory;
}

const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *path_in(const char *folder, const char *name, fault *f)
{
    const size_t size = strlen(folder);
    char *path = (char *)malloc(size + strlen(name) + 2);
    if (!path) return (void)fault_memory(f), NULL;
    (void)strcat(strcpy(path, folder), *name && !(size && folder[size - 1] == '/') ? "/" : "");
    return strcat(path, name);
}

int place_sync(const char *path, fault *f)
{
    char *directory = directory_of(path, 0);
    int fd, failed = 0;
    if (!directory) return fault_memory(f);
    fd = open(directory, O_RDONLY | O_CLOEXEC);
    free(directory);
    if (fd < 0) { /* a directory may be writable, but not readable */
        sync();
        return 0;
    }
    if (fsync(fd) && errno != EINVAL && errno != ENOTSUP && errno != EOPNOTSUPP && errno != ENOSYS && errno != EBADF)
        failed = fault_errno(f, "is complete, but its name cannot be written to disk");
    (void)close(fd);
    return failed;
}
