#include "adapters/etcd/fences/fence_admin.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "adapters/etcd/fences/fence_listing.hpp"
#include "adapters/etcd/fences/fence_mark.hpp"
#include "adapters/etcd/lock/retry_budget.hpp"
#include "guard/error.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::etcd {
namespace {

// Fences that are read at once, and that are dropped in one transaction, which takes 128 operations.
constexpr std::size_t page_max = 1'000;
constexpr std::size_t drop_max = 100;
// Those that still change after so many attempts are not idle, and stay.
constexpr int drop_attempts_max = 10;

[[noreturn]] void refuse_uninitialised() {
  throw Unavailable(not_initialised("etcd"));
}

[[noreturn]] void give_up(const Resource& resource) {
  throw Unavailable(fmt::format("others claim '{}' without a pause; nothing was changed", resource.name()));
}

std::int64_t require_floor(const OpAnswer& answer) {
  const auto floor = floor_in(answer);
  if (!floor) refuse_uninitialised();
  return *floor;
}

std::optional<std::string> text_in(const OpAnswer& answer) {
  if (answer.found.empty()) return std::nullopt;
  return answer.found.front().value;
}

Compare is_still(const std::string& key, const std::optional<std::string>& text) {
  return text ? value_is(key, *text) : is_absent(key);
}

std::string now_text() {
  using std::chrono::system_clock;
  const auto now = system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(now)), ms % 1'000);
}

}  // namespace

// Not a read of etcd 3.4, which may answer from the past, but a transaction in the log.
std::vector<OpAnswer> FenceAdmin::read_in_log(std::vector<Op> reads) {
  const auto count = reads.size();
  reads.push_back(remove(keys_.nothing()));
  try {
    auto answers = client_.txn({{}, std::move(reads), {}}).answers;
    answers.resize(count);
    return answers;
  } catch (const OutcomeUnknown& error) {
    throw Unavailable(error.what());  // nothing was to be changed
  }
}

FenceAdmin::Found FenceAdmin::find(const Resource& resource) {
  const auto answers = read_in_log({get(keys_.fence(resource)), get(keys_.floor())});
  return {text_in(answers.at(0)), require_floor(answers.at(1))};
}

// Puts fence in the place of what was found.
bool FenceAdmin::exchange(const Resource& resource, const Found& found, const Fence& fence,
                          std::vector<Op> then) {
  const auto key = keys_.fence(resource);
  Txn txn{
      {is_still(key, found.text), value_is(keys_.floor(), std::to_string(found.floor))}, std::move(then), {}};
  txn.then.push_back(put(key, text_of(fence)));
  keep_mark(txn, keys_, read_mark(client_, keys_), fence.token.value());
  return client_.txn(txn).succeeded;
}

FenceView FenceAdmin::look(const Resource& resource) {
  const auto answers = client_.txn({{}, {get(keys_.fence(resource)), get(keys_.floor())}, {}}).answers;
  const auto floor = require_floor(answers.at(1));
  return {fence_in(answers.at(0), resource), floor};
}

FencePage FenceAdmin::list(const FenceListing& listing) {
  return etcd::list(client_, keys_, listing);
}

void FenceAdmin::require_plausible(const Claim& lease, std::int64_t jump_max) {
  if (jump_max == 0) return;
  if (plausibility_of(client_, keys_, lease, jump_max).is_plausible) return;
  throw Implausible(fmt::format(
      "the lease of '{}' has token {}, more than {} above all that was ever seen here: the guard refuses it "
      "as it is, and nothing was closed. Find out where it came from and end it at the source; then revoke "
      "again",
      lease.resource.name(), to_string(lease.token), jump_max));
}

FenceView FenceAdmin::revoke(const Revocation& revocation) {
  const auto& [resource, lease, jump_max] = revocation;
  RetryBudget budget{client_.address().timeout};
  while (budget.has_another()) {
    const auto found = find(resource);
    OpAnswer answer;
    if (found.text) answer.found.push_back({keys_.fence(resource), *found.text});
    FenceView view{fence_in(answer, resource), found.floor};
    const bool is_above = lease && lease->token.value() > view.highest();
    if (is_above) {
      require_plausible(*lease, jump_max);
      view.record = Fence{lease->token, lease->holder, std::nullopt, false};
    }
    if (!view.record) return view;
    view.record->closed = true;
    if (exchange(resource, found, *view.record)) return view;
  }
  give_up(resource);
}

// Sets it closed, because the holder of that number is not known: the next higher one opens it. What was
// there may be damaged.
std::optional<FenceView> FenceAdmin::try_rebase(const FenceStore::Rebase& rebase,
                                                std::optional<std::int64_t>& first) {
  const auto found = find(rebase.resource);
  const auto before = found.text ? parse_fence(*found.text) : std::nullopt;
  const auto token = before ? before->token.value() : 0;
  if (!first) first = token;
  if (token > *first && token > rebase.to.value()) {
    throw Unavailable(
        fmt::format("the fence of '{}' rose from {} to {} meanwhile; nothing was changed: stop who writes "
                    "there, look at it again and decide anew",
                    rebase.resource.name(), *first, token));
  }
  const FenceView view{Fence{rebase.to, {}, std::nullopt, true}, found.floor};
  const auto record = fmt::format("from {} to {} by {}", before ? to_string(before->token) : "none",
                                  to_string(rebase.to), rebase.by);
  const auto mark = read_mark(client_, keys_);
  const bool is_set = exchange(rebase.resource, found, *view.record,
                               {put(keys_.rebased(rebase.resource, now_text()), record)});
  if (!is_set) return std::nullopt;
  if (rebase.to.value() < mark) lower_mark(client_, keys_, mark);
  return view;
}

