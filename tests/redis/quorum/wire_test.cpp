// Holds the model of the simulation to the scripts: the same random requests to a real server and to a
// ModelNode must be answered alike. FENCEGUARD_SEED=N repeats a run.

#include "adapters/redis/quorum/wire.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/conformance/scale.hpp"
#include "tests/redis/quorum/model.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::test {
namespace {

using namespace redis::quorum;
using What = Request::What;

constexpr std::int64_t long_ttl_ms = 3'600'000;

class QuorumWire : public testing::Test {
 protected:
  Answer at_server(const Request& request) {
    auto reply = call(encoded("q:", request, true));
    if (reply.is_error()) reply = call(encoded("q:", request, false));
    if (reply.is_error()) throw std::runtime_error{reply.text};
    return answer_of(request.what, reply).value();
  }

  redis::Reply call(const std::string& command) {
    connection_.queue_encoded(command);
    connection_.send();
    return connection_.receive();
  }

  RedisServer server_;
  redis::Connection connection_{redis::address_of(Url::parse(server_.url()))};
};

// What both must say; the times to live only have to be about the same, and a refusal may or may not name an
// era.
std::string told(const Answer& answer, std::int64_t left_ms) {
  const bool has_era = answer.kind == Answer::Kind::granted || answer.kind == Answer::Kind::mine ||
                       answer.kind == Answer::Kind::marked;
  return fmt::format("{} {} {} {} {}", static_cast<int>(answer.kind), has_era ? answer.epoch : "",
                     answer.holder, answer.kind == Answer::Kind::confirmed ? 0 : answer.number,
                     left_ms > long_ttl_ms / 2);
}

class Requests {
 public:
  explicit Requests(std::uint64_t seed) : random_{seed} {}

  int operator()(int below) { return std::uniform_int_distribution<>{0, below - 1}(random_); }

  // Mostly such as make sense after what was answered last.
  Request next() {
    static constexpr What whats[] = {What::ask,      What::ask,       What::ask,       What::confirm,
                                     What::confirm,  What::extend,    What::renew,     What::release,
                                     What::withdraw, What::show,      What::prepare,   What::freeze,
                                     What::lift,     What::bootstrap, What::bootstrap, What::draw};
    auto request = seen_[(*this)(static_cast<int>(seen_.size()))];
    if ((*this)(3) == 0) request.resource = (*this)(2) == 0 ? "r" : "s";
    if ((*this)(3) == 0) request.holder = std::string(1, static_cast<char>('a' + (*this)(2)));
    if ((*this)(4) == 0) request.nonce = "n" + std::to_string((*this)(4));
    if ((*this)(8) == 0) request.epoch = "e" + std::to_string((*this)(2));
    if ((*this)(6) == 0) request.number += (*this)(5);
    request.next_epoch = "e" + std::to_string((*this)(2));
    request.what = whats[(*this)(std::size(whats))];
    request.ttl_ms = long_ttl_ms;
    return request;
  }

  void learn(Request request, const Answer& answer) {
    if (!answer.epoch.empty()) request.epoch = answer.epoch;
    if (answer.kind == Answer::Kind::granted) request.answered = answer.number;
    if (answer.number > 0) request.number = answer.number;
    seen_[(*this)(static_cast<int>(seen_.size()))] = request;
  }

