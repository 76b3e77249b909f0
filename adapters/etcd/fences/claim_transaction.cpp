#include "adapters/etcd/fences/claim_transaction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "adapters/etcd/fences/fence_mark.hpp"
#include "guard/error.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::etcd {
namespace {

bool is_good(const Ruling& ruling) {
  return ruling.verdict == Verdict::admitted;
}

// No version is below 0, not even that of a key that is not there.
Compare never(const std::string& key) {
  return {.target = Compare::Target::version, .is = Compare::Is::less, .key = key, .number = 0};
}

}  // namespace

ClaimTransaction::ClaimTransaction(const FenceKeys& keys, std::span<const Claim> claims,
                                   const FenceCache& cache)
    : keys_{keys}, claims_{claims.begin(), claims.end()} {
  std::set<std::string_view> names;
  for (const auto& claim : claims_) {
    if (!names.insert(claim.resource.name()).second)
      throw InvalidInput(fmt::format("two claims name the resource '{}'", claim.resource.name()));
  }
  if (claims_.empty()) throw InvalidInput("a guarded write needs a claim");
  std::vector<FenceView> views;
  for (const auto& claim : claims_) {
    auto view = cache.guess(claim.resource);
    if (!view) return;
    // The floor may have been learned anew in between: one is as good a guess as the other, but there is only
    // one to be compared.
    if (!views.empty()) view->floor = views.front().floor;
    views.push_back(std::move(*view));
  }
  judge_all(views);
  guesses_ = std::move(views);
  mark_ = cache.mark();
}

void ClaimTransaction::judge_all(const std::vector<FenceView>& views) {
  rulings_.clear();
  for (std::size_t i = 0; i < claims_.size(); ++i) rulings_.push_back(judge(views[i], claims_[i]));
}

bool ClaimTransaction::is_admitted() const noexcept {
  return is_known() && std::ranges::all_of(rulings_, is_good);
}

bool ClaimTransaction::changes() const noexcept {
  return is_admitted() && std::ranges::any_of(rulings_, &Ruling::changed);
}

std::vector<Claim> ClaimTransaction::raising() const {
  std::vector<Claim> found;
  for (std::size_t i = 0; is_known() && i < claims_.size(); ++i) {
    if (is_good(rulings_[i]) && rulings_[i].highest > guesses_[i].highest()) found.push_back(claims_[i]);
  }
  return found;
}

void ClaimTransaction::add_to(Txn& txn) {
  if (is_admitted()) {
    for (std::size_t i = 0; i < claims_.size(); ++i) {
      auto key = keys_.fence(claims_[i].resource);
      const auto& record = guesses_[i].record;
      txn.compare.push_back(record ? value_is(key, text_of(*record)) : is_absent(key));
      if (rulings_[i].changed) txn.then.push_back(put(std::move(key), text_of(*rulings_[i].fence)));
    }
    txn.compare.push_back(value_is(keys_.floor(), std::to_string(guesses_.front().floor)));
    std::int64_t raised_to = 0;
    for (const auto& claim : raising()) raised_to = std::max(raised_to, claim.token.value());
    if (raised_to > 0) mark_after_ = keep_mark(txn, keys_, mark_.value(), raised_to);
  } else {
    txn.compare.push_back(never(keys_.floor()));
  }
  if (only_reads(txn.then)) txn.then.push_back(remove(keys_.nothing()));
  first_read_ = txn.otherwise.size();
  add_reads_to(txn.otherwise);
}

void ClaimTransaction::add_reads_to(std::vector<Op>& ops) const {
  for (const auto& claim : claims_) ops.push_back(get(keys_.fence(claim.resource)));
  ops.push_back(get(keys_.floor()));
  ops.push_back(get(keys_.highest()));
}

std::vector<FenceView> ClaimTransaction::views_in(const TxnAnswer& answer, std::size_t first,
                                                  FenceCache& cache) const {
  const auto floor = floor_in(answer.answers.at(first + claims_.size()));
  if (!floor) {
    cache.forget_floor();
    throw Unavailable(not_initialised("etcd"));
  }
  cache.learn_floor(*floor);
  cache.learn_mark(mark_in(answer.answers.at(first + claims_.size() + 1)));
  std::vector<FenceView> views;
  for (std::size_t i = 0; i < claims_.size(); ++i) {
    const auto& resource = claims_[i].resource;
    views.push_back({fence_in(answer.answers.at(first + i), resource), *floor});
    cache.learn(resource, views.back().record);
  }
  return views;
}

ClaimTransaction::Ending ClaimTransaction::read(const TxnAnswer& answer, FenceCache& cache) {
  if (answer.succeeded) {
    for (std::size_t i = 0; i < claims_.size(); ++i) {
      if (rulings_[i].changed) cache.learn(claims_[i].resource, rulings_[i].fence);
    }
    if (mark_after_) cache.learn_mark(mark_after_);
    return Ending::done;
  }
  const auto views = views_in(answer, first_read_, cache);
  const auto mark = mark_in(answer.answers.at(first_read_ + claims_.size() + 1));
  const bool was_right = views == guesses_ && (!mark_after_ || mark == mark_);
  judge_all(views);
  const bool is_refused = !std::ranges::all_of(rulings_, is_good);
  take_back(views);
  if (is_refused) return Ending::refused;
  return was_right ? Ending::compares_failed : Ending::outdated;
}

Txn ClaimTransaction::look() const {
  Txn txn{{}, {}, {}};
  add_reads_to(txn.then);
  txn.then.push_back(remove(keys_.nothing()));
  return txn;
}

ClaimTransaction::Trace ClaimTransaction::trace_in(const TxnAnswer& answer, FenceCache& cache) const {
  const auto views = views_in(answer, 0, cache);
  if (changes() && views == guesses_) return Trace::none;
  for (std::size_t i = 0; is_admitted() && i < claims_.size(); ++i) {
    if (rulings_[i].changed && claims_[i].sequence && views[i].record == rulings_[i].fence) return Trace::own;
  }
  return Trace::other;
}

void ClaimTransaction::take_back(const std::vector<FenceView>& views) {
  for (std::size_t i = 0; i < claims_.size(); ++i) {
    if (is_good(rulings_[i])) rulings_[i] = {Verdict::admitted, views[i].highest(), views[i].record, false};
  }
}

}  // namespace fenceguard::etcd
