#pragma once

// TransactionState: the transaction of a guarded session. The server tells at each ReadyForQuery whether one
// is open; from then on this follows what is sent, before it is answered. From it follows what has to go
// ahead of a statement. Pure.

#include <cstdint>

#include "server/postgres/relay/statements.hpp"

namespace fenceguard::pgwire {

// What the client said of its transaction.
struct AccessMode {
  bool is_read_only = false;
  bool is_chained_read_only = false;  // the transaction that it is chained to was read-only
};

// What of ours has to go ahead of a statement.
struct Prelude {
  bool block = false;      // a BEGIN around a CALL, to be committed at Sync
  bool admission = false;  // what admits the claims, or keeps a session without any from writing
};

class TransactionState {
 public:
  [[nodiscard]] Prelude prelude_of(Kind kind) const noexcept;
  // I: none is open, T: one is, E: an aborted one is. As the server said last, or an Execute made it.
  [[nodiscard]] char status() const noexcept { return status_; }
  [[nodiscard]] bool is_admitted() const noexcept { return admission_ == Admission::sent; }
  // Not even what neither writes nor takes a snapshot may come before the admission.
  [[nodiscard]] bool needs_admission_first() const noexcept { return admission_ == Admission::due; }
  [[nodiscard]] bool is_in_own_block() const noexcept { return block_ == Block::own; }
  [[nodiscard]] AccessMode access() const noexcept { return access_; }

  // What is sent.
  void send_admission() noexcept { admission_ = Admission::sent; }
  void begin_own_block() noexcept { block_ = Block::own; }
  // The client's own BEGIN. True: the block was ours, and is the client's from now on.
  bool begin_block() noexcept;
  void set_access(const Statements& statements) noexcept;
  // A query that ends with COMMIT or ROLLBACK, perhaps AND CHAIN: ReadyForQuery follows.
  void end_with_query(Kind kind) noexcept;
  // The same by an Execute, behind which more may follow. True: it ends a block of ours.
  bool end_with_execute(Kind kind) noexcept;

  // What the server says. True: our block is still open, and is to be rolled back before the client is ready.
  bool take_ready(char status) noexcept;
  // A transaction ended by a statement that was not known to end it.
  void take_unforeseen_end() noexcept { admission_ = Admission::due; }
  // What was sent did not come about.
  void undo_own_block() noexcept { block_ = Block::client; }
  void undo_end_of_own_block() noexcept { block_ = Block::own; }
  void undo_access(AccessMode before) noexcept { access_ = before; }

 private:
  // due: a transaction ended in this flight, and which one is open now is not known from the server.
  enum class Admission : std::uint8_t { deferrable, due, sent };
  enum class Block : std::uint8_t { none, client, own, own_rolling_back };

  char status_ = 'I';
  Admission admission_ = Admission::deferrable;
  Block block_ = Block::none;  // as far as was sent
  AccessMode access_;
};

}  // namespace fenceguard::pgwire
