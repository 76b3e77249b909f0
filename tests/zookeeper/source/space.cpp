#include "tests/zookeeper/source/space.hpp"

#include <atomic>
#include <thread>

namespace fenceguard::test {

Ensemble& shared_ensemble() {
  static Ensemble ensemble{1};
  return ensemble;
}

std::string fresh_root() {
  static std::atomic<int> count{0};
  return "/root" + std::to_string(++count);
}

zookeeper::Session& observer() {
  static zookeeper::Session session{zookeeper::address_of(Url::parse(shared_ensemble().url())),
                                    std::chrono::milliseconds{20'000}};
  session.wait_until_connected();
  return session;
}

bool wait_until_gone(const std::string& path) {
  return eventually([&] { return observer().exists(path).code == zookeeper::Code::no_node; });
}

}  // namespace fenceguard::test
