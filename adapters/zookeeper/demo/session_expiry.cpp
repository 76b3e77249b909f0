#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "adapters/zookeeper/demo/account.hpp"
#include "adapters/zookeeper/demo/stories.hpp"
#include "guard/clock.hpp"
#include "guard/error.hpp"

namespace fenceguard::zookeeper::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds timeout_of_a{3'000};
constexpr std::chrono::milliseconds timeout_of_b{30'000};
constexpr std::chrono::milliseconds ask_again{100};
constexpr std::chrono::milliseconds loss_limit{8'000};
constexpr std::chrono::milliseconds look_again{10};
constexpr const char* lane_a = "client A";
constexpr const char* lane_b = "client B";
constexpr const char* server_lane = "ZooKeeper";
constexpr const char* held = "held";
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

std::unique_ptr<AccountClient> make_client(bool guarded, const std::string& url, const std::string& who,
                                           std::chrono::milliseconds session_timeout) {
  return guarded ? fenced_client(url, who, session_timeout) : plain_client(url, who, session_timeout);
}

// Client A, which is a process: one word a line, and one line of answer.
class ProcessA {
 public:
  ProcessA(Stage& stage, const Server& server, bool guarded)
      : process_{stage.start(
            {.arguments = {"demo-actor", "session-expiry", server.url(), guarded ? "through" : "round"}})} {}

  std::string ask(const std::string& line) {
    process_->send_line(line);
    return process_->receive_line();
  }
  std::string take() {
    const auto token = ask("take");
    if (token == held) throw Unavailable("a free lock was not granted to A");
    return token;
  }
  std::int64_t read() {
    const auto balance = parse_decimal(ask("read"));
    if (!balance) throw Unavailable("A was not let in to read");
    return *balance;
  }
  // To be answered when it can.
  void tell(const std::string& line) { process_->send_line(line); }
  std::string hear() { return process_->receive_line(); }

  void pause() { process_->pause(); }
  void resume() { process_->resume(); }

 private:
  std::unique_ptr<StageProcess> process_;
};

std::string sum_text(std::int64_t base, std::int64_t add) {
  return fmt::format("writes {} + {} = {}", base, add, base + add);
}

std::string word_for(const Written& written) {
  return fmt::format("{} {} {}", to_string(written.verdict), written.before, written.highest);
}

// What A answered to 'write'.
struct Late {
  std::string verdict;
  std::int64_t before = 0;
  std::int64_t highest = 0;
};

Late late_from(const std::string& line) {
  Late late;
  if (!(std::istringstream{line} >> late.verdict >> late.before >> late.highest))
    throw Unavailable("client A says: " + line);
  return late;
}

class Story {
 public:
  Story(Stage& stage, bool guarded) : stage_{stage}, guarded_{guarded}, server_{stage} {
    open_account(server_, 100);
    if (guarded) initialise_fences(server_);
  }

  TaleEnd tell() {
    ProcessA a{stage_, server_, guarded_};
    const auto b = make_client(guarded_, server_.url(), "B", timeout_of_b);
    start(a);
    pause(a);
    take_over(*b);
    resume(a);
    if (guarded_) go_on(a, *b);
    return end();
  }

 private:
  void start(ProcessA& a) {
    token_a_ = a.take();
    note_lock(lane_a, token_a_);
    base_a_ = a.read();
    note_read(lane_a, base_a_, token_a_);
  }

  void pause(ProcessA& a) {
    a.pause();
    paused_at_ = BootClock::now();
    note(lane_a, "PAUSED by SIGSTOP, in the middle of its work", Tone::pause);
  }

  // B asks again and again instead of waiting in one call, so that a signal ends the story at once.
  void take_over(AccountClient& b) {
    auto taken = b.take();
    b_has_waited_ = !taken;
    stage_.note({.who = lane_b,
                 .what = "asks for the lock",
                 .where = server_lane,
                 .answer = taken ? "it is free" : "A holds it"});
    stage_.wait_until(
        [&] {
          if (!taken) stage_.wait(ask_again);
          return taken || (taken = b.take());
        },
        "an end of A's session");
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(BootClock::now() - paused_at_);
    note(server_lane,
         fmt::format("A's session, of {} ms, has expired, as seen {} ms after the pause: its node is gone",
                     timeout_of_a.count(), since.count()),
         Tone::pause);
    token_b_ = *taken;
    note_lock(lane_b, token_b_);
    const auto base = b.read();
    if (!base) throw Unavailable("the claim of B was refused");
    note_read(lane_b, *base, token_b_);
    const auto written = b.write(*base + add_b);
    verdict_b_ = written.verdict;
    stage_.note({.who = lane_b,
                 .what = sum_text(*base, add_b) + under(token_b_),
                 .where = server_lane,
                 .answer = fmt::format("{} is stored", *base + add_b)});
  }

  // The word is there before A wakes, so that writing is the first thing that it does.
  void resume(ProcessA& a) {
    a.tell(fmt::format("write {}", base_a_ + add_a));
    a.resume();
    note(lane_a, "RESUMED by SIGCONT, believes that it holds the lock", Tone::pause);
    late_ = late_from(a.hear());
    const bool is_refused = late_.verdict == to_string(Verdict::stale);
    stage_.note(
        {.who = lane_a,
         .what = sum_text(base_a_, add_a) + under(token_a_),
         .where = server_lane,
         .answer = is_refused
                       ? fmt::format("REFUSED as stale: token {} is below {}", token_a_, late_.highest)
                       : fmt::format("{} is stored, and the {} there is gone", base_a_ + add_a, late_.before),
         .tone = is_refused ? Tone::good : Tone::bad,
         .token = guarded_ ? Token::parse(token_a_) : std::nullopt});
    session_a_ = a.ask("session");
    note(lane_a, guarded_ ? "learns from its session that its lease is " + session_a_
                          : "learns that its session has " + session_a_ + "; it wrote in a new one");
  }

  void go_on(ProcessA& a, AccountClient& b) {
    const bool is_released = b.give_back();
    stage_.note({.who = lane_b,
                 .what = "gives the lock back" + under(token_b_),
                 .where = server_lane,
                 .answer = is_released ? "released" : "not held"});
    const auto token = a.take();
    note_lock(lane_a, token);
    const auto base = a.read();
    note_read(lane_a, base, token);
    const auto written = late_from(a.ask(fmt::format("write {}", base + add_a)));
    goes_on_ = written.verdict == to_string(Verdict::admitted);
    stage_.note({.who = lane_a,
                 .what = sum_text(base, add_a) + under(token),
                 .where = server_lane,
                 .answer = goes_on_ ? fmt::format("{} is stored", base + add_a) : written.verdict});
  }

  TaleEnd end() {
    const auto balance = balance_of(server_);
    TaleEnd end;
    end.facts = {{"session_a", session_a_},
                 {"b_waited", b_has_waited_ ? "1" : "0"},
                 {"verdict_a", late_.verdict},
                 {"balance", std::to_string(balance)},
                 {"expected", std::to_string(expected)}};
    const bool is_told = b_has_waited_ && verdict_b_ == Verdict::admitted;
    if (guarded_) {
      end.facts.insert({{"token_a", token_a_}, {"token_b", token_b_}});
      end.is_as_it_must_be = is_told && Token::parse(token_b_) > Token::parse(token_a_) &&
                             late_.verdict == to_string(Verdict::stale) && session_a_ == "lost" && goes_on_ &&
                             balance == expected;
      end.outcome = fmt::format("A's write is {}, its lease is {}, and it starts again: {}", late_.verdict,
                                session_a_, balance_sentence(balance, expected));
    } else {
      end.facts.insert({{"node_a", token_a_}, {"node_b", token_b_}});
      end.is_as_it_must_be = is_told && token_b_ > token_a_ && session_a_ == "expired" && balance != expected;
      end.outcome = fmt::format("A's session has {}, and A wrote all the same; {}", session_a_,
                                balance_sentence(balance, expected));
    }
    return end;
  }

  void note(const char* who, std::string what, Tone tone = Tone::plain) {
    stage_.note({.who = who, .what = std::move(what), .tone = tone});
  }

  void note_lock(const char* who, const std::string& token) {
    stage_.note({.who = who,
                 .what = "takes the lock",
                 .where = server_lane,
                 .answer = guarded_ ? "token " + token + ", the czxid" : token + " is the first node",
                 .tone = Tone::token,
                 .token = guarded_ ? Token::parse(token) : std::nullopt});
  }

  void note_read(const char* who, std::int64_t balance, const std::string& token) {
    stage_.note({.who = who,
                 .what = (guarded_ ? "advances, and reads the balance" : "reads the balance") + under(token),
                 .where = server_lane,
                 .answer = std::to_string(balance)});
  }

  [[nodiscard]] std::string under(const std::string& token) const {
    return guarded_ ? ", token " + token : std::string{};
  }

  Stage& stage_;
  const bool guarded_;
  Server server_;
  BootClock::time_point paused_at_;
  std::string token_a_, token_b_;  // the tokens, or without the guard the names of the nodes
  std::int64_t base_a_ = 0;
  bool b_has_waited_ = false;
  bool goes_on_ = false;
  Verdict verdict_b_ = Verdict::admitted;
  Late late_;
  std::string session_a_;
};

}  // namespace

TaleEnd session_expiry(Stage& stage, bool guarded) {
  return Story{stage, guarded}.tell();
}

void act_session_expiry(const std::vector<std::string>& words) {
  const bool guarded = words.at(1) == "through";
  const auto client = make_client(guarded, words.at(0), "A", timeout_of_a);
  const auto answer = [&](const std::string& line) -> std::string {
    if (line == "take") return client->take().value_or(held);
    if (line == "read") return std::to_string(client->read().value_or(-1));
    if (line == "session") {
      const auto deadline = BootClock::now() + loss_limit;
      while (!client->knows_of_loss() && BootClock::now() < deadline) std::this_thread::sleep_for(look_again);
      if (!client->knows_of_loss()) return "alive";
      return guarded ? "lost" : "expired";
    }
    return word_for(client->write(*parse_decimal(line.substr(line.find(' ') + 1))));
  };
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line) << std::endl;
}

}  // namespace fenceguard::zookeeper::demos
