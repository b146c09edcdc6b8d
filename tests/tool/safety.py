"""Shared by check_safety.py and check_kill.py: consecutive small checkpoints; a library that watches the system calls of the
tool, and can make one fail, kill the tool at one, or act before one; and a search for restorable checkpoints."""
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile

root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
tool = os.path.abspath(os.environ.get("BITSNAP", os.path.join(root, "build/bitsnap")))
compiler = shutil.which(os.environ.get("CC", "cc").split()[0]) or shutil.which("gcc")

# SHIM="CALL:K ACTION[;CALL:K ACTION]...": the action before the K-th call of that name (* for any; SHIM_LOG logs the calls):
# kill; killafter; fail ERRNO; full (this and all later writes fail for lack of space); rename A B; link A B; unlink A; cut A
# (to 4096 bytes); poke A (writes into it in place). Watched are calls with paths below SHIM_ROOT or relative paths, and writes
# and syncs of files.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int all, log_fd = -1, begun, full;
static struct { char name[16]; int count; } calls[32];
static void begin(void)
{
    const char *log = getenv("SHIM_LOG");
    begun = 1;
    if (log) log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
}
static int ours(const char *path)
{
    const char *root = getenv("SHIM_ROOT");
    return *path != '/' || (root && !strncmp(path, root, strlen(root)));
}
static int is_file(int fd) { struct stat st; return fd > 2 && !fstat(fd, &st) && S_ISREG(st.st_mode); }
/* -1: the call fails; 1: the program ends after it */
static int step(const char *name, const char *path)
{
    const char *plan = getenv("SHIM");
    char at[32], action[16], a[256], b[256];
    int k, n, used, i, ends = 0;
    if (!begun) begin();
    for (i = 0; *calls[i].name && strcmp(calls[i].name, name); i++) ;
    strcpy(calls[i].name, name);
    n = ++calls[i].count;
    all++;
    if (log_fd >= 0) dprintf(log_fd, "%s %s\n", name, path);
    for (; plan && *plan; plan += used + (plan[used] == ';')) {
        *a = *b = 0;
        if (sscanf(plan, "%31[^:]:%d %15s%n", at, &k, action, &used) != 3) abort();
        if (plan[used] == ' ' && sscanf(plan + used, " %255[^ ;]%n", a, &i) == 1) used += i;
        if (plan[used] == ' ' && sscanf(plan + used, " %255[^ ;]%n", b, &i) == 1) used += i;
        if (*at == '*' ? all != k : strcmp(at, name) || n != k) continue;
        if (!strcmp(action, "kill")) kill(getpid(), SIGKILL);
        else if (!strcmp(action, "killafter")) ends = 1;
        else if (!strcmp(action, "fail")) { errno = atoi(a); return -1; }
        else if (!strcmp(action, "full")) full = 1;
        else if (!strcmp(action, "rename")) syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0);
        else if (!strcmp(action, "link")) syscall(SYS_linkat, AT_FDCWD, a, AT_FDCWD, b, 0);
        else if (!strcmp(action, "unlink")) syscall(SYS_unlinkat, AT_FDCWD, a, 0);
        else if (!strcmp(action, "cut")) syscall(SYS_truncate, a, 4096L);
        else if (!strcmp(action, "poke")) {
            int fd = (int)syscall(SYS_openat, AT_FDCWD, a, O_WRONLY, 0);
            syscall(SYS_pwrite64, fd, "CHANGED!", 8, 7000);
            syscall(SYS_close, fd);
        } else abort();
    }
    if (full && !strcmp(name, "write")) { errno = ENOSPC; return -1; }
    return ends;
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CALL(name, path, watched, call) do { \
        const int s = (watched) ? step(name, path) : 0; long r; \
        if (s < 0) return -1; \
        r = (long)(call); \
        if (s > 0) kill(getpid(), SIGKILL); \
        return r; } while (0)
