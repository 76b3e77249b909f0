// The lease queue against callers and a source that do anything, in any order, at any time. A resource has
// one step at a time; every ask is answered once; and in the end the source holds no lease but those whose
// answer was delivered.
//
// The input: steps, each a byte and what it needs.

#include <array>
#include <map>
#include <set>

#include "server/leases/lease_queue.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::test {
namespace {

using namespace std::chrono_literals;
using Kind = LeaseQueue::Action::Kind;
using Id = LeaseQueue::AskId;

constexpr std::size_t asks_max = 6;
constexpr std::array resources{"a", "b"};
constexpr std::array holders{"h", "i", "j"};

class Play {
 public:
  explicit Play(Input& input) : input_{input} {}

  void step() {
    switch (input_.below(8)) {
      case 0:
      case 1:
        return arrive();
      case 2:
      case 3:
        return end_step();
      case 4:
        return identify();
      case 5:
        return tell_delivery(input_.chance());
      case 6:
        return leave_or_release();
      default:
        pass(1ms * (input_.byte() * 20));
    }
  }

  // Whatever comes, it is bounded.
  void finish() {
    is_ending_ = true;
    for (int rounds = 0; rounds < 400; ++rounds) {
      while (!steps_.empty()) end_step();
      while (!identifying_.empty()) identify();
      while (!answers_.empty()) tell_delivery(true);
      if (queue_.is_idle() && queue_.asks_open() == 0) break;
      pass(500ms);
    }
    require(queue_.asks_open() == 0, "somebody waits for ever");
    require(queue_.is_idle(), "a step has no end");
    for (const auto& [id, caller] : callers_)
      require(caller.answers == 1 || caller.is_gone, "an ask was not answered once", std::to_string(id));
    for (const auto& [resource, lease] : leases_)
      require(delivered_.contains(lease.token.value()), "a lease that nobody has", resource.name());
  }

 private:
  struct Caller {
    Resource resource;
    Holder holder;
    bool is_gone = false;
    int answers = 0;
  };
  struct Step {
    Resource resource;
    std::optional<Id> ask;  // else a lease is given back
    std::optional<Claim> claim;
  };
  struct Lease {
    Holder holder;
    Token token;
  };

  void arrive() {
    const Resource resource{input_.pick(resources)};
    const bool is_named = input_.chance();
    const Holder holder{is_named ? std::string{input_.pick(holders)} : "drawn" + std::to_string(++drawn_)};
    const auto before = queue_.asks_open();
    const auto id =
        queue_.arrive({resource, holder, is_named, now_ + 1ms * (input_.byte() * 20)}, now_, actions_);
    require(id.has_value() == (before < asks_max), "more asks than may be, or fewer");
    if (id) callers_.emplace(*id, Caller{resource, holder});
    perform();
  }

  void perform() {
    while (!actions_.empty())
      for (const auto& action : std::exchange(actions_, {})) perform(action);
  }

  void perform(const LeaseQueue::Action& action) {
    if (action.kind == Kind::ask) return begin({callers_.at(action.ask).resource, action.ask, {}});
    if (action.kind == Kind::revert) return begin({action.claim->resource, {}, action.claim});
    if (action.kind == Kind::identify) return identifying_.push_back(action.ask);
    answer(action.ask);
  }

  void begin(Step step) {
    for (const auto& other : steps_) require(other.resource != step.resource, "two steps at once");
    steps_.push_back(std::move(step));
  }

  void answer(Id id) { require(++callers_.at(id).answers == 1, "answered twice", std::to_string(id)); }

  void end_step() {
    if (steps_.empty()) return;
    const auto at = input_.below(steps_.size());
    const Step step = steps_[at];
    steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(at));
    if (step.ask) {
      end_ask(*step.ask);
    } else {
      give_back(*step.claim);
      queue_.reverted(step.resource, now_, actions_);
    }
    perform();
  }

  void end_ask(Id id) {
    const auto& caller = callers_.at(id);
    const auto present = leases_.find(caller.resource);
    if (present != leases_.end() && present->second.holder != caller.holder)
      return queue_.held(id, 1ms * input_.byte(), now_, actions_);
    if (!is_ending_ && input_.below(8) == 0) {
      answer(id);
      return queue_.failed(id, now_, actions_);
    }
    const bool is_new = present == leases_.end();
    if (is_new) leases_.emplace(caller.resource, Lease{caller.holder, Token{++last_token_}});
    const Claim claim{caller.resource, leases_.at(caller.resource).token, caller.holder, {}};
    if (!queue_.granted(id, claim, 10s, now_, actions_, is_new)) return;
    answer(id);
    answers_.emplace_back(id, claim.token);
  }

  void give_back(const Claim& claim) {
    const auto present = leases_.find(claim.resource);
    if (present == leases_.end() || present->second.token != claim.token) return;
    require(!delivered_.contains(claim.token.value()), "a lease that was delivered is taken back",
            claim.resource.name());
    leases_.erase(present);
  }

  void identify() {
    if (identifying_.empty()) return;
    const auto id = identifying_.front();
    identifying_.erase(identifying_.begin());
    const auto& caller = callers_.at(id);
    const auto lease = leases_.find(caller.resource);
    queue_.identified(id, lease != leases_.end() && lease->second.holder == caller.holder, now_, actions_);
    perform();
  }

  void tell_delivery(bool is_delivered) {
    if (answers_.empty()) return;
    const auto [id, token] = answers_.front();
    answers_.erase(answers_.begin());
    if (is_delivered) {
      delivered_.insert(token.value());
      queue_.delivered(id, now_, actions_);
    } else {
      queue_.undelivered(id, now_, actions_);
    }
    perform();
  }

  void leave_or_release() {
    if (input_.chance()) {
      for (auto& [id, caller] : callers_) {
        if (caller.answers > 0 || caller.is_gone) continue;
        caller.is_gone = true;
        queue_.gone(id, now_, actions_);
        return perform();
      }
    }
    for (auto lease = leases_.begin(); lease != leases_.end(); ++lease) {
      if (!delivered_.contains(lease->second.token.value())) continue;
      const auto resource = lease->first;
      leases_.erase(lease);
      queue_.released(resource, now_, actions_);
      return perform();
    }
  }

  void pass(LeaseQueue::Duration time) {
    const auto until = now_ + time;
    for (int wakes = 0;; ++wakes) {
      const auto wake = queue_.wake_at();
      if (!wake || *wake > until) break;
      require(wakes < 10'000, "it never rests");
      now_ = std::max(now_, *wake);
      queue_.tick(now_, actions_);
      perform();
    }
    now_ = until;
    queue_.tick(now_, actions_);
    perform();
  }

  Input& input_;
  LeaseQueue queue_{asks_max};
  LeaseQueue::Time now_{std::chrono::hours{1}};
  LeaseQueue::Actions actions_;
  std::map<Id, Caller> callers_;
  std::vector<Step> steps_;
  std::vector<Id> identifying_;
  std::vector<std::pair<Id, Token>> answers_;  // on their way
  std::map<Resource, Lease> leases_;
  std::set<std::int64_t> delivered_;
  std::int64_t last_token_ = 0;
  int drawn_ = 0;
  bool is_ending_ = false;
};

}  // namespace
}  // namespace fenceguard::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 512) return -1;
  fenceguard::test::Input input{data, size};
  fenceguard::test::Play play{input};
  while (!input.empty()) play.step();
  play.finish();
  return 0;
}
