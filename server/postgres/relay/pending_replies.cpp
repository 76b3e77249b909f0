#include "server/postgres/relay/pending_replies.hpp"

#include <algorithm>
#include <utility>

namespace fenceguard::pgwire {
namespace {

constexpr std::size_t replies_max = 4'096;

}  // namespace

bool ExpectedReply::ends_with(char type) const noexcept {
  if (request == 'E') return type == 'C' || type == 's' || type == 'I';
  if (request == 'D') return type == 'T' || type == 'n';
  return (request == 'P' && type == '1') || (request == 'B' && type == '2') ||
         (request == 'C' && type == '3');
}

bool ExpectedReply::foresees_end(std::string_view tag) noexcept {
  if (rollbacks_to == 0 || !tag.starts_with("ROLLBACK")) return ends_transaction;
  --rollbacks_to;
  return true;
}

ExpectedReply& PendingReplies::add(char request, ExpectedReply::Whose whose, AccessMode access) {
  return replies_.emplace_back(ExpectedReply{.request = request, .whose = whose, .access_before = access});
}

bool PendingReplies::is_awaited() const noexcept {
  if (is_full_) return true;
  if (replies_.empty()) return false;
  return replies_.back().is_ready_for_query() || replies_.back().whose == ExpectedReply::Whose::probe;
}

bool PendingReplies::becomes_full() noexcept {
  if (replies_.size() < replies_max || is_awaited()) return false;
  return is_full_ = true;
}

void PendingReplies::drain_full() noexcept {
  if (replies_.size() < replies_max / 2) is_full_ = false;
}

bool PendingReplies::is_only_ready_for_query() const noexcept {
  return replies_.size() == 1 && replies_.front().is_ready_for_query();
}

bool PendingReplies::has_ready_for_query() const noexcept {
  return std::ranges::any_of(replies_, &ExpectedReply::is_ready_for_query);
}

bool PendingReplies::has_parse() const noexcept {
  return std::ranges::any_of(replies_, [](const auto& reply) { return reply.request == 'P'; });
}

bool PendingReplies::has_end_of_transaction() const noexcept {
  return std::ranges::any_of(replies_, &ExpectedReply::ends_transaction);
}

bool PendingReplies::swallow_syncs() {
  const auto behind = replies_.begin() + 1;
  if (std::any_of(behind, replies_.end(), [](const auto& reply) { return reply.request != 'S'; }))
    return false;
  replies_.erase(behind, replies_.end());
  return true;
}

bool PendingReplies::undo_flight(TransactionState& transaction, PreparedStatements& statements) {
  const auto end = std::ranges::find_if(replies_, &ExpectedReply::is_ready_for_query);
  for (auto at = end; at != replies_.begin();) {
    auto& undone = *--at;
    if (undone.effect == ExpectedReply::Effect::own_block) transaction.undo_own_block();
    if (undone.ends_own_block) transaction.undo_end_of_own_block();
    if (undone.replaced) statements.restore(std::move(*undone.replaced));
  }
  if (end != replies_.begin()) transaction.undo_access(replies_.front().access_before);
  const bool has_sync = end != replies_.end();
  replies_.erase(replies_.begin(), end);
  return has_sync;
}

}  // namespace fenceguard::pgwire
