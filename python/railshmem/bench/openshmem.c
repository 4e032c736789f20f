/* The rival of `railshmem bench`: the same operations through any OpenSHMEM (1.4 or later).
 *
 * PE 0 reads commands, one a line, "NAME BYTES COUNT", from its standard input, all PEs run COUNT
 * of them, and PE 0 prints the seconds that the slowest PE needed. Between commands all PEs sleep,
 * so that the cores belong to whoever is measured then. The program ends when its input does.
 */
#define _POSIX_C_SOURCE 200809L
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAME_LENGTH = 32, N_SYNCS = 2 };
static const char END[] = "end";

typedef struct {
  char name[NAME_LENGTH];
  size_t bytes;
  long count;
} Command;

enum {
  COLLECT_SYNC_SIZE = SHMEM_COLLECT_SYNC_SIZE > SHMEM_ALLTOALL_SYNC_SIZE ? SHMEM_COLLECT_SYNC_SIZE
                                                                         : SHMEM_ALLTOALL_SYNC_SIZE,
  SYNC_SIZE = COLLECT_SYNC_SIZE > SHMEM_BCAST_SYNC_SIZE ? COLLECT_SYNC_SIZE : SHMEM_BCAST_SYNC_SIZE
};

/* Symmetric. In the heap, because static objects are not always shared memory: some libraries then
 * need the target's help for every access, and a sleeping target gives none. */
typedef struct {
  Command command;
  long command_number;
  long word;
  double seconds_mine, seconds_longest;
  long syncs[N_SYNCS][SYNC_SIZE];
  long reduce_syncs[N_SYNCS][SHMEM_REDUCE_SYNC_SIZE];
  double reduce_work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
} Shared;

static Shared* shared;
static int me, n_pes, peer;
static long round_trips; /* so far, alike on PE 0 and its peer */

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int is(const char* name) {
  return strcmp(shared->command.name, name) == 0;
}

static void send_word(const char* source, char* target, int with_data, long value) {
  if (with_data) {
#if SHMEM_MAJOR_VERSION > 1 || (SHMEM_MAJOR_VERSION == 1 && SHMEM_MINOR_VERSION >= 5)
    shmem_putmem_signal(target, source, shared->command.bytes, (uint64_t*)&shared->word,
                        (uint64_t)value, SHMEM_SIGNAL_SET, peer);
    return;
#else
    shmem_putmem(target, source, shared->command.bytes, peer);
    shmem_fence();
#endif
  }
  shmem_long_p(&shared->word, value, peer);
}

/* A word to PE 1 and back; the others have no part in it. */
static void play_round_trips(const char* source, char* target, int with_data) {
  const int partner = n_pes > 1 ? 1 : 0;
  if (me != 0 && me != partner) return;
  for (long i = 0; i < shared->command.count; ++i) {
    const long value = ++round_trips;
    if (me == 0) send_word(source, target, with_data, value);
    shmem_long_wait_until(&shared->word, SHMEM_CMP_GE, value);
    if (me != 0) send_word(source, target, with_data, value);
  }
}

static void one_sided(const char* source, char* target) {
  const long count = shared->command.count;
  if (is("put"))
    for (long i = 0; i < count; ++i) shmem_putmem(target, source, shared->command.bytes, peer);
  else if (is("put_quiet"))
    for (long i = 0; i < count; ++i) {
      shmem_putmem(target, source, shared->command.bytes, peer);
      shmem_quiet();
    }
  else if (is("get"))
    for (long i = 0; i < count; ++i) shmem_getmem(target, source, shared->command.bytes, peer);
  else if (is("fetch_add"))
    for (long i = 0; i < count; ++i) (void)shmem_long_atomic_fetch_add((long*)target, 1, peer);
  else if (is("add"))
    for (long i = 0; i < count; ++i) shmem_long_atomic_add((long*)target, 1, peer);
  shmem_quiet();
}

static void together(const char* source, char* target, void* work) {
  const size_t words = shared->command.bytes / 8;
  for (long i = 0; i < shared->command.count; ++i) {
    long* sync = shared->syncs[i % N_SYNCS];
    if (is("barrier")) {
      shmem_barrier_all();
    } else if (is("broadcast")) {
      shmem_broadcast64(target, source, words, 0, 0, 0, n_pes, sync);
      shmem_barrier_all();
    } else if (is("fcollect")) {
      shmem_fcollect64(target, source, words, 0, 0, n_pes, sync);
    } else if (is("alltoall")) {
      shmem_alltoall64(target, source, words, 0, 0, n_pes, sync);
    } else if (is("sum_reduce")) {
      double* space =
          (double*)work + (i % N_SYNCS) * (words / 2 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE);
      shmem_double_sum_to_all((double*)target, (double*)source, (int)words, 0, 0, n_pes, space,
                              shared->reduce_syncs[i % N_SYNCS]);
    }
  }
}

