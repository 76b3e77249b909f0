// What another process does in a test of the token source.
//
//   zookeeper_source_child URL RESOURCE   takes the lock, says 'token N', keeps it until its input ends, and
//                                         says 'released' or 'not_held'

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "adapters/zookeeper/token_source.hpp"
#include "guard/lease.hpp"

namespace fenceguard::test {
namespace {

constexpr std::chrono::milliseconds patience{60'000};

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int hold(const std::string& url, const std::string& resource) {
  const auto source = zookeeper::open_source(Url::parse(url));
  auto lease = source->acquire(Resource{resource}, {.ttl = patience, .wait = patience});
  if (!lease) return say("nothing"), 1;
  say("token " + to_string(lease->claim().token));
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  say(lease->release() == Release::released ? "released" : "not_held");
  return 0;
}

}  // namespace
}  // namespace fenceguard::test

int main(int count, char** words) {
  if (count != 3) return 2;
  try {
    return fenceguard::test::hold(words[1], words[2]);
  } catch (const std::exception& error) {
    fmt::print("error {}\n", error.what());
    return 3;
  }
}
