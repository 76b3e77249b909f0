#pragma once

// Clients: each a fiber that works by the library's Runner (acquire, advance, its body, again), is paused at
// any step, dies at any step, or is a rogue that comes with a claim of yesterday. What they ask and are told
// goes into the world's history.

#include <memory>
#include <vector>

#include "guard/guard.hpp"
#include "guard/runner.hpp"
#include "tests/proof/simulation/door.hpp"
#include "tests/proof/simulation/sources.hpp"
#include "tests/proof/simulation/world.hpp"

namespace fenceguard::proof {

class Clients {
 public:
  Clients(World& world, SimulatedSource& source, Door& door, int operations_max);
  ~Clients();
  // Each begins at a random moment. They live until the world has run to its end.
  void start(int count);
  // The floor of every resource, as an operation of the history.
  void record_floor(std::int64_t floor);
  [[nodiscard]] bool are_over() const;

 private:
  struct Client;
  class ClientGuard;

  void live(Client& client);
  void work(Client& client);
  void wander(Client& client);
  [[nodiscard]] fenceguard::Verdict body(Client& client, const Lease& lease);
  void pause(Client& client);
  [[nodiscard]] Told ask(Client& client, Kind kind, std::size_t resource, std::optional<Claim> claim);
  [[nodiscard]] Told write_both(Client& client, const Claim& claim);
  [[nodiscard]] Reply ask_door(Client& client, const Question& question);
  void record(Client& client, const Question& question, const Reply& reply, std::int64_t called);
  [[nodiscard]] std::string name_of_holder(const Holder& holder);
  void count(const Question& question, const Told& told);
  [[nodiscard]] Question question_of(Client& client, Kind kind, std::size_t resource,
                                     std::optional<Claim> claim);
  [[nodiscard]] bool is_time_over() const;

  World& world_;
  SimulatedSource& source_;
  Door& door_;
  const int operations_max_;
  int asked_ = 0;
  std::int64_t processes_ = 0;
  int values_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Claim> yesterday_;  // claims of grants, from which rogues choose
  std::map<std::string, std::size_t> holders_;
  std::map<std::string, std::int64_t> highest_admitted_;
};

}  // namespace fenceguard::proof
