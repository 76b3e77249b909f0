#include "adapters/postgres/fences/storage.hpp"

#include <fmt/format.h>

#include <mutex>

#include "adapters/postgres/fences/fence_table.hpp"
#include "adapters/postgres/session.hpp"
#include "adapters/postgres/token_source.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/store/blocking_fence_store.hpp"

namespace fenceguard::postgres {
namespace {

// Thrown where the server rolled the transaction back by itself, and it may simply be made again.
class RolledBack : public Unavailable {
 public:
  explicit RolledBack(const std::string& why) : Unavailable{why + "; rolled back, try again"} {}
};

// Every call is a transaction that runs the functions of the schema fenceguard, where the rule is. One whose
// connection breaks before its COMMIT was sent is unavailable, and nothing was done; afterwards it is
// unknown. Nothing is repeated, but an advance that the server rolled back by itself for a serialization
// failure or a deadlock, a few times: there the refusal is known.
class DatabaseDriver : public FenceDriver {
 public:
  DatabaseDriver(Address address, std::int64_t jump_max)
      : address_{std::move(address)}, session_{address_}, jump_max_{jump_max} {}

  void connect() override {
    (void)session_.run("connecting", Needs::nothing, [](pqxx::work&) { return true; });
  }
  StoreStatus status() override;
  Ruling advance(const Claim& claim) override;
  FenceView show(const Resource& resource) override {
    return session_.run(fmt::format("looking at '{}'", resource.name()), Needs::fences,
                        [&](pqxx::work& tx) { return view_in(tx, resource); });
  }
  FencePage list(const FenceListing& listing) override {
    return session_.run("listing fences", Needs::fences,
                        [&](pqxx::work& tx) { return list_in(tx, listing); });
  }
  FenceView revoke(const Resource& resource, const std::optional<Claim>& lease) override {
    return session_.run(fmt::format("revoking '{}'", resource.name()), Needs::fences,
                        [&](pqxx::work& tx) { return revoke_in(tx, resource, lease); });
  }
  FenceView rebase(const FenceStore::Rebase& rebase) override {
    return session_.run(fmt::format("rebasing '{}'", rebase.resource.name()), Needs::fences,
                        [&](pqxx::work& tx) { return rebase_in(tx, rebase); });
  }
  std::int64_t init(std::int64_t floor) override {
    return session_.run("initialising", Needs::fences, [&](pqxx::work& tx) { return init_in(tx, floor); });
  }
  Compaction compact(Token lowest_live) override {
    return session_.run("compacting", Needs::fences,
                        [&](pqxx::work& tx) { return compact_in(tx, lowest_live); });
  }
  void cancel_older_than(std::chrono::milliseconds limit) override { session_.break_off_after(limit); }

 private:
  static constexpr int attempts_max = 4;

  const Address address_;
  Session session_;
  const std::int64_t jump_max_;
};

StoreStatus DatabaseDriver::status() {
  return session_.run("looking at the fences", Needs::nothing, [](pqxx::work& tx) {
    try {
      return status_in(tx);
    } catch (const pqxx::insufficient_privilege& error) {
      // Its role may still advance; a sidecar needs more.
      const std::string_view reason{error.what()};
      return StoreStatus{StoreState::failed,
                         fmt::format("the fences may not be looked at with this role: {}",
                                     reason.substr(0, reason.find('\n'))),
                         0, 0, 0};
    }
  });
}

Ruling DatabaseDriver::advance(const Claim& claim) {
  const auto rule = [&](pqxx::work& tx) {
    try {
      return rule_in(tx, claim, jump_max_);
    } catch (const pqxx::serialization_failure& error) {
      throw RolledBack{error.what()};
    } catch (const pqxx::deadlock_detected& error) {
      throw RolledBack{error.what()};
    }
  };
  for (int attempt = 1;; ++attempt) {
    try {
      return session_.run(fmt::format("advancing '{}'", claim.resource.name()), Needs::fences, rule);
    } catch (const RolledBack&) {
      if (attempt == attempts_max) throw;
    }
  }
}

// The database's own token source, opened when it can be: a storage that waits for its SQL to be installed,
// or for its server, is a storage all the same.
class OwnSource : public TokenSource, public LeaseLister {
 public:
  using Ms = std::chrono::milliseconds;

  explicit OwnSource(const Url& url) : url_{url} {
    const auto lock = url.parameters.find("lock");
    lives_by_connection_ = lock != url.parameters.end() && lock->second != "ttl";
    try {
      (void)source();
    } catch (const Unavailable&) {
      // A later call reports it.
    }
  }

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    return source().try_acquire(resource, holder, ttl);
  }
  Renewal renew(const Claim& claim, Ms ttl) override { return source().renew(claim, ttl); }
  Release release(const Claim& claim) override { return source().release(claim); }
  Release end(const Resource& resource) override { return source().end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return source().show(resource); }
  void raise(const Resource& resource, Token mark) override { source().raise(resource, mark); }
  Token draw() override { return source().draw(); }
  std::optional<Token> lowest_live() override { return source().lowest_live(); }
  LeasePage list_leases(const FenceListing& listing) override {
    return dynamic_cast<LeaseLister&>(source()).list_leases(listing);
  }
  bool lives_by_connection() const noexcept override { return lives_by_connection_; }
  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override {
    return source().wait_acquire(resource, holder, options);
  }

 private:
  [[nodiscard]] TokenSource& source() {
    const std::scoped_lock lock{mutex_};
    if (!source_) source_ = open_source(url_);
    return *source_;
  }

  const Url url_;
  bool lives_by_connection_ = false;
  std::mutex mutex_;
  std::unique_ptr<TokenSource> source_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  const auto address = address_with_limits(url, {"lock"});
  const auto make_driver = [&] { return std::make_unique<DatabaseDriver>(address, options.jump_max); };
  // Installing the SQL is what initialises it.
  return open_server_storage({.fences = {address.shown, options.mode, make_driver},
                              .open_source = [&] { return std::make_unique<OwnSource>(url); },
                              .initialises_itself = true});
}

}  // namespace fenceguard::postgres
