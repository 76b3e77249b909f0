#include "adapters/redis/demo/client.hpp"

#include <fmt/format.h>

#include "adapters/redis/errors.hpp"
#include "adapters/redis/fence_calls.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis::demos {
namespace {

using Tone = TaleEvent::Tone;

std::int64_t number_of(const Reply& reply) {
  const auto number = parse_decimal(reply.text);
  if (!number) throw Unavailable(fmt::format("the account holds {}", shown(reply)));
  return *number;
}

std::string sum_text(std::int64_t base, std::int64_t add) {
  return fmt::format("writes {} + {} = {}", base, add, base + add);
}

}  // namespace

void open_account(const Server& storage, std::int64_t balance) {
  (void)unless_error("opening the account", storage.call({"SET", balance_key, std::to_string(balance)}));
}

std::int64_t balance_of(const Server& storage) {
  return number_of(storage.call({"GET", balance_key}));
}

void initialise_fences(const Server& storage, std::int64_t floor) {
  redis::Client client{storage.address()};
  (void)redis::init(client, floor);
}

std::string balance_sentence(std::int64_t balance, std::int64_t expected) {
  if (balance == expected) return fmt::format("the account holds {}: nothing is lost", balance);
  return fmt::format("the account holds {}, should be {}: an update is LOST", balance, expected);
}

std::string shown(const Reply& reply) {
  switch (reply.kind) {
    case Reply::Kind::nil:
      return "(nil)";
    case Reply::Kind::integer:
      return std::to_string(reply.integer);
    case Reply::Kind::array:
      return fmt::format("{} elements", reply.elements.size());
    case Reply::Kind::status:
    case Reply::Kind::text:
    case Reply::Kind::error:
      break;
  }
  return reply.text;
}

Actor::Actor(Stage& stage, std::string lane, const Server& storage, std::string storage_lane)
    : stage_{stage},
      lane_{std::move(lane)},
      storage_{storage},
      storage_lane_{std::move(storage_lane)},
      client_{storage.address()},
      guard_{client_} {}

Reply Actor::ask(const Server& server, const std::string& where, const std::vector<std::string>& command,
                 TaleEvent::Tone tone) {
  auto reply = server.call(command);
  stage_.note({.who = lane_,
               .what = fmt::format("{}", fmt::join(command, " ")),
               .where = where,
               .answer = shown(reply),
               .tone = tone});
  return reply;
}

std::int64_t Actor::read() {
  const auto balance = balance_of(storage_);
  stage_.note(
      {.who = lane_, .what = "reads the balance", .where = storage_lane_, .answer = std::to_string(balance)});
  return balance;
}

void Actor::write(std::int64_t base, std::int64_t add) {
  // One step, so that what is told of the value before is true.
  const auto before = number_of(storage_.call({"SET", balance_key, std::to_string(base + add), "GET"}));
  const bool is_lost = before != base;
  stage_.note({.who = lane_,
               .what = sum_text(base, add),
               .where = storage_lane_,
               .answer = is_lost ? fmt::format("{} is stored, and the {} there is gone", base + add, before)
                                 : fmt::format("{} is stored", base + add),
               .tone = is_lost ? Tone::bad : Tone::plain});
}

std::optional<std::int64_t> Actor::read(const Claim& claim) {
  const auto written = guard_.read(claim, {"GET", balance_key});
  verdict_ = written.ruling.verdict;
  const bool is_admitted = verdict_ == Verdict::admitted;
  note_ruling(claim, "advances, and reads the balance", written.ruling,
              is_admitted ? shown(written.replies.at(0)) : "");
  if (!is_admitted) return std::nullopt;
  return number_of(written.replies.at(0));
}

Verdict Actor::write(const Claim& claim, std::int64_t base, std::int64_t add) {
  const auto written = guard_.write(claim, {"SET", balance_key, std::to_string(base + add)});
  verdict_ = written.ruling.verdict;
  if (verdict_ == Verdict::admitted) (void)unless_error("writing the balance", written.replies.at(0));
  note_ruling(claim, sum_text(base, add), written.ruling, fmt::format("{} is stored", base + add));
  return verdict_;
}

void Actor::note_ruling(const Claim& claim, std::string what, const Ruling& ruling, std::string admitted) {
  TaleEvent event{.who = lane_,
                  .what = fmt::format("{}, token {}", what, to_string(claim.token)),
                  .where = storage_lane_,
                  .answer = std::move(admitted),
                  .tone = Tone::plain,
                  .token = claim.token};
  if (ruling.verdict == Verdict::stale) {
    event.answer =
        fmt::format("REFUSED as stale: token {} is below {}", to_string(claim.token), ruling.highest);
    event.tone = Tone::good;
  } else if (ruling.verdict == Verdict::conflict) {
    event.answer = fmt::format("REFUSED as a conflict: token {} is another's", to_string(claim.token));
    event.tone = Tone::good;
  }
  stage_.note(std::move(event));
}

std::variant<Grant, Held> Actor::try_take(TokenSource& source, std::chrono::milliseconds ttl) const {
  return source.try_acquire(Resource{account}, Holder{std::string{lane_.back()}}, ttl);
}

void Actor::note_grant(const std::variant<Grant, Held>& answer, const std::string& where,
                       std::chrono::milliseconds ttl) {
  TaleEvent event{.who = lane_, .what = fmt::format("takes the lock for {} ms", ttl.count()), .where = where};
  event.answer = "no: it is held";
  if (const auto* grant = std::get_if<Grant>(&answer)) {
    event.answer = fmt::format("token {}", to_string(grant->claim.token));
    event.tone = Tone::token;
    event.token = grant->claim.token;
  }
  stage_.note(std::move(event));
}

std::optional<Claim> Actor::take(TokenSource& source, const std::string& where,
                                 std::chrono::milliseconds ttl) {
  const auto answer = try_take(source, ttl);
  note_grant(answer, where, ttl);
  const auto* grant = std::get_if<Grant>(&answer);
  if (!grant) return std::nullopt;
  return grant->claim;
}

Claim Actor::take_when_free(TokenSource& source, const std::string& where, std::chrono::milliseconds ttl) {
  std::variant<Grant, Held> answer = Held{};
  stage_.wait_until(
      [&] {
        answer = try_take(source, ttl);
        return std::holds_alternative<Grant>(answer);
      },
      "a lock that is free again");
  note_grant(answer, where, ttl);
  return std::get<Grant>(answer).claim;
}

Release Actor::release(TokenSource& source, const std::string& where, const Claim& claim) {
  const auto release = source.release(claim);
  const bool is_released = release == Release::released;
  stage_.note({.who = lane_,
               .what = fmt::format("gives the lock back, token {}", to_string(claim.token)),
               .where = where,
               .answer = is_released ? "released" : "REFUSED: not held under this token",
               .tone = is_released ? Tone::plain : Tone::good,
               .token = claim.token});
  return release;
}

void Actor::note(std::string what, TaleEvent::Tone tone) {
  stage_.note({.who = lane_, .what = std::move(what), .tone = tone});
}

}  // namespace fenceguard::redis::demos
