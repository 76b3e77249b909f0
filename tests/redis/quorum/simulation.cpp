#include "tests/redis/quorum/simulation.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <queue>
#include <variant>
#include <vector>

#include "adapters/redis/quorum/attempt.hpp"
#include "adapters/redis/quorum/raise.hpp"

namespace fenceguard::test {
namespace {

using namespace redis::quorum;

// splitmix64 (Steele, Lea, Flood): small, fast, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed} {}
  // 0 to below.
  int operator()(int below) { return static_cast<int>(next() % static_cast<std::uint64_t>(below)); }
  bool percent(int chance) { return (*this)(100) < chance; }

 private:
  std::uint64_t next() {
    auto z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

const char* name_of(Request::What what) {
  static constexpr const char* names[] = {"ask",  "confirm", "extend", "withdraw", "renew", "release",
                                          "show", "prepare", "freeze", "lift",     "found", "draw"};
  return names[static_cast<int>(what)];
}

const char* name_of(Answer::Kind kind) {
  static constexpr const char* names[] = {"granted", "mine",   "held",     "confirmed",
                                          "refused", "marked", "unmarked", "silent"};
  return names[static_cast<int>(kind)];
}

struct Event {
  enum class Kind { request, answer, time_out, act, crash, restart, early_end };
  std::int64_t at_ms = 0;
  int order = 0;
  Kind kind = Kind::act;
  std::size_t node = 0;
  std::size_t client = 0;
  int call = 0;             // the client's call that it belongs to
  int round = 0;            // of a time-out
  bool forgets = false;     // of a restart
  std::size_t content = 0;  // of the message, in its pool

  // The next event is the top of a heap.
  bool operator<(const Event& other) const {
    return at_ms != other.at_ms ? at_ms > other.at_ms : order > other.order;
  }
};

// How rough a history is.
struct Weather {
  int loss, doubling, late;  // of a message, in percent
  int late_ms;
  int crashes;
  int down_ms;
  int forgetting;  // of a restart, in percent
  int early_ends;  // of a hold, in percent
  int spread;      // of the counters at the start
  int round_ms;    // what a client waits for answers
  int pause_ms;    // what a client waits between two calls
  int resources;
  int nodes;  // 0: any number
};

constexpr Weather weathers[] = {
    {1, 5, 10, 30, 0, 1, 0, 3, 12, 8, 15, 2, 0},      // fair
    {3, 35, 30, 60, 0, 1, 0, 5, 12, 8, 10, 2, 0},     // everything twice
    {8, 15, 20, 50, 3, 60, 0, 3, 12, 8, 10, 2, 0},    // nodes come and go
    {4, 15, 25, 60, 3, 60, 100, 3, 12, 8, 10, 2, 0},  // and forget
    {2, 60, 30, 8, 0, 1, 0, 40, 2, 8, 3, 1, 3},       // holds end while their attempt is under way
    {2, 60, 30, 8, 0, 1, 0, 40, 2, 8, 3, 1, 3},       //
    {1, 10, 30, 12, 1, 2, 100, 3, 20, 14, 6, 1, 3},   // and nodes forget what they answered to it
    {1, 10, 30, 12, 2, 2, 100, 3, 20, 14, 6, 1, 5},   //
};

struct Client {
  std::variant<std::monostate, Attempt, Raise, Draw> machine;
  int call = 0;
  int round = 0;
  int began = 0;  // order of the event
  std::int64_t began_ms = 0;
  std::string resource, holder;
  std::int64_t ttl_ms = 0;
  std::int64_t token = 0;  // 0: holds nothing
};

struct Fact {
  enum class Kind { grant, raise, draw };
  Kind kind;
  std::string resource, holder;
  std::int64_t number;
  int began, done;
};

class World {
 public:
  World(std::uint64_t seed, Flaws flaws, bool is_traced)
      : random_{seed}, weather_{weathers[random_(std::size(weathers))]}, is_traced_{is_traced} {
    static constexpr std::size_t sizes[] = {3, 3, 3, 3, 5, 5, 4, 2};
    const auto size = sizes[random_(std::size(sizes))];
    nodes_.assign(weather_.nodes != 0 ? weather_.nodes : size, ModelNode{flaws});
    is_up_.assign(nodes_.size(), true);
    for (auto& node : nodes_) node.found("first", random_(weather_.spread));
    clients_.resize(2 + random_(3));
    resources_ = 1 + random_(weather_.resources);
    for (std::size_t i = 0; i < clients_.size(); ++i) act_later(i, random_(10));
    for (int i = 0; i < weather_.crashes; ++i)
      push({.at_ms = random_(span_ms), .kind = Event::Kind::crash, .node = any_node()});
  }

  History run() {
    while (!events_.empty() && history_.violation.empty()) {
      const auto event = events_.top();
      events_.pop();
      now_ms_ = event.at_ms;
      ++order_;
      happen(event);
    }
    return std::move(history_);
  }

 private:
  static constexpr int span_ms = 120;

  std::size_t any_node() { return static_cast<std::size_t>(random_(static_cast<int>(nodes_.size()))); }
  std::string any_resource() { return random_(resources_) == 0 ? "r" : "s"; }

  void push(Event event) {
    event.order = ++pushed_;
    events_.push(event);
  }

  void act_later(std::size_t client, std::int64_t after_ms) {
    if (now_ms_ + after_ms > span_ms) return;
    push({.at_ms = now_ms_ + after_ms,
          .kind = Event::Kind::act,
          .client = client,
          .call = clients_[client].call});
  }

  template <class... Words>
  void note(fmt::format_string<Words...> text, Words&&... words) {
    if (!is_traced_) return;
    history_.trace += fmt::format("{:4} ms  {}\n", now_ms_, fmt::format(text, std::forward<Words>(words)...));
  }

  // Through the network: lost, late, or twice.
  void transmit(Event event) {
    for (int copies = random_.percent(weather_.doubling) ? 2 : 1; copies > 0; --copies) {
      if (random_.percent(weather_.loss)) continue;
      const bool is_late = random_.percent(weather_.late);
      event.at_ms = now_ms_ + random_(is_late ? weather_.late_ms : 3);
      push(event);
    }
  }

  void transmit(std::size_t client, const Sends& sends) {
    for (const auto& send : sends) {
      requests_.push_back(*send.request);
      transmit(Event{.kind = Event::Kind::request,
                     .node = send.node,
                     .client = client,
                     .call = clients_[client].call,
                     .content = requests_.size() - 1});
    }
  }

  void happen(const Event& event) {
    switch (event.kind) {
      case Event::Kind::request:
        return arrive(event);
      case Event::Kind::answer:
        return answer(event);
      case Event::Kind::time_out:
        if (clients_[event.client].call == event.call && clients_[event.client].round == event.round)
          step(event.client, nullptr, 0);
        return;
      case Event::Kind::act:
        if (clients_[event.client].call == event.call) act(event.client);
        return;
      case Event::Kind::crash:
        note("node {} crashes", event.node);
        is_up_[event.node] = false;
        return push({.at_ms = now_ms_ + random_(60),
                     .kind = Event::Kind::restart,
                     .node = event.node,
                     .forgets = random_.percent(weather_.forgetting)});
      case Event::Kind::restart:
        note("node {} is back{}", event.node, event.forgets ? ", and forgot everything" : "");
        is_up_[event.node] = true;
        if (event.forgets) forget(event.node);
        return;
      case Event::Kind::early_end:
        return nodes_[event.node].expire(requests_[event.content].resource);
    }
  }

  void forget(std::size_t node) {
    nodes_[node].forget();
    have_forgotten_ = true;
    // Somebody notices soon.
    const auto client = static_cast<std::size_t>(random_(static_cast<int>(clients_.size())));
    raise(client);
  }

  void arrive(const Event& event) {
    if (!is_up_[event.node]) return;
    const auto& request = requests_[event.content];
    const auto said = nodes_[event.node].handle(request, {now_ms_, 1'000'000'000 + order_ * 1000LL});
    note("node {}: client {} call {}: {} {} {} {}({}): {} {} {}", event.node, event.client, event.call,
         name_of(request.what), request.resource, request.holder, request.number, request.answered,
         name_of(said.kind), said.number, said.epoch);
    if (said.kind == Answer::Kind::granted && random_.percent(weather_.early_ends)) {
      auto end = event;
      end.kind = Event::Kind::early_end;
      end.at_ms = now_ms_ + random_(5);
      push(end);
    }
    answers_.push_back(said);
    auto back = event;
    back.kind = Event::Kind::answer;
    back.content = answers_.size() - 1;
    transmit(back);
  }

  void answer(const Event& event) {
    if (clients_[event.client].call == event.call) step(event.client, &answers_[event.content], event.node);
  }

  // Tells the client's machine an answer, or that the time is over.
  void step(std::size_t index, const Answer* answer, std::size_t node) {
    auto& client = clients_[index];
    const auto elapsed_ms = now_ms_ - client.began_ms;
    Sends sends;
    if (auto* attempt = std::get_if<Attempt>(&client.machine)) {
      sends = answer ? attempt->on_answer(node, *answer, elapsed_ms) : attempt->on_time_out(elapsed_ms);
    } else if (auto* raise = std::get_if<Raise>(&client.machine)) {
      sends = answer ? raise->on_answer(node, *answer) : raise->on_time_out();
    } else if (auto* draw = std::get_if<Draw>(&client.machine)) {
      sends = answer ? draw->on_answer(node, *answer) : draw->on_time_out();
    }
    follow(index, sends);
  }

  void follow(std::size_t index, const Sends& sends) {
    auto& client = clients_[index];
    transmit(index, sends);
    std::visit(
        [&](auto& machine) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(machine)>, std::monostate>) {
            if (machine.is_done()) {
              const auto done = std::move(machine);
              client.machine = std::monostate{};
              ++client.call;
              return finish(index, done);
            }
            if (client.round != machine.round()) {
              client.round = machine.round();
              expect_end_of_round(index);
            }
          }
        },
        client.machine);
  }

  void expect_end_of_round(std::size_t index) {
    push({.at_ms = now_ms_ + weather_.round_ms,
          .kind = Event::Kind::time_out,
          .client = index,
          .call = clients_[index].call,
          .round = clients_[index].round});
  }

  template <class Machine>
  void begin(std::size_t index, Machine machine) {
    auto& client = clients_[index];
    ++client.call;
    client.began = order_;
    client.began_ms = now_ms_;
    client.round = 0;
    const auto sends = machine.start();
    client.machine = std::move(machine);
    expect_end_of_round(index);
    follow(index, sends);
  }

  std::string fresh_word(const char* kind) { return kind + std::to_string(++words_); }

  void act(std::size_t index) {
    auto& client = clients_[index];
    if (client.token != 0) return act_as_holder(index);
    const int choice = random_(100);
    if (choice < (have_forgotten_ ? 25 : 4)) {
      return raise(index);
    }
    if (choice > 95) return begin(index, Draw{nodes_.size()});
    ask(index, client.holder.empty() || random_.percent(70) ? fresh_word("h") : client.holder);
  }

  void raise(std::size_t index) {
    clients_[index].token = 0;
    begin(index, Raise{{nodes_.size(), random_(2) * (highest_ + random_(4)), fresh_word("e")}});
  }

  void ask(std::size_t index, const std::string& holder) {
    auto& client = clients_[index];
    if (client.token == 0) client.resource = any_resource();
    client.holder = holder;
    client.ttl_ms = 12 + random_(40);
    begin(index, Attempt{{nodes_.size(), client.resource, holder, fresh_word("n"), client.ttl_ms}});
  }

  void act_as_holder(std::size_t index) {
    auto& client = clients_[index];
    const int choice = random_(100);
    if (choice < 15) return ask(index, client.holder);
    Request request;
    request.what = choice < 30 ? Request::What::renew : Request::What::release;
    request.resource = client.resource;
    request.holder = client.holder;
    request.number = client.token;
    request.ttl_ms = client.ttl_ms;
    const auto sends = send_to_all(nodes_.size(), request);
    if (choice < 80) transmit(index, sends);  // else it just forgets the lease
    if (request.what == Request::What::release) client.token = 0;
    act_later(index, 1 + random_(weather_.pause_ms));
  }

  void finish(std::size_t index, const Attempt& attempt) {
    auto& client = clients_[index];
    client.token = 0;
    const bool is_again = attempt.ending() == Attempt::Ending::again;
    if (is_again || attempt.ending() == Attempt::Ending::granted) {
      client.token = attempt.token();
      ++(is_again ? history_.tenures_again : history_.grants);
      note("client {} ({}) has {} {}", index, client.holder, client.resource, client.token);
      judge_grant(client, is_again);
    }
    act_later(index, 1 + random_(weather_.pause_ms));
  }

  void finish(std::size_t index, const Raise& raise) {
    if (raise.ending() == Raise::Ending::done) {
      const auto mark = raise.number();
      note("client {} has raised to {}", index, mark);
      ++history_.raises;
      history_.restored += raise.unmarked_count() > 0;
      facts_.push_back({Fact::Kind::raise, {}, {}, mark, clients_[index].began, order_});
    }
    act_later(index, 1 + random_(weather_.pause_ms));
  }

  void finish(std::size_t index, const Draw& draw) {
    const auto& client = clients_[index];
    if (draw.ending() == Draw::Ending::drawn) {
      note("client {} has drawn {}", index, draw.number());
      ++history_.draws;
      for (const auto& fact : facts_) {
        if (fact.kind == Fact::Kind::grant && fact.done < client.began && fact.number > draw.number())
          accuse("a number drawn later than a grant is below it", fact, draw.number());
      }
      facts_.push_back({Fact::Kind::draw, {}, {}, draw.number(), client.began, order_});
    }
    act_later(index, 1 + random_(weather_.pause_ms));
  }

  // is_again: its number was drawn by an earlier attempt of the same holder, so it is only held against the
  // grants of the same lock.
  void judge_grant(const Client& client, bool is_again) {
    highest_ = std::max(highest_, client.token);
    const auto is_of_lock = [&](const Fact& fact) {
      return fact.kind == Fact::Kind::grant && fact.resource == client.resource;
    };
    for (const auto& fact : facts_) {
      if (!is_of_lock(fact) || fact.number != client.token) continue;
      if (fact.holder == client.holder && is_again) continue;
      return accuse("one number was granted twice", fact, client.token);
    }
    for (const auto& fact : facts_) {
      const bool is_itself = is_again && fact.holder == client.holder && fact.number == client.token;
      const bool counts = (!is_again || is_of_lock(fact)) && !is_itself;
      if (counts && fact.done < client.began && fact.number >= client.token)
        return accuse("a later grant is not higher", fact, client.token);
    }
    facts_.push_back({Fact::Kind::grant, client.resource, client.holder, client.token, client.began, order_});
  }

  void accuse(const char* what, const Fact& fact, std::int64_t number) {
    history_.violation =
        fmt::format("{}: {} after {} ({} {})", what, number, fact.number, fact.resource, fact.holder);
    note("{}", history_.violation);
  }

  Random random_;
  const Weather weather_;
  const bool is_traced_;
  std::vector<ModelNode> nodes_;
  std::vector<bool> is_up_;
  std::vector<Client> clients_;
  int resources_ = 1;
  std::priority_queue<Event> events_;
  std::vector<Request> requests_;
  std::vector<Answer> answers_;
  std::vector<Fact> facts_;
  std::int64_t now_ms_ = 0;
  std::int64_t highest_ = 0;
  int order_ = 0;
  int pushed_ = 0;
  int words_ = 0;
  bool have_forgotten_ = false;
  History history_;
};

}  // namespace

History simulate(std::uint64_t seed, Flaws flaws, bool is_traced) {
  return World{seed, flaws, is_traced}.run();
}

}  // namespace fenceguard::test
