#include "server/postgres/relay/transaction_state.hpp"

#include <utility>

namespace fenceguard::pgwire {
namespace {

// What may come before the admission: it writes nothing, and takes no snapshot.
bool may_precede(Kind kind, char status) noexcept {
  if (kind == Kind::discard) return status == 'I';
  return keeps_text(kind) && kind != Kind::refused;
}

}  // namespace

Prelude TransactionState::prelude_of(Kind kind) const noexcept {
  if (status_ == 'E') return {};
  return {.block = kind == Kind::call && block_ == Block::none,
          .admission = !is_admitted() && (needs_admission_first() || !may_precede(kind, status_))};
}

bool TransactionState::begin_block() noexcept {
  return std::exchange(block_, Block::client) == Block::own;
}

void TransactionState::set_access(const Statements& statements) noexcept {
  if (statements.says_read_only) access_.is_read_only = true;
  if (statements.says_read_write) access_.is_read_only = false;
}

// The transaction behind a chain is read-only as this one is. An aborted one has forgotten what was set in
// it, and keeps what it was handed.
void TransactionState::end_with_query(Kind kind) noexcept {
  admission_ = Admission::due;
  const bool was_read_only = status_ == 'E' ? access_.is_chained_read_only : access_.is_read_only;
  access_.is_read_only = access_.is_chained_read_only = kind == Kind::chain && was_read_only;
}

bool TransactionState::end_with_execute(Kind kind) noexcept {
  end_with_query(kind);
  status_ = kind == Kind::chain ? 'T' : 'I';  // an aborted one has ended, too
  const bool was_own = block_ == Block::own;
  if (kind == Kind::end) block_ = Block::none;
  if (was_own && kind == Kind::chain) block_ = Block::client;
  return was_own;
}

bool TransactionState::take_ready(char status) noexcept {
  status_ = status;
  if (block_ == Block::own && status != 'I') {
    block_ = Block::own_rolling_back;
    return true;
  }
  block_ = status == 'I' ? Block::none : Block::client;
  if (status == 'I') {
    admission_ = Admission::deferrable;
    access_ = {};
  }
  return false;
}

}  // namespace fenceguard::pgwire
