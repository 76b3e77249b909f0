#include "demo/kit/client.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "demo/kit/client_process.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

// A shorter wait for the lock is not shown.
constexpr milliseconds wait_shown_min{50};

}  // namespace

Client::Client(Harness& harness, std::string lane, const ClientOptions& options)
    : harness_{harness}, lane_{std::move(lane)}, options_{options} {
  Command command{.arguments = {"demo-actor", options.program}};
  if (!options.word.empty()) command.arguments.push_back(options.word);
  process_ = harness.start(std::move(command));
  // URLs may hold passwords, and every user of the machine can read arguments.
  process_->send_line(json::serialize(json::object{{"storage", options.storage},
                                                   {"place", options.place},
                                                   {"guard", options.guard},
                                                   {"control", options.control},
                                                   {"resource", options.resource},
                                                   {"patience_ms", options.patience_ms},
                                                   {"repeats", options.repeats}}));
  if (options.open_cli) cli_ = options.open_cli(harness);
}

void Client::send(const json::object& request) {
  const auto word = text_at(request, "do");
  if (cli_ && (word == "read" || word == "write")) return cli_->send(request);
  process_->send_line(json::serialize(request));
}

json::object Client::receive() {
  auto reply = cli_ && cli_->is_asked() ? cli_->receive() : json::parse(process_->receive_line()).as_object();
  if (reply.contains("error")) throw Unavailable(fmt::format("{}: {}", lane_, text_at(reply, "error")));
  status_ = static_cast<unsigned>(number_at(reply, "status"));
  return reply;
}

json::object Client::call(json::object request) {
  send(request);
  return receive();
}

json::object Client::request_of(const char* request, bool is_fenced) const {
  json::object object{{"do", request}};
  if (claim_ && is_fenced) object.insert({{"token", claim_->token.value()}, {"holder", claim_->holder.id()}});
  return object;
}

// With the members that programs read.
Event Client::event_of(const json::object& reply, const char* step) const {
  Event event{.actor = lane_};
  event.began = harness_.since_start(number_at(reply, "began_us"));
  event.at = harness_.since_start(number_at(reply, "ended_us"));
  event.details = {{"event", step}, {"client", letter()}};
  if (status_ != 0) event.details["status"] = status_;
  return event;
}

json::object Client::ask_for_lock(milliseconds ttl, milliseconds wait) {
  auto reply =
      call({{"do", "take"}, {"source", options_.source}, {"ttl_ms", ttl.count()}, {"wait_ms", wait.count()}});
  node_ = text_at(reply, "node");
  refusal_ = text_at(reply, "refusal");
  claim_.reset();
  if (const auto token = Token::parse(text_at(reply, "token")))
    claim_ = Claim{Resource{options_.resource}, *token, Holder{text_at(reply, "holder")}, {}};
  return reply;
}

void Client::note_lock(const json::object& reply, milliseconds ttl) {
  auto event = event_of(reply, has_lock() ? "lock_granted" : "lock_held");
  event.what = fmt::format("takes the lock, {}", ttl_text(ttl));
  event.target = options_.lock_lane;
  if (const auto waited = event.at - event.began; waited >= wait_shown_min && claim_)
    event.what = fmt::format("gets the lock, having waited {}", milliseconds_text(waited));
  event.tone = Tone::token;
  if (claim_) {
    event.answer = fmt::format("token {} for {}", token_text(), lane_.back());
    event.token = claim_->token;
    if (const auto highest = Token::parse(text_at(reply, "highest"))) {
      event.details["highest"] = to_string(*highest);
      if (options_.guarded) event.fence = *highest;
    }
  } else if (!node_.empty()) {
    event.answer = node_ + " is the first node";
  } else if (status_ == 503) {
    event.answer = fmt::format("503: not yet, in {} s again", text_at(reply, "retry_after"));
    event.tone = Tone::pause;
  } else {
    event.answer = "no: it is held";
    event.tone = Tone::plain;
  }
  harness_.note(std::move(event));
}

bool Client::try_take(milliseconds ttl, milliseconds wait) {
  note_lock(ask_for_lock(ttl, wait), ttl);
  return has_lock();
}

void Client::take(milliseconds ttl, milliseconds wait) {
  if (!try_take(ttl, wait))
    throw Unavailable(fmt::format("{} was not granted the lock: {} {}", lane_, status_, refusal_));
}

int Client::take_when_free(milliseconds ttl, milliseconds pause, milliseconds wait) {
  int refusals = 0;
  harness_.wait_until(
      [&] {
        const auto reply = ask_for_lock(ttl, wait);
        if (has_lock()) {
          note_lock(reply, ttl);
          return true;
        }
        ++refusals;
        harness_.wait(pause);
        return false;
      },
      fmt::format("a grant of the lock to {}", lane_), std::chrono::seconds{30});
  return refusals;
}

bool Client::give_back() {
  const auto reply = call(request_of("release", true));
  const bool is_released = reply.at("released").as_bool();
  auto event = event_of(reply, is_released ? "lock_released" : "refused");
  event.what = "gives the lock back";
  event.target = options_.lock_lane;
  event.answer = is_released ? "released" : "REFUSED: not held under this token";
  event.tone = is_released ? Tone::plain : Tone::good;
  if (claim_) event.token = claim_->token;
  harness_.note(std::move(event));
  return is_released;
}

