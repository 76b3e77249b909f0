// A service with its own data in ZooKeeper: the claim is judged by what the guard has seen, and the very
// multi that writes proves that it is still so. There is no moment between the check and the write.
//
// usage: library_zookeeper URL
// Once per namespace before: fenceguard fence init --storage URL

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "adapters/schemes.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "guard/lease.hpp"

using namespace fenceguard;
using namespace std::chrono_literals;

namespace {

const std::string balance = "/bank/accounts-42/balance";  // anywhere but in fenceguard's own nodes

// Reads the balance and adds to it, if the claim still stands. The fenced read advances the fence, so that no
// older write can land between it and the write. Returns the last verdict.
Verdict add(zookeeper::Guard& guard, const Claim& claim, int amount, const char* who) {
  const auto seen = guard.read(claim, balance);
  if (seen.ruling.verdict != Verdict::admitted) return seen.ruling.verdict;
  const auto sum = std::to_string(std::stoi(seen.answer->data) + amount);
  // With a sequence, a write whose answer was lost can be sent again: it takes effect at most once.
  const auto written = guard.write(claim.with(Sequence{1}), {zookeeper::set(balance, sum)});
  if (written.ruling.verdict != Verdict::admitted) return written.ruling.verdict;
  if (!written.took_effect()) throw std::runtime_error{"somebody removed the balance"};
  std::printf("%s stores %s\n", who, sum.c_str());
  return Verdict::admitted;
}

int run(const std::string& url) {
  zookeeper::Client client{url};
  zookeeper::Guard guard{client};
  const auto source = open_source(url);

  auto first = source->acquire(Resource{"accounts/42"}, {.ttl = 10s, .wait = 30s});
  if (!first) return std::puts("the lock is busy"), 1;
  client.connection().session->make_path(balance);
  (void)guard.write(first->claim(), {zookeeper::set(balance, "100")});
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
  if (argc != 2) return std::puts("usage: library_zookeeper URL"), 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library_zookeeper: %s\n", error.what());
    return 3;
  }
}
