#include "guard/support/look_up.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace fenceguard {
namespace {

using Told = std::function<void(const Lookup&)>;

struct UnderWay {
  std::mutex mutex;
  std::map<std::string, std::vector<Told>> names;  // who is told
};

// Threads may outlive main().
UnderWay& under_way() {
  static auto* const all = new UnderWay;
  return *all;
}

int ask(const std::string& host, int flags, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int outcome = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (outcome != 0) {
    lookup.error = ::gai_strerror(outcome);
    return outcome;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{found, &::freeaddrinfo};
  for (const auto* entry = found; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      lookup.addresses.emplace_back(text);
  }
  if (lookup.addresses.empty()) lookup.error = "it has no address";
  return 0;
}

void tell(const std::string& host, const Lookup& lookup) {
  auto& all = under_way();
  std::unique_lock lock{all.mutex};
  auto waiting = all.names.extract(host);
  lock.unlock();
  for (const auto& told : waiting.mapped()) {
    try {
      told(lookup);
    } catch (...) {
      // No memory: whom it concerns goes on at its limit.
    }
  }
}

}  // namespace

void look_up(const std::string& host, Told told) {
  Lookup number;
  if (ask(host, AI_NUMERICHOST, number) == 0) return told(number);
  {
    auto& all = under_way();
    const std::scoped_lock lock{all.mutex};
    auto& waiting = all.names[host];
    waiting.push_back(std::move(told));
    if (waiting.size() > 1) return;
  }
  try {
    std::thread{[host] {
      Lookup lookup;
      try {
        (void)ask(host, 0, lookup);
      } catch (...) {
        lookup.error = "no memory";
      }
      tell(host, lookup);
    }}.detach();
  } catch (const std::exception&) {
    tell(host, {{}, "no thread"});  // which needs no memory, or the name would wait for ever
  }
}

Lookup look_up(const std::string& host, std::chrono::milliseconds limit) {
  const auto answer = std::make_shared<std::promise<Lookup>>();
  look_up(host, [answer](const Lookup& lookup) { answer->set_value(lookup); });
  auto found = answer->get_future();
  if (found.wait_for(limit) == std::future_status::ready) return found.get();
  return {{}, "the resolver did not answer in time"};
}

}  // namespace fenceguard