ssize_t write(int fd, const void *p, size_t n) { CALL("write", "-", is_file(fd), REAL(write)(fd, p, n)); }
static int is_sick(int fd)
{
    char link[64], path[4096], *sick = getenv("SHIM_SICK");
    ssize_t n;
    if (!sick) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    if (!strstr(path, sick)) return 0;
    errno = EIO;
    return 1;
}
ssize_t read(int fd, void *p, size_t n) { return is_sick(fd) ? -1 : REAL(read)(fd, p, n); }
ssize_t pread(int fd, void *p, size_t n, off_t at) { return is_sick(fd) ? -1 : REAL(pread)(fd, p, n, at); }
ssize_t pread64(int fd, void *p, size_t n, off64_t at) { return is_sick(fd) ? -1 : REAL(pread64)(fd, p, n, at); }
int fsync(int fd) { CALL("fsync", "-", 1, REAL(fsync)(fd)); }
int close(int fd) { CALL("close", "-", is_file(fd), REAL(close)(fd)); }
int fchmod(int fd, mode_t m) { CALL("fchmod", "-", 1, REAL(fchmod)(fd, m)); }
int fchown(int fd, uid_t u, gid_t g) { CALL("fchown", "-", 1, REAL(fchown)(fd, u, g)); }
int futimens(int fd, const struct timespec t[2]) { CALL("futimens", "-", 1, REAL(futimens)(fd, t)); }
int flock(int fd, int how) { CALL("flock", "-", 1, REAL(flock)(fd, how)); }
int rename(const char *a, const char *b) { CALL("rename", a, ours(a), REAL(rename)(a, b)); }
int link(const char *a, const char *b) { CALL("link", a, ours(a), REAL(link)(a, b)); }
int unlink(const char *a) { CALL("unlink", a, ours(a), REAL(unlink)(a)); }
int unlinkat(int d, const char *a, int f) { CALL("unlinkat", a, ours(a), REAL(unlinkat)(d, a, f)); }
int open64(const char *path, int flags, ...)
{
    va_list v; int mode; va_start(v, flags); mode = va_arg(v, int); va_end(v);
    CALL(flags & O_CREAT ? "create" : "open", path, ours(path), REAL(open64)(path, flags, mode));
}
int open(const char *path, int flags, ...)
{
    va_list v; int mode; va_start(v, flags); mode = va_arg(v, int); va_end(v);
    CALL(flags & O_CREAT ? "create" : "open", path, ours(path), REAL(open64)(path, flags, mode));
}
long syscall(long number, ...)
{
    va_list v; long a[6]; int i;
    va_start(v, number); for (i = 0; i < 6; i++) a[i] = va_arg(v, long); va_end(v);
    if (number == SYS_renameat2 && begun >= 0 && a[4] != 0) {
        CALL(a[4] == 2 ? "exchange" : "move", (const char *)a[1], 1, REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]));
    }
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""

failed = False


def report(group, good, what, more=""):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'not ok'} - {group}: {what}{': ' + more if more and not good else ''}", flush=True)


