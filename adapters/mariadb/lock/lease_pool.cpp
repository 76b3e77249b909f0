#include "adapters/mariadb/lock/lease_pool.hpp"

#include "adapters/mariadb/fences/advance.hpp"

namespace fenceguard::mariadb {

template <class Function>
Rows Pool::run(Slots& slots, Stage stage, std::string_view doing, const Function& function) {
  slots.acquire();
  const auto release = [](Slots* taken) { taken->release(); };
  const std::unique_ptr<Slots, decltype(release)> slot{&slots, release};
  std::unique_ptr<Session> session;
  {
    const std::scoped_lock lock{mutex_};
    if (!idle_.empty()) {
      session = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!session) session = std::make_unique<Session>(address_);
  // One on which a call failed is dropped.
  auto rows = session->run(stage, doing, function);
  const std::scoped_lock lock{mutex_};
  if (idle_.size() < idle_max) idle_.push_back(std::move(session));
  return rows;
}

Rows call_lease(Connection& connection, std::string_view procedure, const Row& arguments) {
  // The procedures have a limit of their own.
  const auto call = [&](std::chrono::seconds /*limit*/) { return connection.call(procedure, arguments); };
  return call_cutting(connection, std::nullopt, std::chrono::seconds{0}, call);
}

Rows Pool::call(Stage stage, std::string_view doing, std::string_view procedure, const Row& arguments) {
  return run(others_, stage, doing,
             [&](Connection& connection) { return call_lease(connection, procedure, arguments); });
}

Rows Pool::call_renewal(std::string_view doing, std::string_view procedure, const Row& arguments) {
  return run(renewals_, Stage::at_commit, doing,
             [&](Connection& connection) { return call_lease(connection, procedure, arguments); });
}

Rows Pool::look(std::string_view doing, std::string_view sql, const Row& arguments) {
  return run(others_, Stage::before_commit, doing,
             [&](Connection& connection) { return connection.run(sql, arguments); });
}

}  // namespace fenceguard::mariadb
