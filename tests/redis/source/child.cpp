// What another process does in a test of the token source.
//
//   redis_source_child URL RESOURCE hold TTL_MS     takes the lock, says its token, keeps it until its input
//                                                   ends: 'asking', 'token N', then 'released' or 'not_held'
//   redis_source_child URL RESOURCE turns THREADS   says 'asking'; each thread takes the lock once, says
//                                                   'token N' while it has it, and releases

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/redis/token_source.hpp"
#include "guard/lease.hpp"

namespace fenceguard::test {
namespace {

constexpr std::chrono::milliseconds patience{60'000};

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int hold(TokenSource& source, const Resource& resource, std::chrono::milliseconds ttl) {
  auto lease = source.acquire(resource, {.ttl = ttl, .wait = patience});
  if (!lease) return say("nothing"), 1;
  say("token " + to_string(lease->claim().token));
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  say(lease->release() == Release::released ? "released" : "not_held");
  return 0;
}

int turns(TokenSource& source, const Resource& resource, int count) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      const auto grant = source.wait_acquire(resource, Holder::random(), {.ttl = patience, .wait = patience});
      if (!grant) return say("nothing");
      say("token " + to_string(grant->claim.token));
      (void)source.release(grant->claim);
    });
  }
  return 0;
}

int run(char** words) {
  const auto source = redis::open_source(Url::parse(words[1]));
  const Resource resource{words[2]};
  const auto number = std::stoi(words[4]);
  say("asking");
  if (std::string_view{words[3]} == "turns") return turns(*source, resource, number);
  return hold(*source, resource, std::chrono::milliseconds{number});
}

}  // namespace
}  // namespace fenceguard::test

int main(int count, char** words) {
  if (count != 5) return 2;
  try {
    return fenceguard::test::run(words);
  } catch (const std::exception& error) {
    fmt::print("error {}\n", error.what());
    return 3;
  }
}
