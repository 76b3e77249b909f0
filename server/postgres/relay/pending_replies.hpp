#pragma once

// PendingReplies: what the server owes, in order: for each request that was sent the message with which it is
// answered last. Not thread-safe.

#include <cstdint>
#include <deque>
#include <memory>

#include "server/postgres/relay/prepared_statements.hpp"
#include "server/postgres/relay/transaction_state.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {

struct ExpectedReply {
  // probe: of the client's, and its answer is waited for before anything follows. refusal: ours, in place of
  // a request of the client's: the server is made to raise an error.
  enum class Whose : std::uint8_t { client, ours, probe, refusal };
  // What comes about with it.
  enum class Effect : std::uint8_t {
    none,
    admission,    // the claims are admitted
    own_block,    // a block of ours begins, around a CALL
    call_follows  // a Sync of ours, behind which a function call of the client's is sent
  };

  char request;  // P B D E C S of the extended protocol, Q: a whole query
  Whose whose = Whose::client;
  Effect effect = Effect::none;
  bool ends_transaction = false;  // of the client, and known to
  bool ends_own_block = false;    // of the client, and ends the block of ours, or makes it the client's own
  AccessMode access_before{};
  std::size_t rollbacks_to = 0;  // so many tags of a ROLLBACK are of one to a savepoint
  // Of a query: statements of ours that are still to be answered, those of the client's in front of them, and
  // where ours are in its text.
  std::size_t own_statements = 0, statements_before = 0;
  Shift shift{};
  std::unique_ptr<ReplacedStatement> replaced{};  // a name stood for something else before

  [[nodiscard]] bool is_ready_for_query() const noexcept { return request == 'S' || request == 'Q'; }
  // What the server says now is of a statement of ours.
  [[nodiscard]] bool is_at_own() const noexcept {
    return whose == Whose::ours || (own_statements > 0 && statements_before == 0);
  }
  // This is the last message of the answer.
  [[nodiscard]] bool ends_with(char type) const noexcept;
  // Whether this tag is of a statement that is known to end a transaction, or to go back to a savepoint of
  // one. The admission came ahead of the first savepoint: no ROLLBACK TO undoes it.
  [[nodiscard]] bool foresees_end(std::string_view tag) noexcept;
};

class PendingReplies {
 public:
  ExpectedReply& add(char request, ExpectedReply::Whose whose, AccessMode access);

  [[nodiscard]] bool is_empty() const noexcept { return replies_.empty(); }
  [[nodiscard]] ExpectedReply& front() noexcept { return replies_.front(); }
  [[nodiscard]] ExpectedReply& back() noexcept { return replies_.back(); }
  void pop() { replies_.pop_front(); }
  void clear() noexcept { replies_.clear(); }

  // Nothing more is to be sent before the server has answered: it is asked for ReadyForQuery, or probed, or
  // owes more than is kept count of.
  [[nodiscard]] bool is_awaited() const noexcept;
  // True where it owes too much from now on, until half of it has come.
  [[nodiscard]] bool becomes_full() noexcept;
  void drain_full() noexcept;
  [[nodiscard]] bool is_only_ready_for_query() const noexcept;
  [[nodiscard]] bool has_ready_for_query() const noexcept;
  [[nodiscard]] bool has_parse() const noexcept;
  [[nodiscard]] bool has_end_of_transaction() const noexcept;
  // A COPY begins: a Sync that was sent behind it is swallowed. False: something else was, and makes it fail.
  bool swallow_syncs();
  // After an error what was sent up to the next Sync does not come about. False: that Sync was not sent yet.
  bool undo_flight(TransactionState& transaction, PreparedStatements& statements);

 private:
  std::deque<ExpectedReply> replies_;
  bool is_full_ = false;
};

}  // namespace fenceguard::pgwire
