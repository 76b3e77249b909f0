#include "adapters/redis/quorum/source.hpp"

#include <fmt/format.h>

#include <atomic>
#include <random>
#include <thread>

#include "adapters/redis/quorum/attempt.hpp"
#include "adapters/redis/quorum/broadcast.hpp"
#include "adapters/redis/quorum/raise.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

using namespace quorum;
using Kind = Answer::Kind;
using What = Request::What;
using Ms = std::chrono::milliseconds;

constexpr std::size_t nodes_max = 15;
constexpr int attempts_max = 24;  // of one call, while several takers are at it
constexpr int raises_max = 8;
constexpr Ms back_off_max{16};
constexpr Ms node_ttl_min{12};  // with what clocks may differ by taken off, still ttl_min
constexpr Ms leftover_wait{50};
constexpr Ms leftover_min{10'000};  // how long a release is tried again, at least

Ms random_up_to(Ms limit) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return Ms{std::uniform_int_distribution<Ms::rep>{0, std::max<Ms::rep>(limit.count(), 1)}(random)};
}

std::int64_t ms_since(BootClock::time_point begin) {
  return std::chrono::ceil<Ms>(BootClock::now() - begin).count();
}

class QuorumSource : public TokenSource {
 public:
  QuorumSource(const Address& address, Ms node_timeout, bool is_unsafe_persistence_fine)
      : node_timeout_{node_timeout} {
    for (const auto& endpoint : address.endpoints) {
      nodes_.push_back(std::make_unique<Node>(
          Node::Options{address.at(endpoint), node_timeout, is_unsafe_persistence_fine}));
    }
    wait_for_majority(BootClock::now() + 2 * address.connect_timeout);
  }

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    require_sensible_ttl(ttl);
    const auto node_ttl = std::max(ttl, node_ttl_min);
    remember(node_ttl);
    for (int tries = 1;; ++tries) {
      Attempt attempt{{nodes_.size(), resource.name(), holder.id(), Holder::random().id(), node_ttl.count()}};
      const auto report = carry_out(attempt, node_ttl);
      const auto left = Ms{attempt.left_ms()};
      switch (attempt.ending()) {
        case Attempt::Ending::granted:
        case Attempt::Ending::again:
          return Grant{{resource, Token{attempt.token()}, holder, std::nullopt},
                       std::min(ttl, counted(node_ttl)),
                       attempt.ending() == Attempt::Ending::granted};
        case Attempt::Ending::held:
          return LockBusy{left};
        case Attempt::Ending::left_over:
          // Of a lease that has just ended: the servers do not end it in the same instant.
          if (tries >= attempts_max || left > leftover_wait) return LockBusy{left};
          std::this_thread::sleep_for(left + Ms{1} + random_up_to(Ms{2}));
          break;
        case Attempt::Ending::contended:
          if (tries >= attempts_max) return LockBusy{random_up_to(back_off_max)};
          std::this_thread::sleep_for(random_up_to(std::min(Ms{tries}, back_off_max)));
          break;
        default:
          raise_failure(fmt::format("taking the lock of '{}'", resource.name()), attempt.ending(), report);
      }
    }
  }

  Renewal renew(const Claim& claim, Ms ttl) override {
    require_sensible_ttl(ttl);
    remember(ttl);
    auto request = request_of(What::renew, claim);
    request.ttl_ms = ttl.count();
    const auto votes = vote(request, limit(ttl));
    if (votes.yes >= majority()) return Renewal::renewed;
    if (votes.yes + votes.open < majority()) return Renewal::lost;
    throw_undecided(fmt::format("renewing the lock of '{}'", claim.resource.name()), votes);
  }

  Release release(const Claim& claim) override {
    const auto request = request_of(What::release, claim);
    const auto votes = vote(request, node_timeout_);
    // Without a majority the lease may live on, and what it has left must not be taken from it later.
    if (votes.yes >= majority()) {
      for (std::size_t node = 0; node < nodes_.size(); ++node) {
        if (votes.round[node].kind == Kind::silent)
          nodes_[node]->later(request, BootClock::now() + leftover());
      }
    }
    if (votes.yes >= majority()) return Release::released;
    if (votes.yes + votes.open < majority()) return Release::not_held;
    throw_undecided(fmt::format("releasing the lock of '{}'", request.resource), votes);
  }

  Release end(const Resource& resource) override {
    // Only the lease that is seen ends, never its successor.
    const auto seen = show(resource);
    return seen ? release(seen->claim) : Release::not_held;
  }

  std::optional<LeaseRecord> show(const Resource& resource) override {
    Request request;
    request.what = What::show;
    request.resource = resource.name();
    const auto votes = vote(request, node_timeout_);
    const auto group = votes.round.largest_group(Kind::held, are_of_one_tenure);
    if (group.size() < majority()) {
      if (group.size() + votes.open < majority()) return std::nullopt;
      throw Unavailable(fmt::format("looking at the lock of '{}': too few servers of the quorum answer{}",
                                    resource.name(), votes.troubles));
    }
    std::vector<std::int64_t> lefts;
    for (const auto node : group) lefts.push_back(votes.round[node].left_ms);
    std::ranges::sort(lefts, std::greater{});
    const auto& answer = votes.round[group.front()];
    return LeaseRecord{{resource, Token{answer.number}, Holder{answer.holder}, std::nullopt},
                       Ms{lefts[majority() - 1]}};
  }

  void raise(const Resource&, Token mark) override { raise_to(mark.value()); }

  Token draw() override {
    for (int tries = 1;; ++tries) {
      Draw draw{nodes_.size()};
      const auto report = carry_out(draw, 4 * node_timeout_);
      if (draw.ending() == Draw::Ending::drawn) return Token{draw.number()};
      if (draw.ending() == Draw::Ending::short_of_votes || tries >= raises_max)
        raise_shortage("drawing a number", report);
      raise_to(0);
    }
  }

  std::optional<Token> lowest_live() override { return std::nullopt; }

 private:
  // What a call met, for its error.
  struct Report {
    std::size_t unmarked_count = 0;
    std::size_t unknown_count = 0;  // asked, and silent
    std::string troubles;
  };

  struct Votes {
    Round round;
    std::size_t yes = 0;
    std::size_t open = 0;     // silent
    std::size_t unknown = 0;  // of those, the ones that were asked
    std::string troubles;
  };

  [[nodiscard]] std::size_t majority() const { return majority_of(nodes_.size()); }
  [[nodiscard]] Ms limit(Ms ttl) const { return std::min(std::max(ttl / 4, Ms{2}), node_timeout_); }

  void remember(Ms ttl) {
    auto longest = longest_ttl_ms_.load();
    while (longest < ttl.count() && !longest_ttl_ms_.compare_exchange_weak(longest, ttl.count())) {
    }
  }
  [[nodiscard]] Ms leftover() const { return std::max(Ms{longest_ttl_ms_.load()}, leftover_min); }

  static Request request_of(What what, const Claim& claim) {
    Request request;
    request.what = what;
    request.resource = claim.resource.name();
    request.holder = claim.holder.id();
    request.number = claim.token.value();
    return request;
  }

  void wait_for_majority(BootClock::time_point until) {
    for (const auto& node : nodes_) node->wait_until_known(until);
    std::size_t in_count = 0;
    std::string reasons;
    for (const auto& node : nodes_) {
      if (node->state() == Node::State::in) ++in_count;
      if (node->state() == Node::State::unfit) throw Unavailable(node->reason());
      if (node->state() != Node::State::in) reasons += "; " + node->reason();
    }
    if (in_count >= majority()) return;
    throw Unavailable(fmt::format("{} of {} servers of the quorum can be reached, and {} are needed{}",
                                  in_count, nodes_.size(), majority(), reasons));
  }

  // What LeaseTerm, which ends a tenth early, may count on: not what the servers' clocks may differ by.
  static Ms counted(Ms node_ttl) { return Ms{(node_ttl.count() - drift_ms(node_ttl.count()) - 1) * 10 / 9}; }

  // A silent node may keep a hold that is no part of a lease.
  static bool may_be_left(What what) { return what == What::withdraw || what == What::confirm; }

  template <class Machine>
  static std::int64_t token_granted(const Machine& machine) {
    if constexpr (std::is_same_v<Machine, Attempt>)
      return machine.ending() == Attempt::Ending::granted ? machine.token() : 0;
    return 0;
  }

  // token: of the lease that was granted, whose holds stay; 0: none.
  void withdraw_later(const Sends& left, std::int64_t token, BootClock::time_point until) {
    for (const auto& [node, request] : left) {
      auto withdrawal = *request;
      withdrawal.what = What::withdraw;
      withdrawal.number = token;
      nodes_[node]->later(std::move(withdrawal), until);
    }
  }

  // Lets the machine talk to the nodes until it is done, and what it sent last be answered.
  template <class Machine>
  Report carry_out(Machine& machine, Ms ttl) {
    const auto begin = BootClock::now();
    Broadcast broadcast{nodes_, limit(ttl)};
    std::vector<std::shared_ptr<const Request>> unanswered(nodes_.size());
    const auto send = [&](Sends sends) {
      if (sends.empty()) return;
      for (const auto& one : sends) unanswered[one.node] = one.request;
      broadcast.send(sends);
    };
    Report report;
    Sends left;
    send(machine.start());
    while (auto event = broadcast.next()) {
      const auto& request = unanswered[event->node];
      if (event->answer.kind == Kind::unmarked) ++report.unmarked_count;
      if (event->answer.kind == Kind::silent && may_be_left(request->what)) {
        left.push_back({event->node, request});
      }
      if constexpr (std::is_same_v<Machine, Attempt>) {
        send(machine.on_answer(event->node, std::move(event->answer), ms_since(begin)));
      } else {
        send(machine.on_answer(event->node, std::move(event->answer)));
      }
    }
    withdraw_later(left, token_granted(machine), begin + ttl + Ms{drift_ms(ttl.count())});
    for (std::size_t node = 0; node < nodes_.size(); ++node)
      report.unknown_count += broadcast.is_unknown(node);
    report.troubles = broadcast.troubles();
    return report;
  }

  // Asks all nodes one thing.
  Votes vote(const Request& request, Ms limit) {
    Votes votes{.round = Round{nodes_.size()}, .troubles = {}};
    const auto sends = send_to_all(nodes_.size(), request);
    votes.round.begin(sends);
    Broadcast broadcast{nodes_, limit};
    broadcast.send(sends);
    while (auto event = broadcast.next()) votes.round.take(event->node, std::move(event->answer));
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      const auto kind = votes.round[node].kind;
      if (kind == Kind::confirmed || kind == Kind::held) ++votes.yes;
      if (kind != Kind::silent) continue;
      ++votes.open;
      votes.unknown += broadcast.is_unknown(node);
    }
    votes.troubles = broadcast.troubles();
    return votes;
  }

  [[noreturn]] void throw_undecided(const std::string& doing, const Votes& votes) const {
    const auto text = fmt::format("{}: too few servers of the quorum answer{}", doing, votes.troubles);
    if (votes.yes + votes.unknown > 0) throw OutcomeUnknown(text);
    throw Unavailable(text);
  }

  // What was granted is being withdrawn; it stands only where a majority may hold it unheard.
  [[noreturn]] void raise_failure(const std::string& doing, Attempt::Ending ending,
                                  const Report& report) const {
    if (ending == Attempt::Ending::too_late) {
      throw Unavailable(fmt::format(
          "{}: the servers answered when the time to live was over; ask for a longer one", doing));
    }
    raise_shortage(doing, report);
  }

  [[noreturn]] void raise_shortage(const std::string& doing, const Report& report) const {
    std::string text = fmt::format("{}: too few of the {} servers of the quorum can vote, {} are needed",
                                   doing, nodes_.size(), majority());
    if (report.unmarked_count > 0) {
      text += fmt::format(
          "; {} of them forgot their state or never had any: run 'fenceguard fence init' once for a "
          "new quorum, or 'fenceguard lease raise' to let them vote again",
          report.unmarked_count);
    }
    text += report.troubles;
    if (report.unknown_count >= majority()) throw OutcomeUnknown(text);
    throw Unavailable(text);
  }

  void raise_to(std::int64_t mark) {
    for (int tries = 1;; ++tries) {
      Raise raise{{nodes_.size(), mark, Holder::random().id()}};
      const auto report = carry_out(raise, 4 * node_timeout_);
      if (raise.ending() == Raise::Ending::done) return;
      if (raise.ending() == Raise::Ending::short_of_votes || tries >= raises_max) {
        throw Unavailable(
            fmt::format("raising the counters of the quorum: {} of {} servers answer with their state and {} "
                        "without; the "
                        "latter are let in from a majority of the others, or where all answer{}",
                        raise.marked_count(), nodes_.size(), raise.unmarked_count(), report.troubles));
      }
      std::this_thread::sleep_for(random_up_to(back_off_max));
    }
  }

  const Ms node_timeout_;
  std::atomic<Ms::rep> longest_ttl_ms_{0};
  Nodes nodes_;
};

}  // namespace

std::unique_ptr<TokenSource> open_quorum_source(const Url& url) {
  const auto address = address_of(url, {"node_timeout", "unsafe_persistence"});
  const auto node_timeout = url.duration("node_timeout", Ms{50}, Ms{1}, Ms{60'000});
  const bool is_unsafe_persistence_fine = url.flag("unsafe_persistence", false);
  auto distinct = address.endpoints;
  std::ranges::sort(distinct);
  if (std::ranges::adjacent_find(distinct) != distinct.end())
    throw InvalidInput("a redis-quorum: URL names one server twice, and each has one vote");
  if (distinct.size() > nodes_max || distinct.front().host.empty())
    throw InvalidInput("a redis-quorum: URL names 1 to 15 servers by host and port");
  return std::make_unique<QuorumSource>(address, node_timeout, is_unsafe_persistence_fine);
}

}  // namespace fenceguard::redis
