#include "adapters/etcd/demo/account.hpp"

#include <fmt/format.h>

#include "adapters/etcd/fence_calls.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr const char* balance_key = "accounts/42/balance";
constexpr const char* mark_key = "accounts/42/mark";

// etcd compares values byte by byte, so numbers need their zeros.
std::string mark_of(std::int64_t number) {
  return fmt::format("{:019}", number);
}

Compare mark_is_at_most(std::int64_t number) {
  return {Compare::Target::value, Compare::Is::less, mark_key, mark_of(number + 1)};
}

std::int64_t number_in(const OpAnswer& answer) {
  const auto number = answer.found.empty() ? std::nullopt : parse_decimal(answer.found.front().value);
  if (!number) throw Unavailable("the storage holds no such number");
  return *number;
}

std::int64_t mark_in(const OpAnswer& answer) {
  const auto text = answer.found.empty() ? std::string{} : answer.found.front().value;
  const auto first = std::min(text.find_first_not_of('0'), text.size() - 1);
  const auto number = text.empty() ? std::nullopt : parse_decimal(text.substr(first));
  if (!number) throw Unavailable("the storage holds no mark");
  return *number;
}

std::string sum_text(std::int64_t base, std::int64_t add) {
  return fmt::format("writes {} + {} = {}", base, add, base + add);
}

}  // namespace

void open_account(const Member& storage, std::int64_t balance) {
  Client client{storage.address()};
  (void)client.txn(
      {.compare = {}, .then = {put(balance_key, std::to_string(balance)), put(mark_key, mark_of(0))}});
}

void clear_mark(const Member& storage) {
  Client client{storage.address()};
  (void)client.txn({.compare = {}, .then = {put(mark_key, mark_of(0))}});
}

std::int64_t balance_of(const Member& storage) {
  Client client{storage.address()};
  return number_in(client.range(get(balance_key)));
}

void initialise_fences(const Member& storage, Token floor) {
  Client client{storage.address()};
  (void)FenceCalls{client}.init(floor.value());
}

std::string balance_sentence(std::int64_t balance, std::int64_t expected) {
  if (balance == expected) return fmt::format("the account holds {}: nothing is lost", balance);
  return fmt::format("the account holds {}, should be {}: an update is LOST", balance, expected);
}

std::optional<std::int64_t> CheckedAccount::read(std::int64_t number) {
  const auto answer = client_.txn({.compare = {mark_is_at_most(number)},
                                   .then = {put(mark_key, mark_of(number)), get(balance_key)},
                                   .otherwise = {get(mark_key)}});
  TaleEvent event{
      .who = lane_, .what = fmt::format("reads the balance with number {}", number), .where = storage_lane};
  std::optional<std::int64_t> balance;
  if (answer.succeeded) {
    balance = number_in(answer.answers.at(1));
    event.answer = std::to_string(*balance);
  } else {
    event.answer = fmt::format("SHUT OUT: {} is below the mark, {}", number, mark_in(answer.answers.at(0)));
    event.tone = Tone::bad;
  }
  stage_.note(std::move(event));
  return balance;
}

bool CheckedAccount::write(std::int64_t number, std::int64_t base, std::int64_t add) {
  const auto answer = client_.txn({.compare = {mark_is_at_most(number)},
                                   .then = {get(balance_key), put(mark_key, mark_of(number)),
                                            put(balance_key, std::to_string(base + add))},
                                   .otherwise = {get(mark_key)}});
  TaleEvent event{
      .who = lane_, .what = fmt::format("{}, number {}", sum_text(base, add), number), .where = storage_lane};
  if (!answer.succeeded) {
    event.answer = fmt::format("refused: {} is below the mark, {}", number, mark_in(answer.answers.at(0)));
  } else if (const auto before = number_in(answer.answers.at(0)); before != base) {
    event.answer = fmt::format("{} is stored, and the {} there is gone", base + add, before);
    event.tone = Tone::bad;
  } else {
    event.answer = fmt::format("{} is stored", base + add);
  }
  stage_.note(std::move(event));
  return answer.succeeded;
}

std::optional<std::int64_t> GuardedAccount::read(const Claim& claim) {
  const auto read = guard_.read(claim, {get(balance_key)});
  ruling_ = read.ruling;
  std::optional<std::int64_t> balance;
  if (read.is_done()) balance = number_in(read.answers.at(0));
  note(claim, "advances, and reads the balance", balance ? std::to_string(*balance) : "");
  return balance;
}

Verdict GuardedAccount::write(const Claim& claim, std::int64_t base, std::int64_t add) {
  ruling_ = guard_.write(claim, {put(balance_key, std::to_string(base + add))}).ruling;
  note(claim, sum_text(base, add), fmt::format("{} is stored", base + add));
  return ruling_.verdict;
}

void GuardedAccount::note(const Claim& claim, const std::string& what, const std::string& admitted) {
  TaleEvent event{.who = lane_,
                  .what = fmt::format("{}, token {}", what, to_string(claim.token)),
                  .where = storage_lane,
                  .answer = admitted,
                  .tone = Tone::plain,
                  .token = claim.token};
  if (ruling_.verdict != Verdict::admitted) {
    event.answer = fmt::format("REFUSED as {}: token {} is below {}", to_string(ruling_.verdict),
                               to_string(claim.token), ruling_.highest);
    event.tone = Tone::good;
  }
  stage_.note(std::move(event));
}

}  // namespace fenceguard::etcd::demos
