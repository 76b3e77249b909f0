#pragma once

// GuardedCall: one run of the guard's script (lua/fences/guarded.lua), how it is put and how its answer is
// read: the commands of one write, or those of several writes of a pipeline under one claim. Of several, each
// stands for itself: the claim is judged once for all of them, because nothing comes between, and each has a
// reply and an ending of its own. All commands were checked before.
//
// Not thread-safe. It points into the writes, and is not to be moved once run() was called.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/client.hpp"
#include "adapters/redis/write.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {

class GuardedCall {
 public:
  // place: of the write in its pipeline.
  GuardedCall(const Claim& claim, std::size_t place) : claim_{&claim}, places_{place} {}

  // keys: those that the command names.
  void add(const Command& command, const CommandTable::Facts& facts,
           const std::vector<std::string_view>& keys);

  // Takes in what another call would do, if both are writes of one command under one claim without a
  // sequence, and together not so many that the server would be kept from others for long. False: it was not.
  [[nodiscard]] bool take(const GuardedCall& other);

  [[nodiscard]] const Claim& claim() const noexcept { return *claim_; }
  [[nodiscard]] bool writes() const noexcept;
  [[nodiscard]] const std::vector<std::size_t>& places() const noexcept { return places_; }

  [[nodiscard]] Run run(const Client& client, std::int64_t jump_max);

  // The ending of each write, in the order of places().
  [[nodiscard]] std::vector<Outcome<WriteResult>> outcomes(Outcome<Reply> reply) const;

 private:
  struct Part {
    const Command* command;
    bool writes;
    bool needs_memory;
  };

  [[nodiscard]] bool is_each() const noexcept { return places_.size() > 1; }
  [[nodiscard]] bool is_one() const noexcept;
  [[nodiscard]] std::string claim_text(bool is_asked, std::int64_t jump_max) const;
  [[nodiscard]] std::string layout() const;
  [[nodiscard]] Fault fault(const Reply& error) const;
  [[nodiscard]] Outcome<WriteResult> of_one_write(WriteResult written) const;
  [[nodiscard]] std::vector<Outcome<WriteResult>> of_each(const WriteResult& written) const;

  const Claim* claim_;
  std::vector<std::size_t> places_;
  std::vector<Part> parts_;
  std::vector<std::string_view> keys_;
  std::size_t bytes_ = 0;
  std::string fence_key_, name_space_key_, claim_text_, asked_claim_text_, layout_;
};

}  // namespace fenceguard::redis
