#include "shmem/transport/proxy/ring_memory.hpp"

#include <cstddef>
#include <cstring>
#include <new>

namespace railshmem::proxy {
namespace {

constexpr std::align_val_t kLine{64};

// Hands out the parts of a block, one after the other.
class Places {
 public:
  template <class T>
  uint64_t next(std::size_t count) {
    const uint64_t at = end_;
    end_ += (count * sizeof(T) + 63) / 64 * 64;
    return at;
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_ = 0;
};

struct ConsumerPlaces : Places {
  explicit ConsumerPlaces(const RingShape& shape)
      : words(next<ConsumerSide::Words>(1)),
        progress(next<device::LaneProgress>(shape.all_lanes())),
        slots(next<device::CommandSlot>(shape.commands)),
        results(next<device::ResultSlot>(shape.results)) {}
  uint64_t words, progress, slots, results;
};

// A cache line each for what producers change often.
struct ProducerWords {
  alignas(64) uint64_t tail;
  alignas(64) uint64_t head_seen;
  alignas(64) uint64_t result_hint;
  alignas(64) device::Ring ring;
  uint32_t nobody_sleeps;
};

struct ProducerPlaces : Places {
  explicit ProducerPlaces(const RingShape& shape)
      : words(next<ProducerWords>(1)),
        lanes(next<device::Lane>(shape.all_lanes())),
        claims(next<uint64_t>(shape.results)) {}
  uint64_t words, lanes, claims;
};

uint32_t log2_of(uint32_t power) {
  uint32_t shift = 0;
  while ((1u << shift) < power) ++shift;
  return shift;
}

template <class T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

HostBlock::HostBlock(uint64_t bytes) : data_(static_cast<char*>(::operator new(bytes, kLine))) {
  std::memset(data_.get(), 0, bytes);
}

void HostBlock::Release::operator()(char* data) const {
  ::operator delete(data, kLine);
}

uint64_t ConsumerSide::bytes(const RingShape& shape) {
  return ConsumerPlaces(shape).end();
}

ConsumerSide::ConsumerSide(const RingShape& chosen, char* block)
    : shape(chosen), shift(log2_of(chosen.commands)) {
  const ConsumerPlaces places(shape);
  const auto address = reinterpret_cast<uint64_t>(block);
  words = pointer<Words>(address + places.words);
  progress = pointer<device::LaneProgress>(address + places.progress);
  slots = pointer<device::CommandSlot>(address + places.slots);
  results = pointer<device::ResultSlot>(address + places.results);
}

uint64_t ProducerSide::bytes(const RingShape& shape) {
  return ProducerPlaces(shape).end();
}

ProducerSide::ProducerSide(const ConsumerSide& consumer, uint64_t address, uint32_t* sleep_word)
    : consumer_(consumer), address_(address), image_(bytes(consumer.shape)) {
  const ProducerPlaces places(consumer.shape);
  ProducerWords words = {};
  const auto at = [&](std::size_t member) { return address + places.words + member; };
  words.ring.slots = consumer.slots;
  words.ring.shift = consumer.shift;
  words.ring.tail = pointer<uint64_t>(at(offsetof(ProducerWords, tail)));
  words.ring.head_seen = pointer<uint64_t>(at(offsetof(ProducerWords, head_seen)));
  words.ring.head = &consumer.words->head;
  words.ring.dead = &consumer.words->dead;
  words.ring.full_waits = &consumer.words->full_waits;
  words.ring.sleep_word = sleep_word != nullptr
                              ? sleep_word
                              : pointer<uint32_t>(at(offsetof(ProducerWords, nobody_sleeps)));
  std::memcpy(image_.data() + places.words, &words, sizeof words);
  device::Lane lane = {};
  lane.connected = 1;
  for (std::size_t index = 0; index < consumer.shape.all_lanes(); ++index)
    std::memcpy(image_.data() + places.lanes + index * sizeof lane, &lane, sizeof lane);
}

void ProducerSide::join(device::DeviceContext& context) const {
  const ProducerPlaces places(consumer_.shape);
  const uint64_t words = address_ + places.words;
  context.lane_stride = consumer_.shape.lanes;
  context.lanes = pointer<device::Lane>(address_ + places.lanes);
  context.progress = consumer_.progress;
  context.rings = pointer<device::Ring>(words + offsetof(ProducerWords, ring));
  context.result_claims = pointer<uint64_t>(address_ + places.claims);
  context.result_slots = consumer_.results;
  context.n_result_slots = consumer_.shape.results;
  context.result_hint = pointer<uint64_t>(words + offsetof(ProducerWords, result_hint));
}

}  // namespace railshmem::proxy
