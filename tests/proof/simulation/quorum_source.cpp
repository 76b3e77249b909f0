#include <vector>

#include "adapters/redis/quorum/attempt.hpp"
#include "adapters/redis/quorum/raise.hpp"
#include "tests/proof/simulation/sources.hpp"
#include "tests/redis/quorum/model.hpp"

namespace fenceguard::proof {

using namespace redis::quorum;
using NodeAnswer = redis::quorum::Answer;
using test::ModelNode;

constexpr std::int64_t year_ms = 365LL * 24 * 3600 * 1000;

class QuorumSource : public SimulatedSource {
 public:
  QuorumSource(World& world, std::int64_t first_token) : SimulatedSource{world} {
    nodes_.resize(world.random.percent(70) ? 3 : 5);
    for (auto& node : nodes_) node.model.found("first", first_token - 1 + world.random(3));
  }

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                            std::chrono::milliseconds ttl) override {
    upset_a_node();
    if (must_found_) found_again();
    const std::int64_t granted_before = issued();
    Attempt attempt{{nodes_.size(), resource.name(), holder.id(), fresh_word("n"), ttl.count()}};
    drive(attempt);
    const auto ending = attempt.ending();
    if (ending == Attempt::Ending::granted || ending == Attempt::Ending::again) {
      // Where a majority has forgotten, a raise goes by the clocks.
      if (ending == Attempt::Ending::granted && !has_forgotten_ && attempt.token() <= granted_before) {
        world_.source_violation = "the quorum granted " + std::to_string(attempt.token()) + " after " +
                                  std::to_string(granted_before);
      }
      note_grant(attempt.token());
      return Grant{{resource, Token{attempt.token()}, holder, std::nullopt},
                   ttl,
                   ending == Attempt::Ending::granted,
                   BootClock::time_point{}};
    }
    return LockBusy{std::chrono::milliseconds{std::max<std::int64_t>(1, attempt.left_ms())}};
  }

  Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override {
    return at_majority(Request::What::renew, claim, ttl.count()) ? Renewal::renewed : Renewal::lost;
  }

  Release release(const Claim& claim) override {
    if (is_caller_dead()) return Release::not_held;
    return at_majority(Request::What::release, claim, 0) ? Release::released : Release::not_held;
  }

  void raise(const Resource&, Token mark) override {
    redis::quorum::Raise raise{{nodes_.size(), mark.value(), fresh_word("e")}};
    drive(raise);
    if (raise.ending() != redis::quorum::Raise::Ending::done) throw OutcomeUnknown{"not raised"};
    ++world_.counts.raises;
  }

  Token draw() override { return Token{issued() + 1}; }

 private:
  struct Node {
    ModelNode model;
    std::int64_t clock_ms = 0;  // how far it jumped
    bool is_up = true;
  };

  std::string fresh_word(const char* kind) { return kind + std::to_string(++words_); }

  // A node crashes for a while, and may have forgotten everything; or its clock jumps by a year.
  void upset_a_node() {
    Node& node = nodes_[static_cast<std::size_t>(world_.random(static_cast<int>(nodes_.size())))];
    if (happens(world_.weather.clock_jump)) {
      ++world_.counts.clock_jumps;
      node.clock_ms += world_.random.percent(50) ? year_ms : -year_ms;
    }
    if (!node.is_up || !happens(world_.weather.source_fault)) return;
    ++world_.counts.source_faults;
    node.is_up = false;
    world_.after(world_.random(60), [this, &node] {
      node.is_up = true;
      if (!happens(30)) return;
      node.model.forget();
      has_forgotten_ = true;
      must_found_ = true;
    });
  }

  // Some administrator notices soon that a node has forgotten its state.
  void found_again() {
    must_found_ = false;
    redis::quorum::Raise raise{{nodes_.size(), 0, fresh_word("e")}};
    drive(raise);
    must_found_ |= raise.ending() != redis::quorum::Raise::Ending::done;
  }

  template <class Machine>
  Sends tell(Machine& machine, std::size_t node, const NodeAnswer& answer, std::int64_t elapsed_ms) {
    if constexpr (std::is_same_v<Machine, Attempt>) {
      return machine.on_answer(node, answer, elapsed_ms);
    } else {
      return machine.on_answer(node, answer);
    }
  }

