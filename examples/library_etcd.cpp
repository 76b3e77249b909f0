// A service with its own etcd: the claim is judged and proved in the very transaction that writes, so there
// is no moment between the check and the write.
//
// usage: library_etcd URL
// Once per namespace before: fenceguard fence init --storage URL

#include <chrono>
#include <cstdio>
#include <string>

#include "adapters/etcd/guard.hpp"
#include "adapters/schemes.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

const std::string balance = "accounts/42/balance";

// Reads the balance and adds to it, if the claim still stands. The fenced read advances the fence, so that no
// older write can land between it and the write. Returns the last verdict.
Verdict add(etcd::Guard& guard, const Claim& claim, int amount, const char* who) {
  const auto seen = guard.read(claim, {etcd::get(balance)});
  if (seen.ruling.verdict != Verdict::admitted) return seen.ruling.verdict;
  const auto sum = std::to_string(std::stoi(seen.answers.front().found.front().value) + amount);
  // With a sequence, a write whose answer was lost can be sent again: it takes effect at most once.
  const auto written = guard.write(claim.with(Sequence{1}), {etcd::put(balance, sum)});
  if (written.is_done()) std::printf("%s stores %s\n", who, sum.c_str());
  return written.ruling.verdict;
}

int run(const std::string& url) {
  etcd::Client client{url};
  etcd::Guard guard{client};
  const auto source = open_source(url);

  auto first = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!first) return std::puts("the lock is busy"), 1;
  (void)guard.write(first->claim(), {etcd::put(balance, "100")});
  std::printf("A adds 50: %s\n", to_string(add(guard, first->claim(), 50, "A")));

  // A stops for too long and loses the lock (here it is taken away); B takes it and writes.
  (void)source->end(Resource{"accounts/42"});
  auto second = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!second) return std::puts("the lock is busy"), 1;
  std::printf("B adds 30: %s\n", to_string(add(guard, second->claim(), 30, "B")));
  std::printf("A adds 50: %s\n", to_string(add(guard, first->claim(), 50, "A")));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::puts("usage: library_etcd URL"), 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library_etcd: %s\n", error.what());
    return 3;
  }
}