FenceView FenceAdmin::rebase(const FenceStore::Rebase& rebase) {
  std::optional<std::int64_t> first;
  RetryBudget budget{client_.address().timeout};
  while (budget.has_another()) {
    if (const auto view = try_rebase(rebase, first)) return *view;
  }
  give_up(rebase.resource);
}

std::int64_t FenceAdmin::raise_floor(std::int64_t to, bool may_create) {
  RetryBudget budget{client_.address().timeout};
  while (budget.has_another()) {
    const auto answers = read_in_log({get(keys_.floor())});
    const auto floor = floor_in(answers.front());
    if (!floor && !may_create) refuse_uninitialised();
    if (floor && *floor >= to) return *floor;
    if (client_
            .txn({{is_still(keys_.floor(), text_in(answers.front()))},
                  {put(keys_.floor(), std::to_string(to))},
                  {}})
            .succeeded)
      return to;
  }
  throw Unavailable("others raise the floor without a pause; nothing was changed");
}

std::int64_t FenceAdmin::init(std::int64_t floor) {
  return raise_floor(floor, true);
}

// All with a token below lowest_live; what is damaged stays.
std::vector<FenceAdmin::Idle> FenceAdmin::idle_fences(Token lowest_live) {
  std::vector<Idle> idle;
  auto page = get_all(keys_.fences());
  page.limit = page_max;
  for (;;) {
    const auto answer = client_.range(page);
    for (const auto& found : answer.found) {
      const auto fence = parse_fence(found.value);
      if (fence && fence->token < lowest_live) idle.push_back({found.key, found.value});
    }
    if (!answer.has_more || answer.found.empty()) return idle;
    page.key = answer.found.back().key + '\0';
  }
}

// The floor is raised first, and what was folded into it is dropped afterwards, each in the proof that floor
// and fence are still as they were read. In between a fence stands below the floor, which refuses the same
// claims: so a claim meets the same refusal at the fence, the floor or both, and the floor changes once and
// not with every step, because each change costs every guard a round trip.
Compaction FenceAdmin::compact(Token lowest_live) {
  const auto idle = idle_fences(lowest_live);
  std::int64_t to = 0;
  for (const auto& one : idle) to = std::max(to, parse_fence(one.text)->token.value());
  Compaction sum;
  sum.floor = raise_floor(to, false);
  for (std::size_t i = 0; i < idle.size(); i += drop_max) {
    const auto begin = idle.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = idle.begin() + static_cast<std::ptrdiff_t>(std::min(i + drop_max, idle.size()));
    try {
      sum.dropped += drop({begin, end}, sum.floor, lowest_live);
    } catch (const Unavailable& error) {
      if (sum.dropped == 0) throw;
      throw OutcomeUnknown(fmt::format("{} fences were dropped, then: {}", sum.dropped, error.what()));
    }
  }
  return sum;
}

std::int64_t FenceAdmin::drop(std::vector<Idle> idle, std::int64_t& floor, Token lowest_live) {
  for (int attempt = 0; attempt < drop_attempts_max && !idle.empty(); ++attempt) {
    Txn txn{{value_is(keys_.floor(), std::to_string(floor))}, {}, {get(keys_.floor())}};
    for (const auto& one : idle) {
      txn.compare.push_back(value_is(one.key, one.text));
      txn.then.push_back(remove(one.key));
      txn.otherwise.push_back(get(one.key));
    }
    const auto answer = client_.txn(txn);
    if (answer.succeeded) return static_cast<std::int64_t>(idle.size());
    floor = require_floor(answer.answers.at(0));
    std::vector<Idle> left;
    for (std::size_t i = 0; i < idle.size(); ++i) {
      auto text = text_in(answer.answers.at(i + 1));
      const auto fence = text ? parse_fence(*text) : std::nullopt;
      // The floor may have gone back with a restored snapshot.
      if (fence && fence->token < lowest_live && fence->token.value() <= floor)
        left.push_back({std::move(idle[i].key), std::move(*text)});
    }
    idle = std::move(left);
  }
  return 0;
}

StoreStatus FenceAdmin::status() {
  StoreStatus status;
  const auto floor = floor_in(client_.range(get(keys_.floor())));
  if (!floor) {
    status.state = StoreState::uninitialised;
    status.reason = not_initialised("etcd");
    return status;
  }
  status.floor = *floor;
  status.highest = mark_in(client_.range(get(keys_.highest()))).value_or(0);
  status.resources = count(client_, keys_);
  return status;
}

std::int64_t FenceAdmin::highest() {
  return highest_of_all(client_, keys_, Reading::to_be_shown);
}

}  // namespace fenceguard::etcd
