// What a PE remembers of its last dispatch, privately: the memory behind device::ep::Exchange.
#pragma once

#include <vector>

#include "ep/batch.hpp"
#include "ep/buffers.hpp"

namespace railshmem::ep {

class Routing {
 public:
  Routing(const Config& config, int n_pes, int pe, const NodeMap& nodes,
          const device::ep::Buffers& buffers);
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  // Checks the batch and makes it this PE's own stream. Throws Error(argument), and then what is
  // known of the last dispatch stays.
  void load(const std::string& who, const Config& config, const Batch& batch);
  // The same for other tokens by the routing of the last dispatch.
  void load_again(const std::string& who, const Config& config, const Matrix& tokens,
                  const std::optional<Matrix>& scales);

  // What kernels receive. Points into this object.
  const device::ep::Exchange& view() const { return exchange_; }
  // The tokens that this PE sends.
  const char* own_tokens() const { return streams_.front().tokens; }
  int64_t tokens() const { return static_cast<int64_t>(streams_.front().rows); }
  // By source PE.
  const std::vector<int64_t>& received() const { return received_; }
  int64_t arrivals() const;
  // Expert-major: by expert of this PE; else empty.
  const std::vector<device::ep::ExpertRows>& experts() const { return experts_; }
  // What this PE received: arrivals, or in the expert-major layout the rows of all blocks.
  int64_t rows() const;
  const device::ep::Refusal& refusal() const { return refusal_; }

 private:
  std::vector<int32_t> checked_ids_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> ordinals_;
  std::vector<uint64_t> counts_;
  std::vector<uint64_t> bases_;
  std::vector<int64_t> pair_ordinals_;
  std::vector<uint64_t> expert_counts_;
  std::vector<device::ep::Stream> streams_;
  std::vector<int64_t> node_ordinals_;
  std::vector<uint64_t> node_rows_;
  std::vector<int64_t> received_;
  std::vector<device::ep::ExpertRows> experts_;
  device::ep::Refusal refusal_{-1, 0, 0};
  device::ep::Exchange exchange_;
};

}  // namespace railshmem::ep
