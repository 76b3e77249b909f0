#include "adapters/postgres/lease_pool.hpp"

#include <poll.h>

#include "adapters/postgres/errors.hpp"

namespace fenceguard::postgres {
namespace {

template <class Semaphore>
class Slot {
 public:
  explicit Slot(Semaphore& calls) : calls_{calls} { calls_.acquire(); }
  ~Slot() { calls_.release(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  Semaphore& calls_;
};

// Nobody has anything to say on an idle connection but that it is over.
bool is_sound(const pqxx::connection& connection) {
  if (!connection.is_open()) return false;
  pollfd socket{connection.sock(), POLLIN, 0};
  return poll(&socket, 1, 0) == 0;
}

}  // namespace

pqxx::result Pool::call(std::string_view doing, const Statement& statement, const TookEffect& took_effect) {
  const Slot slot{calls_};
  auto connection = take();
  const auto result = mapped(Stage::before_commit, doing, [&] {
    const auto text = statement(*connection);
    pqxx::nontransaction tx{*connection};
    return tx.exec(std::string{begin_sql}.append(text));
  });
  if (took_effect(result)) {
    mapped(Stage::at_commit, doing, [&] {
      pqxx::nontransaction tx{*connection};
      tx.exec("COMMIT");
    });
    give_back(std::move(connection));
    return result;
  }
  try {
    {
      pqxx::nontransaction tx{*connection};
      tx.exec("ROLLBACK");
    }
    give_back(std::move(connection));
  } catch (const std::exception&) {
    // The connection is dropped, and the transaction with it.
  }
  return result;
}

Connection Pool::take() {
  for (;;) {
    Connection connection;
    {
      const std::scoped_lock lock{mutex_};
      if (idle_.empty()) break;
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    if (is_sound(*connection)) return connection;
  }
  return connect(address_);
}

void Pool::give_back(Connection connection) noexcept {
  const std::scoped_lock lock{mutex_};
  if (idle_.size() < idle_max) idle_.push_back(std::move(connection));
}

}  // namespace fenceguard::postgres
