// What the library is compared with between hosts: one-sided writes by libfabric alone.
//
//   bare_fabric initiator|target INTERFACE DIRECTORY [BYTES WINDOW COUNT]...
//
// Both ends exchange their addresses through files in DIRECTORY. For each BYTES WINDOW COUNT the
// initiator makes COUNT writes, at most WINDOW of them on their way, each complete when the data is
// in the target's memory, and prints the microseconds that one took, a line for each. The target
// drives its endpoint until the last write, into a word of its own, has come.
//   cc -O2 bare_fabric.c -o bare_fabric -lfabric
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kBuffer = 4 << 20, kMostInFlight = 64 };
static const double kLimitS = 60;

struct card {  // what an end tells the other
  size_t address_bytes;
  char address[256];
  uint64_t base, key;
};

static struct fid_ep* endpoint;
static struct fid_cq* completions;
static void* descriptor;
static struct fid_av* addresses;
static fi_addr_t peer;
static struct card mine, theirs;
static char* buffer;
static struct fi_context contexts[kMostInFlight];

static void require(const char* what, long status) {
  if (status >= 0) return;
  fprintf(stderr, "bare_fabric: %s: %s\n", what, fi_strerror((int)-status));
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// 1 where something has completed.
static int reap(void) {
  struct fi_cq_entry entry;
  const ssize_t n = fi_cq_read(completions, &entry, 1);
  if (n == -FI_EAGAIN) {
    sched_yield();
    return 0;
  }
  require("a completion", n);
  return (int)n;
}

static void open_endpoint(const char* interface) {
  struct fi_info *hints = fi_allocinfo(), *info;
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
  hints->domain_attr->name = strdup(interface);
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  require("fi_getinfo", fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info));
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_mr* region;
  struct fi_cq_attr queue = {.size = 1024, .format = FI_CQ_FORMAT_CONTEXT};
  struct fi_av_attr table = {.type = FI_AV_TABLE};
  require("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
  require("fi_domain", fi_domain(fabric, info, &domain, NULL));
  require("fi_cq_open", fi_cq_open(domain, &queue, &completions, NULL));
  require("fi_av_open", fi_av_open(domain, &table, &addresses, NULL));
  require("fi_endpoint", fi_endpoint(domain, info, &endpoint, NULL));
  require("fi_ep_bind", fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV));
  require("fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
  require("fi_enable", fi_enable(endpoint));
  if (posix_memalign((void**)&buffer, 4096, kBuffer)) exit(1);
  memset(buffer, 0, kBuffer);
  const uint64_t rights = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  require("fi_mr_reg", fi_mr_reg(domain, buffer, kBuffer, rights, 0, 1, 0, &region, NULL));
  descriptor = fi_mr_desc(region);
  mine.key = fi_mr_key(region);
  mine.base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)buffer : 0;
  mine.address_bytes = sizeof mine.address;
  require("fi_getname", fi_getname(&endpoint->fid, mine.address, &mine.address_bytes));
}

static void exchange(const char* directory, int initiator) {
  char own[512], hidden[520], other[512];
  snprintf(own, sizeof own, "%s/card%d", directory, initiator);
  snprintf(hidden, sizeof hidden, "%s.part", own);
  snprintf(other, sizeof other, "%s/card%d", directory, !initiator);
  FILE* file = fopen(hidden, "wb");
  if (!file || fwrite(&mine, sizeof mine, 1, file) != 1 || fclose(file) || rename(hidden, own)) {
    perror(own);
    exit(1);
  }
  for (const double start = now(); !(file = fopen(other, "rb")); usleep(1000)) {
    if (now() - start > kLimitS) require(other, -FI_ETIMEDOUT);
  }
  if (fread(&theirs, sizeof theirs, 1, file) != 1) exit(1);
  fclose(file);
}

// A write of `bytes` bytes from the buffer's start to `offset`; 0 where there is no room for it
// now.
static int post(size_t bytes, size_t offset, struct fi_context* context) {
  struct iovec from = {buffer, bytes};
  struct fi_rma_iov to = {theirs.base + offset, bytes, theirs.key};
  struct fi_msg_rma message = {&from, &descriptor, 1, peer, &to, 1, context, 0};
  const ssize_t status = fi_writemsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
  if (status == -FI_EAGAIN) return 0;
  require("fi_writemsg", status);
  return 1;
}

static void write_all(size_t bytes, int window, int count, size_t offset) {
  int posted = 0, completed = 0;
  while (completed < count) {
    if (posted < count && posted - completed < window &&
        post(bytes, offset, &contexts[posted % kMostInFlight]))
      ++posted;
    else
      completed += reap();
  }
}

int main(int count, char** arguments) {
  if (count < 4 || (count - 4) % 3) return 2;
  const int initiator = strcmp(arguments[1], "initiator") == 0;
  open_endpoint(arguments[2]);
  exchange(arguments[3], initiator);
  if (fi_av_insert(addresses, theirs.address, 1, &peer, 0, NULL) != 1)
    require("fi_av_insert", -FI_EINVAL);
  const size_t last = kBuffer - sizeof(uint64_t);
  if (!initiator) {
    const double start = now();
    while (!*(volatile uint64_t*)(buffer + last) && now() - start < kLimitS) reap();
    // The answer to the last write must still leave.
    for (const double end = now(); now() - end < 0.1;) reap();
    return 0;
  }
  *(uint64_t*)buffer = 1;
  write_all(8, 1, 100, 0);  // connects, and warms up
  for (int i = 4; i + 2 < count; i += 3) {
    const size_t bytes = strtoull(arguments[i], NULL, 10);
    const int window = atoi(arguments[i + 1]), writes = atoi(arguments[i + 2]);
    write_all(bytes, window, 2 * window, 0);
    const double start = now();
    write_all(bytes, window, writes, 0);
    printf("%.4f\n", (now() - start) / writes * 1e6);
  }
  write_all(8, 1, 1, last);
  return 0;
}
