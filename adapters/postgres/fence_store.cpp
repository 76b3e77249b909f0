#include "adapters/postgres/fence_store.hpp"

#include <fmt/format.h>

#include "adapters/postgres/fence_table.hpp"
#include "guard/wait_for.hpp"

namespace fenceguard::postgres {
namespace {

// So many resources may wait in the database for older writes while others are still served.
constexpr unsigned change_threads = 8;
constexpr unsigned look_threads = 2;

constexpr std::chrono::seconds refresh_every{1};
// A server that was asked so long ago and has not answered is not well.
constexpr std::chrono::seconds answer_expected{5};
// An advance may wait for drain, which the database sets, and some 10 s more for what it cut.
constexpr std::chrono::seconds change_max{120};
constexpr std::chrono::seconds look_max{20};

}  // namespace

DatabaseFences::DatabaseFences(Address address, const StorageOptions& options)
    : address_{std::move(address)},
      jump_max_{options.jump_max},
      is_inspecting_{options.mode == StorageOptions::Mode::inspect},
      changes_{address_, is_inspecting_ ? 0 : change_threads},
      looks_{address_, look_threads} {
  status_ = wait_for<StoreStatus>([this](Done<StoreStatus> done) { refresh(std::move(done)); });
  seen_at_ = BootClock::now();
  keeper_ = std::thread{[this] { keep_status(); }};
}

DatabaseFences::~DatabaseFences() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

StoreStatus DatabaseFences::status() const {
  const std::scoped_lock lock{mutex_};
  return status_;
}

Fault DatabaseFences::refusal() const {
  return {FaultKind::unavailable, fmt::format("{} is only looked at here", address_.shown)};
}

void DatabaseFences::refresh(Done<StoreStatus> done) {
  const auto look = [](pqxx::work& tx) {
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
  };
  looks_.ask<StoreStatus>({.doing = "looking at the fences", .needs = Needs::nothing}, look, std::move(done));
}

// Asks for the state now and then, and cuts off what takes too long. Never waits for the server itself.
void DatabaseFences::keep_status() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, refresh_every, [this] { return is_stopping_; })) {
    const bool is_due = !is_asked_;
    if (is_asked_ && BootClock::now() - seen_at_ > answer_expected) {
      status_.state = StoreState::failed;
      status_.reason = fmt::format("{} does not answer", address_.shown);
    }
    is_asked_ = true;
    lock.unlock();
    changes_.break_off_after(change_max);
    looks_.break_off_after(look_max);
    if (is_due) {
      refresh([this](Outcome<StoreStatus> outcome) {
        const std::scoped_lock guard{mutex_};
        is_asked_ = false;
        seen_at_ = BootClock::now();
        if (outcome.ok()) {
          status_ = std::move(outcome.value());
        } else {
          status_.state = StoreState::failed;
          status_.reason = outcome.fault().message;
        }
      });
    }
    lock.lock();
  }
}

void DatabaseFences::advance(Claim claim, Done<Ruling> done) {
  claim.sequence.reset();
  const auto order = claim.resource.name();
  const auto rule = [claim = std::move(claim), jump_max = jump_max_](pqxx::work& tx) {
    try {
      return rule_in(tx, claim, jump_max);
    } catch (const pqxx::serialization_failure& error) {
      throw RolledBack{error.what()};
    } catch (const pqxx::deadlock_detected& error) {
      throw RolledBack{error.what()};
    }
  };
  const auto answer = [this, done = std::move(done)](Outcome<Ruling> outcome) {
    if (outcome.ok()) {
      const std::scoped_lock lock{mutex_};
      status_.highest = std::max(status_.highest, outcome.value().highest);
    }
    done(std::move(outcome));
  };
  change<Ruling>({fmt::format("advancing '{}'", order), order}, rule, Done<Ruling>{answer});
}

void DatabaseFences::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  const auto order = resource.name();
  change<FenceView>(
      {fmt::format("revoking '{}'", order), order},
      [resource = std::move(resource), lease = std::move(lease)](pqxx::work& tx) {
        return revoke_in(tx, resource, lease);
      },
      std::move(done));
}

void DatabaseFences::compact(Token lowest_live, Done<Compaction> done) {
  change<Compaction>(
      {"compacting"}, [lowest_live](pqxx::work& tx) { return compact_in(tx, lowest_live); }, std::move(done));
}

void DatabaseFences::show(Resource resource, Done<FenceView> done) {
  Call call{fmt::format("looking at '{}'", resource.name())};
  looks_.ask<FenceView>(
      std::move(call), [resource = std::move(resource)](pqxx::work& tx) { return view_in(tx, resource); },
      std::move(done));
}

void DatabaseFences::list(FenceListing listing, Done<FencePage> done) {
  looks_.ask<FencePage>(
      {"listing fences"}, [listing = std::move(listing)](pqxx::work& tx) { return list_in(tx, listing); },
      std::move(done));
}

void DatabaseFences::init(std::int64_t floor, Done<std::int64_t> done) {
  change<std::int64_t>(
      {"initialising"}, [floor](pqxx::work& tx) { return init_in(tx, floor); }, std::move(done));
}

void DatabaseFences::rebase(Rebase rebase, Done<FenceView> done) {
  const auto order = rebase.resource.name();
  change<FenceView>(
      {fmt::format("rebasing '{}'", order), order},
      [rebase = std::move(rebase)](pqxx::work& tx) { return rebase_in(tx, rebase); }, std::move(done));
}

}  // namespace fenceguard::postgres
