// The lanes against clients, an upstream and a store that do anything, in any order. No write enters beside
// one of another token, below one that entered before, before its fence is durable, or after an unknown end
// before the settle time; and in the end nobody waits.
//
// The input: steps, each a byte and what it needs.

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tests/lane/lane_driver.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;

constexpr std::array resources{"a", "b"};
constexpr std::array<std::int64_t, 7> tokens{1, 2, 3, 4, 5, 4'294'967'296, 9'223'372'036'854'775'807};
constexpr std::array<std::optional<FaultKind>, 4> faults{std::nullopt, std::nullopt, FaultKind::unavailable,
                                                         FaultKind::unknown};

class Play {
 public:
  explicit Play(Input& input) : input_{input} {}

  void step() {
    switch (const auto what = input_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return ask(Kind::write);
      case 4:
        return ask(Kind::read);
      case 5:
        return ask(input_.chance() ? Kind::advance : Kind::revoke);
      case 6:
      case 7:
        return end_one();
      case 8:
        return answer();
      case 9:
        return lanes_.wait(Time{input_.byte() * 200});
      case 10:
        return withdraw_one();
      default:
        if (what == 11 && input_.chance()) return lanes_.forget_fences();
        lanes_.holds = !lanes_.holds;
        if (!lanes_.holds) lanes_.answer_all();
    }
  }

  void look() {
    for (; looked_ < lanes_.entered().size(); ++looked_) {
      const auto ticket = lanes_.entered()[looked_];
      auto& operation = operations_.at(ticket);
      check_entered(operation);
      operation.is_in = true;
    }
  }

  void finish() {
    lanes_.holds = false;
    lanes_.answer_all();
    for (int rounds = 0; rounds < 3; ++rounds) {
      look();
      for (auto& [ticket, operation] : operations_)
        if (is_in_flight(operation)) end(ticket, operation, Ending::took_effect);
      lanes_.wait(2 * LaneDriver::settle);
    }
    look();
    for (const auto& [ticket, operation] : operations_)
      require(lanes_.state(ticket) != "waiting", "somebody waits for ever", std::to_string(ticket));
    require(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed(), "answered twice, or to nobody");
  }

 private:
  struct Operation {
    Kind kind;
    std::vector<Claim> claims;
    bool is_in = false;  // it entered, and those before it did
    bool is_ended = false;
    std::optional<Time> unknown_at{};
  };

  // The table may call back before ask() returns its ticket, so nothing is looked at in between.
  void ask(Kind kind) {
    std::vector<Claim> claims{claim(input_.pick(resources))};
    if (kind == Kind::write && input_.below(8) == 0) {
      claims.push_back(claim(claims[0].resource.name() == "a" ? "b" : "a"));
    }
    const auto ticket = lanes_.ask(kind, claims);
    operations_.emplace(ticket, Operation{kind, std::move(claims)});
  }

  Claim claim(const std::string& resource) {
    const auto token = input_.pick(tokens);
    const auto how = input_.byte();
    const std::optional<int> sequence = how % 4 == 0 ? std::optional{1 + how / 4 % 4} : std::nullopt;
    return LaneDriver::claim(resource, token, sequence, how % 16 == 15 ? "other" : "");
  }

  [[nodiscard]] static bool is_in_flight(const Operation& operation) {
    return operation.kind == Kind::write && operation.is_in && !operation.is_ended;
  }

  void end(Ticket ticket, Operation& operation, Ending ending) {
    operation.is_ended = true;
    if (ending == Ending::unknown) operation.unknown_at = lanes_.now;
    lanes_.end(ticket, ending);
  }

  void end_one() {
    std::vector<Ticket> some;
    for (const auto& [ticket, operation] : operations_)
      if (is_in_flight(operation)) some.push_back(ticket);
    if (some.empty()) return;
    const auto ticket = input_.pick(some);
    end(ticket, operations_.at(ticket), static_cast<Ending>(input_.below(4)));
  }

  void answer() {
    if (lanes_.calls().empty()) return;
    const auto kind = input_.pick(faults);
    if (!kind) return lanes_.answer();
    // What is unknown may have been applied; what is unavailable was not.
    lanes_.answer(Fault{*kind, "as the input says"}, *kind == FaultKind::unknown && input_.chance());
  }

  void withdraw_one() {
    for (auto& [ticket, operation] : operations_) {
      if (operation.kind == Kind::read && lanes_.state(ticket) == "entered" && !operation.is_ended) {
        operation.is_ended = true;
        return lanes_.end_read(ticket);
      }
      if (lanes_.state(ticket) == "waiting" && operation.kind != Kind::revoke) {
        (void)lanes_.withdraw(ticket);
        return;
      }
    }
  }

  void check_entered(const Operation& operation) {
    if (operation.kind == Kind::revoke) return;
    for (const auto& claim : operation.claims) {
      const auto& name = claim.resource.name();
      const auto& record = lanes_.store[name].record;
      require(record && record->token.value() >= claim.token.value(),
              "it entered before its fence was durable", name);
      auto& highest = highest_[name];
      require(claim.token.value() >= highest, "an older one entered", name);
      highest = claim.token.value();
      for (const auto& [other, before] : operations_) compare(operation.kind, claim, before);
    }
  }

  void compare(Kind kind, const Claim& claim, const Operation& before) {
    for (const auto& old : before.claims) {
      if (old.resource != claim.resource || before.kind != Kind::write) continue;
      const auto& name = claim.resource.name();
      if (is_in_flight(before)) {
        require(old.token == claim.token, "it entered beside a write of another token", name);
        require(kind != Kind::write || !old.sequence || !claim.sequence, "two sequences side by side", name);
      }
      if (before.unknown_at && kind == Kind::write)
        require(lanes_.now >= *before.unknown_at + LaneDriver::settle, "it entered after an unknown end",
                name);
    }
  }

  Input& input_;
  LaneDriver lanes_{LaneLimits{LaneDriver::settle, 4, 6, 1}};
  std::map<Ticket, Operation> operations_;
  std::map<std::string, std::int64_t> highest_;
  std::size_t looked_ = 0;
};

}  // namespace
}  // namespace fenceguard::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 512) return -1;
  fenceguard::test::Input input{data, size};
  fenceguard::test::Play play{input};
  while (!input.empty()) {
    play.step();
    play.look();
  }
  play.finish();
  return 0;
}
