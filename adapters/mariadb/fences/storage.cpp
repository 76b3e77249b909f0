#include "adapters/mariadb/fences/storage.hpp"

#include <fmt/format.h>

#include "adapters/mariadb/fences/advance.hpp"
#include "adapters/mariadb/fences/fence_table.hpp"
#include "adapters/mariadb/fences/session.hpp"
#include "adapters/mariadb/token_source.hpp"
#include "guard/error.hpp"
#include "guard/store/blocking_fence_store.hpp"

namespace fenceguard::mariadb {
namespace {

// Every change is one call of a procedure, which is one transaction. Where its connection breaks, the
// outcome is unknown; nothing is repeated.
class ServerDriver : public FenceDriver {
 public:
  ServerDriver(const Address& address, std::int64_t jump_max) : session_{address}, jump_max_{jump_max} {}

  void connect() override { (void)session_.open(); }

  StoreStatus status() override {
    return session_.run(Stage::before_commit, "looking at the fences", status_of);
  }

  Ruling advance(const Claim& claim) override {
    const auto doing = fmt::format("advancing '{}'", claim.resource.name());
    return session_.run(Stage::at_commit, doing, [&](Connection& connection) {
      auto ruling = advance_by(connection, claim, {.jump_max = jump_max_}, doing);
      // Closed, or below the floor: the record tells.
      if (ruling.verdict == Verdict::stale && ruling.highest == claim.token.value())
        ruling.fence = view_of(connection, claim.resource).record;
      return ruling;
    });
  }

  FenceView show(const Resource& resource) override {
    return session_.run(Stage::before_commit, fmt::format("looking at '{}'", resource.name()),
                        [&](Connection& connection) { return view_of(connection, resource); });
  }

  FencePage list(const FenceListing& listing) override {
    if (listing.limit == 0) return {};
    return session_.run(Stage::before_commit, "listing fences",
                        [&](Connection& connection) { return list_fences(connection, listing); });
  }

  FenceView revoke(const Resource& resource, const std::optional<Claim>& lease) override {
    return session_.run(Stage::at_commit, fmt::format("revoking '{}'", resource.name()),
                        [&](Connection& connection) { return mariadb::revoke(connection, resource, lease); });
  }

  FenceView rebase(const FenceStore::Rebase& rebase) override {
    return session_.run(Stage::at_commit, fmt::format("rebasing '{}'", rebase.resource.name()),
                        [&](Connection& connection) { return mariadb::rebase(connection, rebase); });
  }

  std::int64_t init(std::int64_t floor) override {
    return session_.run(Stage::at_commit, "initialising",
                        [&](Connection& connection) { return mariadb::init(connection, floor); });
  }

  Compaction compact(Token lowest_live) override {
    return session_.run(Stage::at_commit, "compacting",
                        [&](Connection& connection) { return mariadb::compact(connection, lowest_live); });
  }

 private:
  Session session_;
  const std::int64_t jump_max_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  const auto address = address_of(url, {"lock"});
  const auto make_driver = [&] { return std::make_unique<ServerDriver>(address, options.jump_max); };
  // Installing the SQL is what initialises it.
  return open_server_storage({.fences = {address.shown, options.mode, make_driver},
                              .open_source = [&] { return open_source(url); },
                              .initialises_itself = true});
}

}  // namespace fenceguard::mariadb
