#pragma once

// LaneGuard: the real LaneTable in one guard process that may die at any step, a state that answers late,
// fails, and may be lost or old after a crash, and an upstream that knows nothing of tokens: it applies what
// it was sent late, in any order or never, within the settle time after nobody waits for it any more.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "server/lane/lane_table.hpp"
#include "tests/proof/simulation/door.hpp"
#include "tests/proof/simulation/fences.hpp"
#include "tests/proof/simulation/world.hpp"

namespace fenceguard::proof {

class LaneGuard : public Door {
 public:
  // drawn: the highest number that the source has issued, for a state that was lost. record_floor: the floor
  // was raised, as an operation of the history.
  LaneGuard(World& world, std::function<std::int64_t()> drawn,
            std::function<void(std::int64_t floor)> record_floor);
  void ask(Question question, std::function<void(Reply)> done) override;
  void raise_floor(std::int64_t floor) override;
  [[nodiscard]] std::int64_t highest() const override { return fences_.highest(); }

 private:
  static constexpr std::int64_t settle_ms = 100;

  struct Asked {
    Question question;
    std::function<void(Reply)> done;
    int life = 0;
    std::vector<Ruling> rulings;  // as it was let in
    std::optional<std::int64_t> apply_at;
    bool is_applied = false;
    bool is_over = false;  // nobody waits for its end
    proxy::Ending ending = proxy::Ending::unknown;
  };

  void arrive(Question question, std::function<void(Reply)> done);
  void forward(proxy::Ticket ticket);
  void apply(proxy::Ticket ticket);
  void end(proxy::Ticket ticket, proxy::Ending ending);
  void look(proxy::Ticket ticket);
  void judge_again(proxy::Ticket ticket, TextId value);
  void crash();
  void start();

  void feed(const std::function<void(proxy::Actions&)>& event);
  void take(const proxy::Actions& actions);
  void let_in(const proxy::EnteredEvent& entered);
  void answer(proxy::Ticket ticket, Reply reply);
  void answer_fault(proxy::Ticket ticket, const Fault& fault);
  void left(const proxy::LeftEvent& left);
  void ask_state(const proxy::Action& action);
  [[nodiscard]] Outcome<Ruling> raise(const proxy::Raise& raise);
  template <class T, class Apply, class Answer>
  void call_state(Apply apply, Answer answer);
  [[nodiscard]] proxy::Time now() const { return proxy::Time{world_.now_ms()}; }

  World& world_;
  const std::function<std::int64_t()> drawn_;
  const std::function<void(std::int64_t)> record_floor_;
  std::optional<proxy::LaneTable> table_;
  int life_ = 0;
  bool is_marked_ = false;
  std::optional<Fences> backup_;
  Fences fences_;
  std::int64_t state_at_ms_ = 0;  // it answers in order
  std::map<std::string, TextId> values_;
  std::map<proxy::Ticket, Asked> asked_;
  proxy::Ticket next_ = 1;
};

}  // namespace fenceguard::proof
