#pragma once

// The fence in a service's own ZooKeeper: judged here, and proven by the multi that writes. What was judged
// is the fence as it was seen before; the multi begins with checks of the fence's version and of the floor's,
// so it either finds them as they were, and writes, or does nothing, and the guard looks and judges again.
//
//   zookeeper::Client client{"zookeeper://h1,h2,h3/app"};
//   zookeeper::Guard guard{client};
//   auto written = guard.write(lease->claim(), {zookeeper::set("/config/x", "v", 7)});
//   if (!written.took_effect()) ...
//
// One round trip where the fence is as it was last seen. Only the ensemble admits: a cached fence saves the
// look, never the proof; and what a cached fence would refuse is looked at again before it is. Any number of
// guards, on any number of machines, keep one truth. The data may lie anywhere in the tree but in the nodes
// of fenceguard itself (fence_paths.hpp). A namespace must have been initialised ('fenceguard fence init'):
// one without its floor is unavailable. See docs/zookeeper.md.
//
// Thread-safe.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/zookeeper/client.hpp"
#include "adapters/zookeeper/fences/versioned_fence.hpp"
#include "guard/guard.hpp"

namespace fenceguard::zookeeper {

struct GuardOptions {
  // See is_implausible(); 0: no bound. What the namespace's own token source may have drawn by now is always
  // plausible: between two claims of a quiet namespace the zxid leaps with every election.
  std::int64_t jump_max = 0;
  std::size_t cache_entries = 100'000;
};

// result is that of the caller's operations, numbered as the caller did; nothing unless the claim is
// admitted. Where one of them was refused (no_node, bad_version, ...) none took effect: the token stays, as
// after an advance, and the sequence is free.
struct WriteResult {
  Ruling ruling;
  std::optional<MultiAnswer> result;

  [[nodiscard]] bool took_effect() const noexcept { return result && result->is_ok(); }
};

struct WriteAllResult {
  std::vector<Ruling> rulings;  // in the order of the claims
  std::optional<MultiAnswer> result;

  [[nodiscard]] bool took_effect() const noexcept { return result && result->is_ok(); }
};

struct FencedRead {
  Ruling ruling;
  std::optional<Answer> answer;  // nothing unless admitted; may be no_node
};

class Guard : public fenceguard::Guard {
 public:
  // REQUIRES: the client outlives the guard.
  explicit Guard(Client& client, GuardOptions options = {});

  // Also where the token equals the fence's it goes through the ensemble's log.
  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // {judge; apply} as one multi. Throws InvalidInput for no operation, a path that ZooKeeper does not take or
  // that belongs to fenceguard, or more than a request holds (1 MB, claims included); Implausible;
  // Unavailable (nothing was written; the fence may have been raised); OutcomeUnknown where the answer was
  // lost: repeated with the same sequence it takes effect at most once.
  [[nodiscard]] WriteResult write(const Claim& claim, const std::vector<Op>& ops);

  // Under several claims, all or none: where one is not admitted nothing is recorded. Throws InvalidInput if
  // there is no claim, or two name one resource.
  [[nodiscard]] WriteAllResult write_all(std::span<const Claim> claims, const std::vector<Op>& ops);

  // A fenced read of one node: advances, reads, and looks at the fence once more, in one round trip; what a
  // newer token wrote meanwhile is not answered, the claim is stale then. Throws InvalidInput for a path that
  // ZooKeeper does not take, and has not advanced then.
  [[nodiscard]] FencedRead read(const Claim& claim, const std::string& path);

  // The highest token that this guard has seen in the namespace; 0 before the first call.
  [[nodiscard]] std::int64_t highest_seen() const { return cache_.highest(); }
  void saw(std::int64_t token) { cache_.saw(token); }

 private:
  struct Request;
  struct Applied;
  struct Attempt;

  [[nodiscard]] Applied apply(const Request& request);
  [[nodiscard]] bool look(Attempt& attempt, bool is_cache_trusted);
  void require_plausible(const Attempt& attempt);
  [[nodiscard]] bool send(Attempt& attempt, Applied& applied);
  [[nodiscard]] bool keep_tokens(Attempt& attempt, Applied& applied, const MultiAnswer& answer);
  void remember(const Attempt& attempt);

  Client& client_;
  const GuardOptions options_;
  FenceCache cache_;
};

}  // namespace fenceguard::zookeeper
