/* Lets one file call of one thread fail, below a folder; see failing_calls.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char root[4096];
static long seen, target = -1;
static int error_number, is_for_good;
static pid_t thread;
enum { SHORT = 2 }; /* The answer where the error is none: half of what was asked for is done. */

void failing_arm(const char *folder, long at, int number, int for_good) {
    strncpy(root, folder, sizeof root - 1);
    seen = 0, target = at, error_number = number, is_for_good = for_good;
    thread = syscall(SYS_gettid);
}

void failing_disarm(void) { target = -1; }

long failing_count(void) { return seen; }

static int fails_below(const char *path) {
    if (target < 0 || strncmp(path, root, strlen(root)) || syscall(SYS_gettid) != thread)
        return 0;
    long number = seen++;
    if (number != target && !(is_for_good && number > target))
        return 0;
    errno = error_number;
    return error_number ? 1 : SHORT;
}

static int fails_of(int file) {
    if (target < 0 || file < 0)
        return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails_below(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENS(name)                                                                                \
    int name(const char *path, int flags, ...) {                                                   \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = va_arg(rest, mode_t);                                                        \
        va_end(rest);                                                                              \
        return fails_below(path) == 1 ? -1 : REAL(name)(path, flags, mode);                        \
    }
OPENS(open)
OPENS(open64)

#define OF_PATH(name, parameters, arguments)                                                       \
    int name parameters { return fails_below(path) == 1 ? -1 : REAL(name) arguments; }
OF_PATH(unlink, (const char *path), (path))
OF_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
OF_PATH(rename, (const char *path, const char *to), (path, to))

#define OF_FILE(kind, name, parameters, arguments)                                                 \
    kind name parameters { return fails_of(file) == 1 ? -1 : REAL(name) arguments; }
OF_FILE(int, fsync, (int file), (file))
OF_FILE(int, fdatasync, (int file), (file))
OF_FILE(int, ftruncate, (int file, off_t size), (file, size))
OF_FILE(int, ftruncate64, (int file, off64_t size), (file, size))
OF_FILE(int, fchmod, (int file, mode_t mode), (file, mode))

#define MOVES(name, parameters, arguments)                                                         \
    ssize_t name parameters {                                                                      \
        int fails = fails_of(file);                                                                \
        n = fails == SHORT && n > 1 ? n / 2 : n;                                                   \
        return fails == 1 ? -1 : REAL(name) arguments;                                             \
    }
MOVES(pwrite, (int file, const void *at, size_t n, off_t to), (file, at, n, to))
MOVES(pwrite64, (int file, const void *at, size_t n, off64_t to), (file, at, n, to))
MOVES(pread, (int file, void *at, size_t n, off_t from), (file, at, n, from))
MOVES(pread64, (int file, void *at, size_t n, off64_t from), (file, at, n, from))
MOVES(read, (int file, void *at, size_t n), (file, at, n))
MOVES(write, (int file, const void *at, size_t n), (file, at, n))

int posix_fallocate(int file, off_t at, off_t n) {
    return fails_of(file) == 1 ? error_number : REAL(posix_fallocate)(file, at, n);
}

int posix_fallocate64(int file, off64_t at, off64_t n) {
    return fails_of(file) == 1 ? error_number : REAL(posix_fallocate64)(file, at, n);
}

void *mmap(void *at, size_t n, int use, int flags, int file, off_t from) {
    return fails_of(file) == 1 ? MAP_FAILED : REAL(mmap)(at, n, use, flags, file, from);
}

void *mmap64(void *at, size_t n, int use, int flags, int file, off64_t from) {
    return fails_of(file) == 1 ? MAP_FAILED : REAL(mmap64)(at, n, use, flags, file, from);
}

DIR *opendir(const char *path) { return fails_below(path) == 1 ? NULL : REAL(opendir)(path); }

int rmdir(const char *path) { return fails_below(path) == 1 ? -1 : REAL(rmdir)(path); }
