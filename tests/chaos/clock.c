/* Steps the clock of one process: preloaded, it adds the seconds in the file CHAOS_CLOCK to the time of day.
 *
 *     cc -shared -fPIC -O2 -o clock.so clock.c
 *
 * The file is a signed 64-bit number. It is mapped, so a step takes effect at once. CLOCK_MONOTONIC and CLOCK_BOOTTIME
 * stay as they are, as when an administrator or NTP sets the time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *step;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) step = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (code == 0 && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *step;
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int code = (int)syscall(SYS_gettimeofday, now, zone);
    if (code == 0 && step) now->tv_sec += *step;
    return code;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
