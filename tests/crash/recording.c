/* Preloaded into a process that uses SQLite: what it does to the files whose names begin with
 * $RECORDED stands in the file $RECORD, in that order, for tests/crash/power.py to replay.
 *
 * A record is a head and its bytes, written by one call. A write is recorded when it is done, so
 * that a sync that began before is not taken to cover it; a sync when it begins and when it ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 'w', TRUNCATE = 't', BEGIN = 'b', END = 'e', UNLINK = 'u' };
enum { FILES = 4096, LONGEST = 200 };

struct head { uint32_t kind, process; uint64_t offset, size; char name[LONGEST]; };

static int record = -1;
static char names[FILES][LONGEST];

#define NEXT(name) ({ static __typeof__(&name) next; \
    next ? next : (next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)); })

static int recorded(const char *path) {
    const char *prefix = getenv("RECORDED");
    return prefix && path && strncmp(path, prefix, strlen(prefix)) == 0
        && strlen(path) < LONGEST && !strstr(path, "-shm");
}

static void note(uint32_t kind, const char *name, const void *bytes, uint64_t offset, uint64_t size) {
    struct head head = { kind, getpid(), offset, size, "" };
    struct iovec parts[] = { { &head, sizeof head }, { (void *)bytes, bytes ? size : 0 } };
    strcpy(head.name, name);
    if (record < 0) record = syscall(SYS_openat, AT_FDCWD, getenv("RECORD"),
                                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (syscall(SYS_writev, record, parts, 2) < (long)sizeof head) abort();
}

static int known(int file) { return file >= 0 && file < FILES && names[file][0]; }

static int opened(int file, const char *path) {
    if (file >= 0 && file < FILES) {
        names[file][0] = 0;
        if (recorded(path)) strcpy(names[file], path);
    }
    return file;
}

static mode_t mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, mode_t) : 0; }

#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more); \
    return opened(NEXT(name)(path, flags, mode), path); }
OPEN(open)
OPEN(open64)

int close(int file) {
    if (file >= 0 && file < FILES) names[file][0] = 0;
    return NEXT(close)(file);
}

#define PWRITE(name, type) ssize_t name(int file, const void *bytes, size_t size, type offset) { \
    ssize_t done = NEXT(name)(file, bytes, size, offset); \
    if (done > 0 && known(file)) note(WRITE, names[file], bytes, offset, done); \
    return done; }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNC(name, type) int name(int file, type size) { \
    int done = NEXT(name)(file, size); \
    if (!done && known(file)) note(TRUNCATE, names[file], 0, size, 0); \
    return done; }
TRUNC(ftruncate, off_t)
TRUNC(ftruncate64, off64_t)

ssize_t write(int file, const void *bytes, size_t size) {
    off_t before = known(file) ? lseek(file, 0, SEEK_CUR) : 0;
    ssize_t done = NEXT(write)(file, bytes, size);
    if (done > 0 && known(file)) note(WRITE, names[file], bytes, before, done);
    return done;
}

#define SYNC(name) int name(int file) { \
    if (known(file)) note(BEGIN, names[file], 0, 0, 0); \
    int done = NEXT(name)(file); \
    if (!done && known(file)) note(END, names[file], 0, 0, 0); \
    return done; }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path) {
    int done = NEXT(unlink)(path);
    if (!done && recorded(path)) note(UNLINK, path, 0, 0, 0);
    return done;
}