  // Blocks until the machine is done. Answers that come later find nobody.
  template <class Machine>
  void drive(Machine& machine) {
    const auto mailbox = std::make_shared<std::vector<std::pair<std::size_t, NodeAnswer>>>();
    const auto bell = std::make_shared<std::function<void(bool)>>();
    const std::int64_t began_ms = world_.now_ms();
    transmit(machine.start(), mailbox, bell);
    int round = machine.round();
    std::int64_t until_ms = world_.now_ms() + round_ms;
    while (!machine.is_done()) {
      if (mailbox->empty()) {
        (void)world_.await<bool>(std::max<std::int64_t>(0, until_ms - world_.now_ms()),
                                 [&](std::function<void(bool)> done) { *bell = std::move(done); });
        *bell = nullptr;
      }
      const std::int64_t elapsed_ms = world_.now_ms() - began_ms;
      Sends sends;
      if (!mailbox->empty()) {
        const auto [node, answer] = mailbox->front();
        mailbox->erase(mailbox->begin());
        sends = tell(machine, node, answer, elapsed_ms);
      } else if (world_.now_ms() >= until_ms) {
        if constexpr (std::is_same_v<Machine, Attempt>) {
          sends = machine.on_time_out(elapsed_ms);
        } else {
          sends = machine.on_time_out();
        }
      }
      transmit(sends, mailbox, bell);
      if (machine.round() == round) continue;
      round = machine.round();
      until_ms = world_.now_ms() + round_ms;
    }
  }

  using Mailbox = std::shared_ptr<std::vector<std::pair<std::size_t, NodeAnswer>>>;
  using Bell = std::shared_ptr<std::function<void(bool)>>;

  void transmit(const Sends& sends, const Mailbox& mailbox, const Bell& bell) {
    for (const auto& send : sends) {
      world_.send(true, [this, send, mailbox, bell] {
        Node& node = nodes_[send.node];
        if (!node.is_up) return;
        const std::int64_t now_ms = year_ms * 10 + world_.now_ms() + node.clock_ms;
        const NodeAnswer answer = node.model.handle(*send.request, {now_ms, world_.now_ms() * 1000});
        world_.send(true, [at = send.node, answer, mailbox, bell] {
          mailbox->emplace_back(at, answer);
          if (*bell) (*bell)(true);
        });
      });
    }
  }

  bool at_majority(Request::What what, const Claim& claim, std::int64_t ttl_ms) {
    Request request;
    request.what = what;
    request.resource = claim.resource.name();
    request.holder = claim.holder.id();
    request.number = claim.token.value();
    request.ttl_ms = ttl_ms;
    const auto mailbox = std::make_shared<std::vector<std::pair<std::size_t, NodeAnswer>>>();
    const auto bell = std::make_shared<std::function<void(bool)>>();
    transmit(send_to_all(nodes_.size(), request), mailbox, bell);
    world_.sleep(round_ms);
    std::vector<bool> confirmed(nodes_.size());
    for (const auto& [node, answer] : *mailbox) confirmed[node] = answer.kind == NodeAnswer::Kind::confirmed;
    return static_cast<std::size_t>(std::ranges::count(confirmed, true)) >= majority_of(nodes_.size());
  }

  static constexpr std::int64_t round_ms = 12;
  std::vector<Node> nodes_;
  int words_ = 0;
  bool must_found_ = false;
  bool has_forgotten_ = false;  // some node, at some time
};

std::unique_ptr<SimulatedSource> quorum_source(World& world, std::int64_t first_token) {
  return std::make_unique<QuorumSource>(world, first_token);
}

std::optional<Grant> SimulatedSource::wait_acquire(const Resource& resource, const Holder& holder,
                                                   const AcquireOptions& options) {
  const std::int64_t until_ms = world_.now_ms() + options.wait.count();
  for (;;) {
    auto answer = try_acquire(resource, holder, options.ttl);
    if (auto* grant = std::get_if<Grant>(&answer)) {
      grant->ttl = std::chrono::hours{1};
      grant->asked_at = BootClock::now();
      return std::move(*grant);
    }
    if (world_.now_ms() >= until_ms) return std::nullopt;
    const auto left_ms = std::get<LockBusy>(answer).retry_after.count();
    world_.sleep(std::clamp<std::int64_t>(left_ms, 1, 20));
  }
}

}  // namespace fenceguard::proof
