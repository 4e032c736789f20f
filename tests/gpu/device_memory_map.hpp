// The memory of GPUs that are not there, in files without a name: addresses, allocations and what
// is mapped where. Refuses what a driver refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "shmem/base/file_descriptor.hpp"
#include "tests/gpu/refusal.hpp"

namespace railshmem::standin {

constexpr uint64_t kGranularity = uint64_t{2} << 20;

// What one GPU has, and what this process has taken of it.
struct Card {
  uint64_t total = 0;
  uint64_t used = 0;
};

// Names an allocation to every process of the host, as a fabric handle does.
struct FabricName {
  int32_t pid;
  int32_t fd;
  uint64_t inode;
};

enum class Place { unknown, registered, device };

class MemoryMap {
 public:
  // `crowded`: what is reserved without a hint lies directly above something else.
  uint64_t reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, bool crowded);
  void free_reserved(uint64_t at, uint64_t bytes);

  uint64_t create(int device, Card& card, uint64_t bytes);
  void release(uint64_t allocation);
  int export_descriptor(uint64_t allocation);
  FabricName export_fabric(uint64_t allocation);
  uint64_t import_descriptor(int device, int fd);
  uint64_t import_fabric(int device, const FabricName& name);
  void map(uint64_t at, uint64_t bytes, uint64_t offset, uint64_t allocation);
  void allow(uint64_t at, uint64_t bytes);
  void unmap(uint64_t at, uint64_t bytes);

  // In whole pages; not shared.
  uint64_t allocate(int device, Card& card, uint64_t bytes);
  void free(uint64_t at);
  void register_host(uint64_t at, uint64_t bytes);
  void unregister_host(uint64_t at);

  Place place_of(uint64_t at, int* device);
  // Refuses addresses that the GPU's engines would not reach.
  void check_reachable(uint64_t at, uint64_t bytes);
  // Whether all of it can be zeroed by giving its pages back.
  bool in_files(uint64_t at, uint64_t bytes);

  void set_total(Card& card, uint64_t bytes);
  uint64_t total_bytes(const Card& card);
  uint64_t free_bytes(const Card& card);

 private:
  // One of a card's, or another process's. Lives as long as it is held or mapped.
  struct Piece {
    Piece(int device_of, uint64_t size, FileDescriptor file, Card* taken_of);
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    ~Piece();
    const int device;
    const uint64_t bytes;
    const FileDescriptor fd;
    Card* const card;
  };
  struct Mapping {
    uint64_t bytes;
    std::shared_ptr<Piece> piece;
    bool allowed;
  };
  struct Reservation {
    uint64_t bytes;
    bool neighbour;  // a page below that it made itself
  };
  struct Plain {
    uint64_t bytes;
    std::shared_ptr<Piece> piece;
  };

  uint64_t import(int device, FileDescriptor fd);
  std::shared_ptr<Piece> held(uint64_t allocation);

  std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::shared_ptr<Piece>> allocations_;  // by the number that callers have
  std::map<uint64_t, Reservation> reservations_;            // these by address
  std::map<uint64_t, Mapping> mappings_;
  std::map<uint64_t, Plain> plain_;
  std::map<uint64_t, uint64_t> registered_;
};

}  // namespace railshmem::standin
