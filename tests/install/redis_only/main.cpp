// Links the guard and the source of Redis, and asks a server that is not there.

#include <cstdio>
#include <fenceguard/redis.hpp>

int main() {
  using namespace fenceguard;
  const auto url = Url::parse("redis://127.0.0.1:1");
  try {
    (void)redis::open_source(url);
    redis::Client client{url};
    redis::Guard guard{client};
    (void)guard.advance({Resource{"accounts/42"}, Token{1}, Holder{"mine"}, {}});
  } catch (const Unavailable& error) {
    return std::puts(error.what()), 0;
  }
  return std::puts("a server answered on port 1"), 1;
}