void Client::set_claim(Token token, std::int64_t balance) {
  base_ = balance;
  claim_ = Claim{Resource{options_.resource}, token, Holder{letter()}, {}};
}

Answer Client::answer_of(const json::object& reply) {
  return {.verdict = text_at(reply, "verdict"),
          .balance = number_at(reply, "balance"),
          .highest = number_at(reply, "highest"),
          .status = status_};
}

// What every answer but 'admitted' looks like.
void Client::note_refusal(Event& event, const Answer& answer) const {
  event.tone = Tone::pause;
  if (answer.highest > 0) event.details["highest"] = std::to_string(answer.highest);
  if (answer.verdict.empty()) {
    event.answer = "no answer: gives up";
  } else if (answer.verdict == "unknown") {
    event.answer = fmt::format("{}: outcome unknown", answer.status);
  } else {
    event.tone = Tone::good;
    event.answer = answer.verdict == "conflict"
                       ? fmt::format("REFUSED as a conflict: token {} is another's", token_text())
                       : fmt::format("REFUSED as {}: token {} is below {}", answer.verdict, token_text(),
                                     answer.highest);
  }
}

// With what reads and writes have in common.
Event Client::storage_event(const json::object& reply, const Answer& answer, const char* step,
                            bool is_fenced) const {
  auto event = event_of(reply, answer.is_admitted() ? step : "refused");
  event.target = options_.storage_lane;
  if (claim_ && is_fenced) event.token = claim_->token;
  if (answer.is_admitted())
    event.fence = event.token;
  else
    note_refusal(event, answer);
  return event;
}

Answer Client::try_read() {
  const bool is_fenced = options_.guarded && options_.is_advanced;
  const auto reply = call(request_of("read", is_fenced));
  const auto answer = answer_of(reply);
  auto event = storage_event(reply, answer, "balance_read", is_fenced);
  event.what = is_fenced && options_.guard.empty() ? "advances, and reads the balance" : "reads the balance";
  if (answer.is_admitted()) {
    base_ = answer.balance;
    event.answer = std::to_string(base_);
    event.details["balance"] = base_;
  }
  harness_.note(std::move(event));
  return answer;
}

std::int64_t Client::read() {
  const auto answer = try_read();
  if (!answer.is_admitted()) throw Unavailable(lane_ + " could not read the balance");
  return answer.balance;
}

void Client::begin_write(std::int64_t add) {
  adds_ = add;
  auto request = request_of("write", options_.guarded);
  request["balance"] = base_ + add;
  send(request);
}

Answer Client::finish_write() {
  const auto reply = receive();
  auto answer = answer_of(reply);
  const auto written = base_ + adds_;
  auto event = storage_event(reply, answer, "written", options_.guarded);
  event.what = fmt::format("writes {} + {} = {}", base_, adds_, written);
  event.details.insert({{"balance", written}, {"based_on", base_}});
  if (answer.is_admitted()) {
    const auto before = harness_.stored();
    answer.is_lost_update = before != base_;
    event.answer = fmt::format("{} is stored", written);
    if (answer.is_lost_update) event.answer += fmt::format(", and the {} there is gone", before);
    event.tone = answer.is_lost_update ? Tone::bad : Tone::plain;
    event.stored = written;
  }
  harness_.note(std::move(event));
  return answer;
}

Answer Client::write(std::int64_t add) {
  begin_write(add);
  return finish_write();
}

bool Client::add(std::int64_t amount) {
  return try_read().is_admitted() && write(amount).is_admitted();
}

void Client::roll_back() {
  const auto dropped = base_ + adds_;
  harness_.note({.actor = lane_,
                 .what = fmt::format("rolls back: drops {}", dropped),
                 .details = {{"event", "rolled_back"}, {"client", letter()}, {"balance", dropped}}});
}

void Client::pause(std::string what) {
  process_->pause();
  if (cli_) cli_->pause();
  paused_at_ = harness_.now();
  note_pause(std::move(what), Event::Pause::begins, paused_at_);
}

void Client::stay_paused(milliseconds time) {
  harness_.wait(std::chrono::ceil<milliseconds>(paused_at_ + time - harness_.now()));
}

std::chrono::microseconds Client::resume(const std::string& what) {
  const auto at = harness_.now();
  const auto paused = at - paused_at_;
  note_pause(fmt::format("GOES ON after {}, {}", milliseconds_text(paused), what), Event::Pause::ends, at);
  process_->resume();
  if (cli_) cli_->resume();
  return paused;
}

void Client::note_pause(std::string what, Event::Pause pause, std::chrono::microseconds at) {
  const auto* step = pause == Event::Pause::begins ? "stopped" : "continued";
  harness_.note({.actor = lane_,
                 .what = std::move(what),
                 .tone = Tone::pause,
                 .pause = pause,
                 .at = at,
                 .details = {{"event", step}, {"client", letter()}}});
}

bool Client::learns_of_loss() {
  return call({{"do", "loss"}}).at("lost").as_bool();
}

}  // namespace fenceguard::demo
