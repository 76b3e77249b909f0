#pragma once

// FenceAdmin: what a sidecar or a command line asks of the fences of an etcd namespace, beside any number of
// guards that work on them. Whatever changes a fence compares what it was judged by in the transaction that
// changes it, and begins again where another transaction came between.
//
// Thread safety: that of the client. Calls throw Unavailable and OutcomeUnknown. They begin again no later
// than the client's time-out after they were begun.

#include <functional>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/fences/fence_keys.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::etcd {

class FenceAdmin {
 public:
  // REQUIRES: the client outlives the calls.
  explicit FenceAdmin(Client& client) : client_{client}, keys_{client.address().prefix} {}

  // See FenceStore for each.
  [[nodiscard]] FenceView look(const Resource& resource);
  [[nodiscard]] FencePage list(const FenceListing& listing);
  struct Revocation {
    Resource resource;
    std::optional<Claim> lease;  // the present one; Implausible where it is absurdly high
    std::int64_t jump_max = 0;
  };
  [[nodiscard]] FenceView revoke(const Revocation& revocation);
  // Unavailable where the fence rises above the number wanted after it was first looked at.
  [[nodiscard]] FenceView rebase(const FenceStore::Rebase& rebase);
  [[nodiscard]] std::int64_t init(std::int64_t floor);
  [[nodiscard]] Compaction compact(Token lowest_live);

  // The highest token is the mark, where there is one, see fence_mark.hpp. That of all fences is highest(), a
  // plain read, to be shown.
  [[nodiscard]] StoreStatus status();
  [[nodiscard]] std::int64_t highest();

 private:
  // A fence as it lies in the store.
  struct Found {
    std::optional<std::string> text;
    std::int64_t floor = 0;
  };
  struct Idle {
    std::string key;
    std::string text;
  };

  [[nodiscard]] std::vector<OpAnswer> read_in_log(std::vector<Op> reads);
  [[nodiscard]] Found find(const Resource& resource);
  [[nodiscard]] std::optional<FenceView> try_rebase(const FenceStore::Rebase& rebase,
                                                    std::optional<std::int64_t>& first);
  void require_plausible(const Claim& lease, std::int64_t jump_max);
  [[nodiscard]] bool exchange(const Resource& resource, const Found& found, const Fence& fence,
                              std::vector<Op> then = {});
  [[nodiscard]] std::int64_t raise_floor(std::int64_t to, bool may_create);
  [[nodiscard]] std::vector<Idle> idle_fences(Token lowest_live);
  [[nodiscard]] std::int64_t drop(std::vector<Idle> idle, std::int64_t& floor, Token lowest_live);

  Client& client_;
  const FenceKeys keys_;
};

}  // namespace fenceguard::etcd