def model(seed, step):
    """A small checkpoint. Each step changes one of 50 elements a little."""
    r = random.Random(seed)
    weights = [struct.unpack("<I", struct.pack("<f", r.gauss(0, 0.02)))[0] >> 16 for _ in range(9000)]
    for s in range(step):
        r = random.Random(1000 * seed + s)
        for _ in range(180):
            weights[r.randrange(len(weights))] ^= 1
    data = struct.pack("<9000H", *weights)
    text = json.dumps({"a": {"dtype": "BF16", "shape": [90, 100], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Place:
    """A scratch directory. Every cell begins with the same files: s0, s1, s2 and other (.safetensors); s0 and s1 packed; the
    deltas d1 (0 to 1) and d2 (1 to 2); and the files that `more` names."""

    def __init__(self):
        self.top = tempfile.mkdtemp()
        self.dir = os.path.join(self.top, "work")
        self.shim = os.path.join(self.top, "shim.so")
        self.log = os.path.join(self.top, "log")
        os.mkdir(self.dir)
        os.chdir(self.dir)
        self.content = {"s0": model(1, 0), "s1": model(1, 1), "s2": model(1, 2), "other": model(2, 0), "newer": model(3, 0)}
        write(os.path.join(self.top, "shim.c"), SHIM.encode())
        built = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", os.path.join(self.top, "shim.c"), "-o", self.shim, "-ldl"], capture_output=True, text=True)
        self.adopt()
        self.has_shim = built.returncode == 0 and self.calls("c -f -o x s0") != []

    def adopt(self):
        """Makes the other files from the checkpoints."""
        self.begin("")
        for name, data in self.content.items():
            write(name, data)
        for line in ("c -o s0.bsnap s0", "c -o s1.bsnap s1", "c --self-contained -b s0 -o d1 s1", "c --self-contained -b s1 -o d2 s2"):
            subprocess.run([tool, "-q", "-T1", *line.split()], check=True)
        self.files = {name: read(name) for name in os.listdir(".")}
        self.known = {hashlib.sha256(data).digest(): name for name, data in self.content.items()}
        self.restored = {}

    def end(self):
        os.chdir("/")
        shutil.rmtree(self.top, ignore_errors=True)

    def begin(self, names):
        """Empties the scratch directory and writes these files."""
        os.chdir(self.top)
        subprocess.run(["chmod", "-R", "u+w", self.dir], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir)
        os.mkdir(self.dir)
        os.chdir(self.dir)
        for name in names.split():
            write(name, self.files[name])

    def run(self, line, shim=None, log=False, program=None, **more):
        environment = dict(os.environ, SHIM_ROOT=self.dir)
        if shim is not None:
            environment.update(LD_PRELOAD=self.shim, SHIM=shim)
        if log:
            environment["SHIM_LOG"] = self.log
        arguments = line.split() if isinstance(line, str) else line
        return subprocess.run([program or tool, arguments[0], *(["-T1"] if "-T3" not in arguments else []), *arguments[1:]], env=environment, stdin=subprocess.DEVNULL,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more})

    def calls(self, line):
        """The names of the watched system calls of a run, in order."""
        if os.path.exists(self.log):
            os.unlink(self.log)
        self.run(line, shim="", log=True)
        lines = read(self.log).decode("utf-8", "replace").splitlines() if os.path.exists(self.log) else []
        self.paths = [line.split(" ", 1)[1] for line in lines]
        return [line.split(" ", 1)[0] for line in lines]

    def state(self):
        """Every name with its content; links with their target."""
        found = {}
        for base, directories, names in os.walk("."):
            for name in directories + names:
                path = os.path.join(base, name)
                found[path] = os.readlink(path) if os.path.islink(path) else None if os.path.isdir(path) else read(path)
        return found

    def whole(self, data, bases):
        """The known checkpoint that a file restores to with one of these bases, or None. The tool runs once for each content."""
        name = self.known.get(hashlib.sha256(data).digest())
        if name or data[:4] == b"\x00" * 4:
            return name
        for base in [None, *bases]:
            key = (hashlib.sha256(data).digest(), base)
            if key not in self.restored:
                one, two = os.path.join(self.top, "one"), os.path.join(self.top, "two")
                write(one, data)
                if base:
                    write(two, self.content[base])
                got = subprocess.run([tool, "d", "-q", "-T1", "-c", *(["-b", two] if base else []), one], capture_output=True)
                self.restored[key] = self.known.get(hashlib.sha256(got.stdout).digest()) if got.returncode == 0 else None
            if self.restored[key]:
                return self.restored[key]
        return None

    def restorable(self, state=None):
        """The checkpoints that can be restored from the files, whatever their names are."""
        files = {v for v in (state or self.state()).values() if isinstance(v, bytes)}
        found = set()
        while True:
            more = {name for data in files if (name := self.whole(data, sorted(found)))} - found
            if not more:
                return found
            found |= more

    def leftovers(self):
        return sorted(os.path.join(b, n) for b, _, names in os.walk(".") for n in names if n.startswith(".bitsnap-"))
