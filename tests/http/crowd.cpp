#include "tests/http/crowd.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fenceguard::http {
namespace {

using Clock = std::chrono::steady_clock;

// So many rounds, or as many as there is time for, but never few.
const int rounds_max = test::scaled(400);
constexpr int rounds_min = 20;
constexpr auto asking_max = 5s;

}  // namespace

void raise_file_limit(std::size_t ends) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error{"no limit of open files"};
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < ends + 500)
    throw std::runtime_error{"this test needs more open files: see 'ulimit -Hn'"};
}

Limits crowd_limits() {
  Limits limits;
  limits.idle_max = limits.header_max = limits.body_max = limits.write_max = 10 * patience;
  return limits;
}

Crowd::Crowd(const std::string& address, std::string_view begin) {
  clients_.reserve(static_cast<std::size_t>(crowd_size));
  for (int i = 0; i < crowd_size; ++i) {
    clients_.emplace_back(address);
    EXPECT_TRUE(clients_.back().send(begin));
  }
}

void Crowd::expect_others_answered(std::string_view more, const std::function<void()>& ask) {
  std::atomic<bool> is_over{false};
  std::thread feeding{[&] {
    while (!is_over) feed(more);
  }};
  std::vector<Clock::duration> rounds;
  const auto enough = Clock::now() + asking_max;
  for (int i = 0; i < rounds_max && (i < rounds_min || Clock::now() < enough); ++i) {
    const auto asked = Clock::now();
    ask();
    rounds.push_back(Clock::now() - asked);
    std::this_thread::sleep_for(1ms);
  }
  is_over = true;
  feeding.join();
  std::sort(rounds.begin(), rounds.end());
  const auto slowest = rounds.back();
  // A crowd that hinders others slows every round, a machine that is busy with something else most at worst.
  EXPECT_LT(rounds[rounds.size() / 4], 1s);
  EXPECT_LT(slowest, patience);
  testing::Test::RecordProperty(
      "slowest_ms", static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(slowest).count()));
}

bool Crowd::is_quiet() {
  return std::all_of(clients_.begin(), clients_.end(), [](RawClient& client) { return client.is_quiet(); });
}

bool Crowd::is_answered() {
  return std::none_of(clients_.begin(), clients_.end(), [](RawClient& client) { return client.is_quiet(); });
}

void Crowd::feed(std::string_view more) {
  constexpr std::size_t at_a_time = 100;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (!more.empty()) clients_[i].send(more);
    if (i % at_a_time == 0) std::this_thread::sleep_for(10ms);
  }
}

}  // namespace fenceguard::http