 private:
  std::mt19937_64 random_;
  std::vector<Request> seen_{
      4, Request{.resource = "r", .holder = "a", .nonce = "n0", .epoch = "e0", .number = 1}};
};

TEST_F(QuorumWire, TheModelAnswersAsTheScriptsDo) {
  const char* given = std::getenv("FENCEGUARD_SEED");
  const auto seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "FENCEGUARD_SEED=" << seed << "\n";
  Requests requests{seed};
  ModelNode model;
  int answers[8]{};
  for (int i = 0; i < scaled(20'000); ++i) {
    if (requests(400) == 0) {
      (void)server_.call({"FLUSHALL"});
      model.forget();
    }
    if (requests(30) == 0) {
      const std::string resource = requests(2) == 0 ? "r" : "s";
      (void)server_.call({"DEL", "q:quorum:lock:{" + resource + "}"});
      model.expire(resource);
    }
    const auto request = requests.next();
    const auto expected = model.handle(request, {0, 1'000});
    const auto found = at_server(request);
    ASSERT_EQ(told(found, found.left_ms),
              told(expected, found.kind == Answer::Kind::granted ? found.left_ms : expected.left_ms))
        << "step " << i << ", request " << static_cast<int>(request.what);
    ++answers[static_cast<int>(found.kind)];
    requests.learn(request, found);
  }
  for (int kind = 0; kind < 7; ++kind) EXPECT_GT(answers[kind], 0) << "answer " << kind << " never came";
}

TEST_F(QuorumWire, RenewingNeverShortens) {
  (void)server_.call({"SET", "q:quorum:lock:{r}", "7 h n", "PX", std::to_string(long_ttl_ms)});
  Request renew{.what = What::renew, .resource = "r", .holder = "h", .number = 7, .ttl_ms = 100};
  EXPECT_EQ(at_server(renew).kind, Answer::Kind::confirmed);
  EXPECT_GT(server_.call({"PTTL", "q:quorum:lock:{r}"}).integer, long_ttl_ms / 2);
  renew.ttl_ms = 2 * long_ttl_ms;
  EXPECT_EQ(at_server(renew).kind, Answer::Kind::confirmed);
  EXPECT_GT(server_.call({"PTTL", "q:quorum:lock:{r}"}).integer, long_ttl_ms);
}

TEST_F(QuorumWire, AReleaseFreesTheHoldOfItsVeryTokenAndHolder) {
  const Request release{.what = What::release, .resource = "r", .holder = "h", .number = 7};
  for (const std::string hold : {"77 h n", "17 h n", "7 hh n", "7 H n", "7  h", "7 h"}) {
    (void)server_.call({"SET", "q:quorum:lock:{r}", hold});
    EXPECT_EQ(at_server(release).kind, Answer::Kind::refused) << hold;
    EXPECT_EQ(server_.call({"GET", "q:quorum:lock:{r}"}).text, hold);
  }
  (void)server_.call({"SET", "q:quorum:lock:{r}", "7 h n"});
  EXPECT_EQ(at_server(release).kind, Answer::Kind::confirmed);
  EXPECT_EQ(at_server(release).kind, Answer::Kind::refused);
}

TEST_F(QuorumWire, ACounterThatIsNoNumberGrantsNothingAndStays) {
  for (const std::string counter : {"x", "-5", "1.5", "05", ""}) {
    (void)server_.call({"MSET", "q:quorum:marker", "e", "q:quorum:counter", counter});
    Request ask{.what = What::ask, .resource = "r", .holder = "h", .nonce = "n", .ttl_ms = long_ttl_ms};
    EXPECT_THROW((void)at_server(ask), std::runtime_error) << counter;
    EXPECT_EQ(server_.call({"GET", "q:quorum:counter"}).text, counter);
    EXPECT_EQ(server_.call({"EXISTS", "q:quorum:lock:{r}"}).integer, 0);
  }
}

TEST_F(QuorumWire, AWithdrawalLeavesAloneWhatIsPartOfTheTenure) {
  (void)server_.call({"SET", "q:quorum:lock:{r}", "7 h n", "PX", std::to_string(long_ttl_ms)});
  Request withdraw{.what = What::withdraw, .resource = "r", .holder = "h", .nonce = "n", .number = 7};
  EXPECT_EQ(at_server(withdraw).kind, Answer::Kind::refused);
  withdraw.number = 0;
  EXPECT_EQ(at_server(withdraw).kind, Answer::Kind::confirmed);
}

TEST_F(QuorumWire, NumbersBeyondWhatLuaCountsAreExact) {
  for (const std::string number : {"9999999999998", "9999999999999", "99999999999999", "9007199254740992",
                                   "9007199254740993", "9223372036854775800"}) {
    (void)server_.call({"MSET", "q:quorum:marker", "e", "q:quorum:counter", number});
    (void)server_.call({"DEL", "q:quorum:lock:{r}"});
    Request ask{.what = What::ask, .resource = "r", .holder = "h", .nonce = "n", .ttl_ms = long_ttl_ms};
    const auto granted = at_server(ask);
    EXPECT_EQ(granted.number, std::stoll(number) + 1);
    Request confirm{.what = What::confirm, .resource = "r", .holder = "h", .nonce = "n", .epoch = "e"};
    confirm.answered = granted.number;
    confirm.number = granted.number + 3;
    EXPECT_EQ(at_server(confirm).kind, Answer::Kind::confirmed);
    EXPECT_EQ(server_.call({"GET", "q:quorum:counter"}).text, std::to_string(confirm.number));
    EXPECT_EQ(at_server(confirm).kind, Answer::Kind::refused);
  }
}

TEST_F(QuorumWire, ACounterThatIsUsedUpGrantsNothingAndWritesNothing) {
  (void)server_.call({"MSET", "q:quorum:marker", "e", "q:quorum:counter", "9223372036854775807"});
  Request ask{.what = What::ask, .resource = "r", .holder = "h", .nonce = "n", .ttl_ms = long_ttl_ms};
  EXPECT_THROW((void)at_server(ask), std::runtime_error);
  EXPECT_EQ(server_.call({"EXISTS", "q:quorum:lock:{r}"}).integer, 0);
}

TEST_F(QuorumWire, AnotherLibrarysLockIsHeldAndNeverTouched) {
  (void)server_.call(
      {"MSET", "q:quorum:marker", "e", "q:quorum:counter", "5", "q:quorum:lock:{r}", "theirs"});
  Request request{.what = What::ask, .resource = "r", .holder = "h", .nonce = "n", .epoch = "e"};
  request.ttl_ms = long_ttl_ms;
  EXPECT_EQ(at_server(request).kind, Answer::Kind::held);
  for (const auto what :
       {What::confirm, What::extend, What::withdraw, What::renew, What::release, What::show}) {
    request.what = what;
    EXPECT_EQ(at_server(request).kind, Answer::Kind::refused);
  }
  EXPECT_EQ(server_.call({"GET", "q:quorum:lock:{r}"}).text, "theirs");
}

TEST_F(QuorumWire, WhatIsNoStringUnderALocksKeyIsHeldAndStays) {
  (void)server_.call({"MSET", "q:quorum:marker", "e", "q:quorum:counter", "5"});
  (void)server_.call({"LPUSH", "q:quorum:lock:{r}", "theirs"});
  const Request ask{.what = What::ask, .resource = "r", .holder = "h", .nonce = "n", .ttl_ms = long_ttl_ms};
  EXPECT_EQ(at_server(ask).kind, Answer::Kind::held);
  EXPECT_EQ(server_.call({"LLEN", "q:quorum:lock:{r}"}).integer, 1);
}

}  // namespace
}  // namespace fenceguard::test