static double allocate(void) {
  void** blocks = calloc((size_t)shared->command.count, sizeof *blocks);
  shmem_barrier_all();
  const double start = now();
  for (long i = 0; i < shared->command.count; ++i) blocks[i] = shmem_malloc(shared->command.bytes);
  const double taken = now() - start;
  for (long i = 0; i < shared->command.count; ++i) shmem_free(blocks[i]);
  free(blocks);
  return taken;
}

static int is_one_of(const char* const* names) {
  while (*names != NULL && !is(*names)) ++names;
  return *names != NULL;
}

static const char* const BY_PE_0[] = {"put", "put_quiet", "get", "fetch_add", "add", NULL};
static const char* const BY_TWO[] = {"signal", "put_signal", NULL};
static const char* const BY_ALL[] = {"barrier",  "broadcast",  "fcollect",
                                     "alltoall", "sum_reduce", NULL};

static void* allocate_or_end(size_t bytes) {
  void* block = shmem_malloc(bytes);
  if (block == NULL) {
    fprintf(stderr, "PE %d: no symmetric memory for %zu bytes\n", me, bytes);
    shmem_global_exit(1);
  }
  return block;
}

static double move(void) {
  const size_t arrays = is_one_of(BY_ALL) ? (size_t)n_pes : 1;
  const size_t room = shared->command.bytes * arrays + 64;
  const size_t work_items = shared->command.bytes / 16 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE;
  char* source = allocate_or_end(room);
  char* target = allocate_or_end(room);
  void* work = is("sum_reduce") ? allocate_or_end(N_SYNCS * 8 * work_items) : NULL;
  memset(source, 1, room);
  memset(target, 0, room);
  shmem_barrier_all();
  const double start = now();
  if (is_one_of(BY_TWO))
    play_round_trips(source, target, is("put_signal"));
  else if (is_one_of(BY_ALL))
    together(source, target, work);
  else if (me == 0)
    one_sided(source, target);
  const double taken = now() - start;
  shmem_barrier_all();
  if (work != NULL) shmem_free(work);
  shmem_free(target);
  shmem_free(source);
  return taken;
}

static double run(void) {
  if (is("malloc")) return allocate();
  if (is_one_of(BY_PE_0) || is_one_of(BY_TWO) || is_one_of(BY_ALL)) return move();
  fprintf(stderr, "PE %d: unknown operation %s\n", me, shared->command.name);
  shmem_global_exit(1);
  return 0;
}

/* PE 0 reads a command and hands it to the others, who look for it now and then. */
static void next_command(long number) {
  if (me == 0) {
    char line[128];
    memset(&shared->command, 0, sizeof shared->command);
    if (fgets(line, sizeof line, stdin) == NULL ||
        sscanf(line, "%31s %zu %ld", shared->command.name, &shared->command.bytes,
               &shared->command.count) != 3)
      strcpy(shared->command.name, END);
    for (int pe = 1; pe < n_pes; ++pe) {
      shmem_putmem(&shared->command, &shared->command, sizeof shared->command, pe);
      shmem_fence();
      shmem_long_p(&shared->command_number, number, pe);
    }
    shmem_quiet();
  } else {
    const struct timespec nap = {0, 200000};
    while (!shmem_long_test(&shared->command_number, SHMEM_CMP_GE, number)) nanosleep(&nap, NULL);
  }
}

int main(void) {
  const double start = now();
  shmem_init();
  const double init_seconds = now() - start;
  me = shmem_my_pe();
  n_pes = shmem_n_pes();
  peer = n_pes > 1 && me == 0 ? 1 : 0;
  shared = shmem_calloc(1, sizeof *shared);
  if (shared == NULL) shmem_global_exit(1);
  for (int set = 0; set < N_SYNCS; ++set) {
    for (size_t i = 0; i < sizeof shared->syncs[0] / sizeof(long); ++i)
      shared->syncs[set][i] = SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < SHMEM_REDUCE_SYNC_SIZE; ++i)
      shared->reduce_syncs[set][i] = SHMEM_SYNC_VALUE;
  }
  shmem_barrier_all();
  if (me == 0) {
    printf("ready %.9f\n", init_seconds);
    fflush(stdout);
  }
  for (long number = 1;; ++number) {
    next_command(number);
    if (is(END)) break;
    shared->seconds_mine = run();
    shmem_double_max_to_all(&shared->seconds_longest, &shared->seconds_mine, 1, 0, 0, n_pes,
                            shared->reduce_work, shared->reduce_syncs[number % N_SYNCS]);
    shmem_barrier_all();
    if (me == 0) {
      printf("%.9f\n", shared->seconds_longest);
      fflush(stdout);
    }
  }
  shmem_barrier_all();
  shmem_free(shared);
  shmem_finalize();
  return 0;
}
