#pragma once

// LaneDriver: a LaneTable with a store that is a map, and a clock that stands still. Store calls are answered
// at once, or, while held, one by one as the test says.

#include <deque>
#include <map>
#include <string>

#include "server/lane/lane_table.hpp"

namespace fenceguard::test {

class LaneDriver {
 public:
  static constexpr proxy::Time settle{30'000};

  explicit LaneDriver(proxy::LaneLimits limits = {settle, 1'000, 10'000, 100}) : table{limits} {}

  proxy::Ticket ask(proxy::Kind kind, std::vector<Claim> claims);
  proxy::Ticket write(const std::string& resource, std::int64_t token, std::optional<int> sequence = {},
                      const std::string& holder = "");
  proxy::Ticket advance(const std::string& resource, std::int64_t token);
  proxy::Ticket revoke(const std::string& resource);
  void end(proxy::Ticket ticket, proxy::Ending ending = proxy::Ending::took_effect);
  void end_read(proxy::Ticket ticket);
  bool withdraw(proxy::Ticket ticket);
  void forget_fences();
  // The clock goes on, and the table is told.
  void wait(proxy::Time time);

  // Answers the first call that is held.
  void answer(const std::optional<Fault>& fault = {}, bool is_applied = true);
  void answer_all();
  // Answers the last call that is held.
  void answer_last(const std::optional<Fault>& fault = {});
  // What is held, in words: 'load a', 'raise a 35'.
  [[nodiscard]] std::vector<std::string> calls() const;

  // 'waiting', 'entered', 'left', a verdict, or a kind of fault.
  [[nodiscard]] std::string state(proxy::Ticket ticket) const;
  [[nodiscard]] const Fault& fault(proxy::Ticket ticket) const { return faults_.at(ticket); }
  [[nodiscard]] const proxy::RefusedEvent& refusal(proxy::Ticket ticket) const {
    return refusals_.at(ticket);
  }
  [[nodiscard]] const proxy::EnteredEvent& entry(proxy::Ticket ticket) const { return entries_.at(ticket); }
  // In the order in which they were let in.
  [[nodiscard]] const std::vector<proxy::Ticket>& entered() const { return entered_; }
  [[nodiscard]] static Claim claim(const std::string& resource, std::int64_t token,
                                   std::optional<int> sequence = {}, const std::string& holder = "");

  bool holds = false;     // store calls are held
  bool cuts_off = false;  // old holders are cut off: the store says what is pending
  std::map<std::string, FenceView> store;
  std::map<std::string, std::int64_t> pending_fencing;
  proxy::LaneTable table;
  proxy::Time now{1'000'000};

 private:
  void take(proxy::Actions actions);
  void note(const proxy::Action& action);
  void answer_call(const proxy::Action& call, const std::optional<Fault>& fault, bool is_applied);
  template <class T>
  [[nodiscard]] static Outcome<T> outcome(const std::optional<Fault>& fault, T answer) {
    if (fault) return *fault;
    return answer;
  }

  proxy::Ticket next_ = 1;
  std::deque<proxy::Action> held_;
  bool is_answering_ = false;
  std::map<proxy::Ticket, std::string> states_;
  std::map<proxy::Ticket, Fault> faults_;
  std::map<proxy::Ticket, proxy::RefusedEvent> refusals_;
  std::map<proxy::Ticket, proxy::EnteredEvent> entries_;
  std::vector<proxy::Ticket> entered_;
};

}  // namespace fenceguard::test
