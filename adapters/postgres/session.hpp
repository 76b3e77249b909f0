#pragma once

// Session: a connection for a thread that works in the background. It is opened when it is first needed,
// opened again when it broke, and can be cut off from outside, so that a server that does not answer blocks
// no thread for ever.
//
// Thread safety: run() by one thread at a time; break_off_after() by any.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <pqxx/pqxx>
#include <string>
#include <string_view>

#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/commit_warning.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::postgres {

// The address with limits after which a peer that is gone counts as gone, where the URL says nothing.
[[nodiscard]] Address address_with_limits(Url url, std::initializer_list<std::string_view> own);

// Whether the fences must be installed for a call to make sense.
enum class Needs { fences, nothing };

class Session {
 public:
  // REQUIRES: the address outlives the session.
  explicit Session(const Address& address) : address_{address} {}
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // function(tx) in a READ COMMITTED transaction of its own, whatever the database's default, and then its
  // COMMIT. Throws what function throws, as one of our errors, after a rollback; OutcomeUnknown where the
  // COMMIT was sent and its end not seen, or it came with a warning. Nothing is repeated, but a BEGIN that
  // found a broken connection.
  template <class Function>
  auto run(std::string_view doing, Needs needs, Function&& function) {
    const Running running{*this};
    auto tx = mapped(Stage::before_commit, doing, [this, needs] { return begin(needs); });
    Stage stage = Stage::before_commit;
    try {
      auto answer = function(*tx);
      stage = Stage::at_commit;
      unless_warned(*connection_, [&tx] { tx->commit(); });
      return answer;
    } catch (...) {
      tx.reset();
      if (!connection_->is_open()) close();
      raise_current(stage, doing);
    }
  }

  // Ends the connection if a run() has taken longer than limit: it then fails like any other lost connection.
  void break_off_after(std::chrono::milliseconds limit);

 private:
  struct Running {
    explicit Running(Session& session);
    ~Running();
    Session& session;
  };

  [[nodiscard]] std::unique_ptr<pqxx::work> begin(Needs needs);
  void open();
  void close();

  const Address& address_;
  std::unique_ptr<pqxx::connection> connection_;
  std::unique_ptr<Quiet> quiet_;
  bool is_checked_ = false;  // the fences are installed

  std::mutex mutex_;  // guards the following
  int socket_ = -1;
  std::optional<BootClock::time_point> running_since_;
};

}  // namespace fenceguard::postgres
