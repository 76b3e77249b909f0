#include "adapters/mariadb/fences/old_sessions.hpp"

#include <fmt/format.h>

#include <set>
#include <thread>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds look{10};

// Fails without that privilege, with which alone the list of sessions is whole.
constexpr const char* require_process = "SELECT COUNT(*) FROM information_schema.innodb_trx";
constexpr const char* of_user = "SELECT id FROM information_schema.processlist WHERE user = ?";

}  // namespace

int end_sessions(const Url& url, const std::string& user, std::chrono::milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  Connection connection{address_of(url, {"lock"})};
  return mapped(Stage::before_commit, fmt::format("ending the sessions of {}", user), [&] {
    connection.run(require_process);
    std::set<std::string> ended;
    for (;;) {
      const auto sessions = connection.run(of_user, {user});
      if (sessions.empty()) return static_cast<int>(ended.size());
      for (const auto& row : sessions) {
        const auto& number = row.at(0).value();
        if (!ended.insert(number).second) continue;
        connection.end_session(number);
      }
      if (steady_clock::now() >= deadline)
        throw Unavailable(fmt::format("{} of the sessions of {} did not end", sessions.size(), user));
      std::this_thread::sleep_for(look);
    }
  });
}

void finish_holder(const Url& url, const Claim& claim) {
  Connection connection{address_of(url, {"lock"})};
  mapped(Stage::at_commit, fmt::format("closing the fence of {}", claim.resource.name()),
         [&] { return connection.call("finish", arguments_of(claim)); });
}

}  // namespace fenceguard::mariadb
