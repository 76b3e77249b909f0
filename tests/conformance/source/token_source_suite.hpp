#pragma once

// What every token source must do, whatever it rests on. An adapter runs the suite by naming its spaces:
//
//   INSTANTIATE_TEST_SUITE_P(Sqlite, TokenSourceSuite, testing::Values(SourceKind{"own_file",
//   make_own_file}),
//                            source_kind_name);
//
// A space is one fresh namespace; each handle that it opens stands for another process. The tests are
// compiled once, in token_source_*.cpp.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>

#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::test {

class SourceSpace {
 public:
  virtual ~SourceSpace() = default;
  // A handle of its own to this space's namespace, as another process would have it.
  [[nodiscard]] virtual std::unique_ptr<TokenSource> open() = 0;
};

struct SourceKind {
  std::string name;
  std::function<std::unique_ptr<SourceSpace>()> make;
  bool has_one_counter = true;  // all tokens of the namespace come from one counter: lowest_live() answers
  bool draws = true;            // there is a number of the whole namespace: draw() answers
  std::chrono::milliseconds short_ttl{300};  // more where the product counts in seconds
  bool lists = true;                         // it is a LeaseLister
};

inline std::string source_kind_name(const testing::TestParamInfo<SourceKind>& info) {
  return info.param.name;
}

class TokenSourceSuite : public testing::TestWithParam<SourceKind> {
 protected:
  using Ms = std::chrono::milliseconds;
  static constexpr Ms long_ttl{60'000};
  static constexpr std::chrono::seconds limit{20};
  static constexpr int attempts_max = 20;

  void SetUp() override {
    space_ = GetParam().make();
    here_ = space_->open();
    there_ = space_->open();
  }

  // The grant, which must be one.
  static Grant take(TokenSource& source, const Resource& resource, const Holder& holder, Ms ttl = long_ttl) {
    auto answer = source.try_acquire(resource, holder, ttl);
    auto* grant = std::get_if<Grant>(&answer);
    if (grant == nullptr) throw std::runtime_error{resource.name() + " is held"};
    return *grant;
  }

  static bool is_held(TokenSource& source, const Resource& resource, const Holder& holder) {
    return std::holds_alternative<LockBusy>(source.try_acquire(resource, holder, long_ttl));
  }

  // A lock of its own for each attempt of a test that a machine which hesitates may force to begin again.
  static Resource resource_of(int attempt) { return Resource{"attempt/" + std::to_string(attempt)}; }

  // Waits for the lease of resource to end by itself.
  static bool wait_until_free(TokenSource& source, const Resource& resource) {
    const auto deadline = BootClock::now() + limit;
    while (source.show(resource)) {
      if (BootClock::now() > deadline) return false;
      std::this_thread::sleep_for(Ms{5});
    }
    return true;
  }

  // Whether a lease of here_ was held for twice its time. It is not, and rightly, where the machine hesitated
  // and its renewals came too late; but it is signalled as lost before anybody else is let in.
  bool is_kept(const Lease& lease, Ms ttl) const {
    const auto until = BootClock::now() + 2 * ttl;
    while (BootClock::now() < until) {
      if (!is_held(*there_, lease.claim().resource, b_)) {
        EXPECT_TRUE(lease.lost().stop_requested());
        return false;
      }
      std::this_thread::sleep_for(ttl / 20);
    }
    return !lease.lost().stop_requested();
  }

  // Who else can act for a holder of here_: another process, unless leases live by the connection that took
  // them.
  [[nodiscard]] TokenSource& partner() const { return here_->lives_by_connection() ? *here_ : *there_; }

  static Claim claim_of(const Resource& resource, Token token, const std::string& holder) {
    return {resource, token, Holder{holder}, std::nullopt};
  }

  const Ms short_ttl = GetParam().short_ttl;
  const Resource r_{"accounts/42"};
  const Holder a_{"a"};
  const Holder b_{"b"};
  std::unique_ptr<SourceSpace> space_;
  std::unique_ptr<TokenSource> here_;
  std::unique_ptr<TokenSource> there_;
};

}  // namespace fenceguard::test
