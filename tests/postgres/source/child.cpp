// What another process does in a test: takes the lock of a resource, says its token, and keeps it until its
// input ends.
//
//   postgres_source_child URL RESOURCE HOLDER TTL_MS
//
// Says 'asking', then 'token N' or 'nothing'; at the end of its input 'released' or 'not_held'; 'lost' as
// soon as it is.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "adapters/postgres/token_source.hpp"
#include "guard/lease.hpp"

namespace fenceguard::test {
namespace {

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int run(char** words) {
  const auto source = postgres::open_source(Url::parse(words[1]));
  say("asking");
  AcquireOptions options;
  options.holder = Holder{words[3]};
  options.ttl = std::chrono::milliseconds{std::stoll(words[4])};
  options.wait = std::chrono::seconds{60};
  auto lease = source->acquire(Resource{words[2]}, options);
  if (!lease) return say("nothing"), 1;
  say("token " + to_string(lease->claim().token));
  const std::stop_callback on_loss{lease->lost(), [] { say("lost"); }};
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  say(lease->release() == Release::released ? "released" : "not_held");
  return 0;
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
