#include "server/postgres/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr std::size_t ahead_bytes_max = 64 * 1024;     // of the client's, that are read ahead
constexpr std::size_t answer_bytes_max = 1024 * 1024;  // of an error or a notice that is looked at
constexpr std::size_t password_bytes_max = 65'535;     // as PostgreSQL has it
constexpr std::size_t names_bytes_max = 8 * 1024;

constexpr std::string_view own_name = "fenceguard admission";
constexpr std::string_view make_writable = "SET TRANSACTION READ WRITE";
constexpr std::string_view keep_read_only = "SET TRANSACTION READ ONLY";
// After a snapshot no transaction becomes writable.
constexpr std::string_view take_snapshot = "SELECT 1";
// Always fails, and can be parsed in a block that is aborted, too.
constexpr std::string_view never_executed =
    R"(ROLLBACK TO "EXECUTE of a statement for transactions is refused")";

// Of the server's, what is looked at; the rest passes as it comes.
bool is_read(char type) noexcept {
  return std::string_view{"RSKZENC"}.find(type) != std::string_view::npos;
}

// One text and its NUL.
bool is_text(std::string_view body) noexcept {
  return !body.empty() && body.find('\0') == body.size() - 1;
}

}  // namespace

Relay::Relay(const RelayOptions& options, RelayObserver& observer, Startup startup,
             const std::vector<Claim>& held)
    : options_{options}, observer_{observer}, claims_{options, observer, held} {
  auto error = claims_.take_startup(startup);
  to_server_ = error.empty() ? startup.encode() : std::string{};
  if (to_server_.size() > startup_bytes_max)
    error = fatal_error(
        "54000",
        fmt::format(
            "the startup packet of this session has {} bytes with its claims, and PostgreSQL takes {}",
            to_server_.size(), startup_bytes_max),
        "Use fewer claims, or shorter names. Nothing was written.");
  if (!error.empty()) end_with(std::move(error));
}

void Relay::end(std::string_view state, std::string_view message, std::string_view hint) {
  end_with(fatal_error(state, message, hint));
}

void Relay::end_with(std::string error) {
  if (phase_ == Phase::over) return;
  to_client_ += error;
  phase_ = Phase::over;
}

bool Relay::is_held() const noexcept {
  if (phase_ == Phase::advancing || phase_ == Phase::advancing_again || lease_ == Lease::lost) return true;
  if (copy_in_ == CopyIn::open) return false;
  return replies_.is_awaited() || (copy_in_ == CopyIn::awaited && !replies_.is_empty());
}

bool Relay::takes_client() const noexcept {
  return !is_over() && (!is_held() || from_client_.kept.size() < ahead_bytes_max);
}

bool Relay::is_idle() const noexcept {
  return (phase_ == Phase::guarded || phase_ == Phase::unguarded) && replies_.is_empty() &&
         transaction_.status() == 'I' && !transaction_.is_admitted() && flight_ == Flight::none &&
         from_server_.passing == 0;
}

void Relay::probe_server() {
  if (phase_ == Phase::guarded && from_client_.passing == 0 && to_server_.empty())
    add_message(to_server_, 'H', {});
}

void Relay::from_client(std::string_view bytes) {
  if (!is_over()) feed(from_client_, bytes);
}

void Relay::from_server(std::string_view bytes) {
  if (is_over()) return;
  feed(from_server_, bytes);
  end_where_lost();
  replies_.drain_full();
  // It may be ready for what was held.
  auto& held = from_client_.kept;
  if (!is_over() && !held.empty() && !is_held()) held.erase(0, take_messages(from_client_, held));
}

void Relay::feed(Stream& stream, std::string_view bytes) {
  if (stream.kept.empty()) {
    bytes.remove_prefix(take_messages(stream, bytes));
    stream.kept.assign(bytes);
  } else {
    stream.kept.append(bytes);
    stream.kept.erase(0, take_messages(stream, stream.kept));
  }
}

std::size_t Relay::take_messages(Stream& stream, std::string_view in) {
  const bool is_client = &stream == &from_client_;
  std::size_t at = 0, taken = 0;
  for (; !is_over() && at < in.size(); at += taken) {
    const auto rest = in.substr(at);
    taken = std::min(stream.passing, rest.size());
    if (taken > 0) {
      pass(stream, rest, stream.passing);
    } else if (is_client && phase_ == Phase::unguarded) {
      taken = rest.size();
      to_server_.append(rest);
      flight_ = Flight::open;
    } else {
      if (rest.size() < header_bytes) break;
      const std::size_t length = read_number(rest.substr(1));
      if (length < 4 || length >= (std::size_t{1} << 31)) {
        end("08P01", is_client ? "invalid message length" : "the server sent what is no message");
        break;
      }
      taken = is_client ? take_client_message(rest.front(), rest, length + 1)
                        : take_server_message(rest.front(), rest, length + 1);
      if (taken == 0) break;
    }
  }
  return at;
}

std::size_t Relay::pass(Stream& stream, std::string_view in, std::size_t size) {
  const auto part = in.substr(0, size);
  if (!stream.is_dropped) (&stream == &from_client_ ? to_server_ : to_client_).append(part);
  stream.passing = size - part.size();
  return part.size();
}

std::size_t Relay::take_server_message(char type, std::string_view in, std::size_t size) {
  if (phase_ == Phase::unguarded) {
    // Looked at only to know when it may be ended.
    if (type == 'Z' && in.size() == header_bytes) return 0;
    if (type == 'Z') (void)transaction_.take_ready(in[header_bytes]);
    if (type == 'Z') flight_ = Flight::none;
    return pass(from_server_, in, size);
  }
  const bool is_whole =
      (is_read(type) && size <= answer_bytes_max) || phase_ != Phase::guarded || size <= header_bytes + 4;
  if (!is_whole) {
    take_answer(type);
    return is_over() ? 0 : pass(from_server_, in, size);
  }
  if (size > answer_bytes_max) return break_off("08P01", "the server sent a message that is too long");
  if (in.size() < size) return 0;
  const auto message = in.substr(0, size);
  read_server_message(type, message, message.substr(header_bytes));
  return size;
}

void Relay::read_server_message(char type, std::string_view message, std::string_view body) {
  if (phase_ == Phase::authenticating && type == 'R') return take_authentication(message, body);
  if (type == 'S') {
    to_client_.append(message);
    parameters_.take(body);
    if (phase_ != Phase::guarded) return;
    if (auto objection = parameters_.objection(); !objection.empty()) end_with(std::move(objection));
    return;
  }
  if (phase_ == Phase::advancing || phase_ == Phase::advancing_again)
    return advance(claims_.take(type, body, to_client_, to_server_));
  if (type == 'Z' && phase_ == Phase::authenticating) return begin_session(message);
  if (phase_ == Phase::authenticating) {
    to_client_.append(message);
    return;
  }
  if (type == 'Z') return take_ready(message, body.empty() ? 'I' : body.front());
  if (type == 'E') return take_error(body);
  const bool is_foreseen = type == 'C' && !replies_.is_empty() && replies_.front().foresees_end(body);
  take_answer(type);
  if (from_server_.is_dropped) return;
  if (type == 'C') take_tag(body, is_foreseen);
  const auto shift = replies_.is_empty() ? Shift{} : replies_.front().shift;
  if (type == 'N' && shift.characters > 0) return add_message(to_client_, 'N', without_shift(body, shift));
  to_client_.append(message);
}

// TLS ends here, or there is none: no channel can be bound to.
void Relay::take_authentication(std::string_view message, std::string_view body) {
  constexpr std::uint32_t sasl = 10;
  if (body.size() < 4 || read_number(body) != sasl) {
    to_client_.append(message);
    return;
  }
  std::string kept{body.substr(0, 4)};
  auto rest = body.substr(4);
  for (auto name = take_text(rest); name && !name->empty(); name = take_text(rest))
    if (*name != "SCRAM-SHA-256-PLUS") add_text(kept, *name);
  kept.push_back('\0');
  add_message(to_client_, 'R', kept);
}

void Relay::begin_session(std::string_view ready) {
  if (options_.needs_primary && parameters_.is_standby()) {
    observer_.is_standby();
    return end("57P03", "the server is a standby, and the sidecar is to connect to a primary",
               "Connect again: the next of its servers is tried.");
  }
  if (claims_.is_empty() && options_.unfenced == Unfenced::allow) {
    to_client_.append(ready);
    phase_ = Phase::unguarded;
    return;
  }
  if (auto objection = parameters_.objection_to_begin(); !objection.empty())
    return end_with(std::move(objection));
  phase_ = Phase::advancing;
  advance(claims_.begin(to_server_));
}

// Before the client hears that it is ready.
void Relay::advance(ClaimAdvance::Outcome outcome) {
  if (outcome == ClaimAdvance::Outcome::refused) phase_ = Phase::over;
  if (outcome != ClaimAdvance::Outcome::advanced) return;
  add_message(to_client_, 'Z', "I");
  phase_ = Phase::guarded;
}

void Relay::take_ready(std::string_view message, char status) {
  if (!replies_.is_only_ready_for_query() || replies_.front().own_statements > 0)
    return end("08P01", "the server is out of step");
  const bool call_follows = replies_.front().effect == Effect::call_follows;
  replies_.clear();
  flight_ = Flight::none;
  copy_in_ = CopyIn::none;
  from_server_.is_dropped = false;
  if (transaction_.take_ready(status)) {
    // No query, which would take the client's statement without a name with it.
    close_own_statement();
    send_own("ROLLBACK");
    return sync();
  }
  if (call_follows) return;
  if (status == 'I') statements_.unnamed_portal = {};  // in a block it outlives a Sync, and ROLLBACK TO
  if (status == 'I' && lease_ == Lease::fence_below) {
    lease_ = Lease::valid;
    phase_ = Phase::advancing_again;
    return advance(claims_.begin(to_server_));
  }
  to_client_.append(message);
}

void Relay::take_error(std::string_view body) {
  const auto severity = field_of(body, 'V').value_or("");
  const bool is_fatal = severity == "FATAL" || severity == "PANIC";
  const auto state = field_of(body, 'C').value_or("");
  if (replies_.is_empty() && flight_ == Flight::none && !is_fatal)
    return end("08P01", "the server is out of step");
  auto whose = Whose::client;
  bool is_own = false;
  Shift shift;
  if (!replies_.is_empty()) {
    whose = replies_.front().whose;
    is_own = replies_.front().is_at_own();
    shift = replies_.front().shift;
  }
  statements_.may_hold_ours = flight_ != Flight::none;
  copy_in_ = CopyIn::none;
  from_server_.is_dropped = false;
  if (!replies_.undo_flight(transaction_, statements_)) flight_ = Flight::failed;
  if (!replies_.is_empty()) replies_.front().own_statements = replies_.front().statements_before = 0;
  if (is_own && (state == "ZF001" || state == "ZF002")) {
    claims_.report_refused(state, body);
    add_message(refusals_.by_fence, 'E', body);
  }
  // It was put back meanwhile. The token is ours for as long as the lease is.
  if (is_own && state == "40001" && claims_.is_held() && lease_ == Lease::valid) lease_ = Lease::fence_below;
  if (!replies_.is_empty() && replies_.front().effect == Effect::call_follows && !is_fatal) {
    refusals_.of_call = true;
    add_message(refusals_.next, 'E', body);
  } else if (whose == Whose::refusal && !is_fatal) {
    to_client_.append(std::exchange(refusals_.next, {}));
  } else if (claims_.is_empty() && state == "25006") {
    observer_.missing();
    add_message(to_client_, 'E',
                with_hint(without_shift(body, shift),
                          "This session has no claim, and only reads. Give one as it connects: options=-c "
                          "fenceguard.session_claims=[...], which 'fenceguard exec' puts into PGOPTIONS."));
  } else {
    add_message(to_client_, 'E', without_shift(body, shift));
  }
  if (is_fatal) phase_ = Phase::over;
}

// Sets whether this message is kept from the client.
void Relay::take_answer(char type) {
  auto& is_dropped = from_server_.is_dropped;
  is_dropped = false;
  if (type == 'A' || replies_.is_empty()) return;
  auto& first = replies_.front();
  is_dropped = first.is_at_own();
  if (first.request == 'Q') {
    if (type == 'G') copy_in_ = CopyIn::open;
    if (type != 'C') return;
    if (first.statements_before > 0) --first.statements_before;
    if (is_dropped && --first.own_statements == 0) claims_.report_admitted();
    return;
  }
  if (type == 'N') return;
  if (type == 'G') {
    if (replies_.swallow_syncs()) copy_in_ = CopyIn::open;
    return;
  }
  if (!first.ends_with(type)) return;
  if (first.whose == Whose::probe)
    return end("0A000", "the scanner does not read this text as the server does");
  if (first.effect == Effect::admission) claims_.report_admitted();
  replies_.pop();
}

void Relay::take_tag(std::string_view tag, bool is_foreseen) {
  // Whatever ended a transaction unseen (EXECUTE reaches no such statement) does not pass for admitted. A
  // ROLLBACK TO that was not seen says the same; its transaction is admitted once more.
  if (!is_foreseen && (tag.starts_with("COMMIT") || tag.starts_with("ROLLBACK")))
    transaction_.take_unforeseen_end();
  // What the server has forgotten is forgotten here, unless something was parsed behind it.
  const bool forgets = tag.starts_with("DISCARD ALL") || tag.starts_with("DEALLOCATE ALL");
  if (forgets && !replies_.has_parse()) statements_.clear();
}

std::size_t Relay::break_off(std::string_view state, std::string_view why) {
  end(state, why);
  return 0;
}

// Before the server has said that it copies, it is not known which Sync it swallows; and half of a message
// would take in what we say next. What is left over from a COPY that failed, the server ignores.
std::size_t Relay::take_copy_data(char type, std::string_view in, std::size_t size) {
  if (copy_in_ != CopyIn::open) {
    const bool was_held = is_held();
    const bool waits = was_held || !replies_.is_empty();
    copy_in_ = waits ? CopyIn::awaited : CopyIn::none;
    // What it waits for comes only if it is asked for: no Sync of the client's may follow.
    if (waits && !was_held) add_message(to_server_, 'H', {});
    if (waits) return 0;
  }
  if (type != 'd') copy_in_ = CopyIn::none;
  return pass(from_client_, in, size);
}

std::size_t Relay::take_client_message(char type, std::string_view in, std::size_t size) {
  if (phase_ == Phase::authenticating) {
    if (type != 'X' && (type != 'p' || size > password_bytes_max))
      return break_off("08P01", "expected password response");
    return pass(from_client_, in, size);
  }
  if (type == 'd' || type == 'c' || type == 'f') return take_copy_data(type, in, size);
  if (is_held()) return 0;
  if (std::string_view{"QPBEDCSHFX"}.find(type) == std::string_view::npos)
    return break_off("08P01",
                     fmt::format("invalid frontend message type {}", static_cast<unsigned char>(type)));
  if (type == 'H' || type == 'X') return pass(from_client_, in, size);
  if (copy_in_ == CopyIn::open) {
    // The server swallows it, unless the COPY has failed there already: so it is swallowed here.
    if (type == 'S' && size == header_bytes) return size;
    return break_off("08P01", "unexpected message type during COPY from stdin");
  }
  if (flight_ == Flight::failed && type != 'S') return pass(from_client_, in, size);
  return take_request(type, in, size);
}

std::size_t Relay::take_request(char type, std::string_view in, std::size_t size) {
  const bool is_statement = type == 'Q' || type == 'P';
  const bool is_alone = type == 'Q' || type == 'F';
  const auto bytes_max = (is_statement ? options_.statement_bytes_max : names_bytes_max) + header_bytes;
  if (type != 'B' && type != 'F' && size > bytes_max)
    return break_off("54000", "a statement is longer than --statement-limit");
  const bool is_enough = in.size() >= size || type == 'F' || (type == 'B' && in.size() >= names_bytes_max);
  if (!is_enough) return 0;
  const auto message = in.substr(0, std::min(in.size(), size));
  const auto body = message.substr(header_bytes);
  if (flight_ != Flight::none && is_alone)
    return break_off("0A000",
                     "a query amid messages of the extended protocol is not relayed: send a Sync before it");
  if (flight_ == Flight::none) close_own_statement();
  if (flight_ == Flight::none && !is_alone) flight_ = Flight::open;
  if (type == 'Q') take_query(message, body);
  if (type == 'P') take_parse(message, body);
  if (type == 'B') take_bind(message, body);
  if (type == 'E') take_execute(message, body);
  if (type == 'D') take_describe(message, body);
  if (type == 'C') take_close(message, body);
  if (type == 'S') take_sync();
  if (type == 'F' && !take_call(message, message.size() == size)) return 0;
  from_client_.passing = is_over() ? 0 : size - message.size();
  // So that what is waited for comes.
  if (from_client_.passing == 0 && !is_held() && replies_.becomes_full()) add_message(to_server_, 'H', {});
  return message.size();
}

ExpectedReply& Relay::expect(char request, Whose whose) {
  return replies_.add(request, whose, transaction_.access());
}

void Relay::sync() {
  add_message(to_server_, 'S', {});
  expect('S');
}

// Empty ones are none.
std::array<std::string_view, 2> Relay::admission_statements() const noexcept {
  if (claims_.is_empty()) return {keep_read_only, take_snapshot};
  if (transaction_.access().is_read_only) return {claims_.admission()};
  return {make_writable, claims_.admission()};
}

void Relay::refuse(std::string_view why, std::string_view hint, bool syncs) {
  std::string error;
  add_error(error, {.severity = "ERROR", .state = "0A000", .message = why, .hint = hint});
  raise(std::move(error), syncs);
}

// The server is made to raise an error, so that a block is aborted, and this one is told in its place.
void Relay::raise(std::string error, bool syncs) {
  refusals_.next = std::move(error);
  add_parse(to_server_, own_name, "refused");
  expect('P', Whose::refusal);
  if (syncs) sync();
}

void Relay::take_query(std::string_view message, std::string_view body) {
  if (!is_text(body)) return end("08P01", "invalid message format");
  const std::string text{body.substr(0, body.size() - 1)};
  const auto found = classify_statements(text);
  if (found.is_broken) {
    // Whatever the server makes of it is not executed.
    add_parse(to_server_, "", text);
    expect('P', Whose::probe);
    return sync();
  }
  if (found.why != nullptr) return refuse(found.why, "", true);
  if (found.has_inner_control)
    return refuse(
        "several statements in one message, with transaction control among them, are not relayed",
        "One BEGIN ahead of all others and one COMMIT behind them are. Send the others in messages of "
        "their own.",
        true);
  const auto kind = found.count > 1 && !found.is_preamble ? Kind::ordinary : found.kind;
  const bool needs_admission = found.count > 0 && transaction_.prelude_of(kind).admission;
  if (needs_admission && !refusals_.by_fence.empty()) return raise(refusals_.by_fence, true);
  if (found.count > 0) transaction_.set_access(found);
  auto& reply = expect('Q');
  reply.rollbacks_to = found.rollbacks_to;
  if (needs_admission) {
    send_with_admission(text, found);
  } else {
    to_server_.append(message);
  }
  if (found.last == Kind::end || found.last == Kind::chain) {
    reply.ends_transaction = true;
    transaction_.end_with_query(found.last);
  }
}

// The query that was expected last, with what is ours in front of it, or behind its BEGIN and what may come
// before the first statement of a block.
void Relay::send_with_admission(const std::string& text, const Statements& found) {
  const auto place = found.count == 1                       ? Place{}
                     : transaction_.needs_admission_first() ? found.behind_begin
                                                            : found.behind_preamble;
  auto& reply = replies_.back();
  std::string own;
  for (const auto statement : admission_statements()) {
    if (statement.empty()) continue;
    own.append(statement).push_back(';');
    ++reply.own_statements;
  }
  // A character is a byte, or what begins one.
  const bool is_utf8 = parameters_.is_utf8();
  const auto continues = [&](char c) { return is_utf8 && (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
  const auto bytes_more =
      std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place.at), continues);
  reply.shift = {own.size(), place.at - static_cast<std::size_t>(bytes_more)};
  reply.statements_before = place.statements;
  transaction_.send_admission();
  std::string changed = text;
  changed.insert(place.at, own);
  changed.push_back('\0');
  add_message(to_server_, 'Q', changed);
}

// In a transaction of its own it would not be admitted. In a block that was not admitted yet, what admits it
// goes ahead, and is answered first.
bool Relay::take_call(std::string_view message, bool is_whole) {
  const bool is_outside = transaction_.status() == 'I';
  const bool needs_admission = transaction_.status() == 'T' && !transaction_.is_admitted();
  if ((is_outside || (needs_admission && !refusals_.by_fence.empty())) && !is_whole) {
    end("0A000", "a function call of the protocol that is refused is longer than what is read of it");
    return false;
  }
  if (is_outside) {
    refuse("a function call of the protocol is relayed only inside a block", "Send BEGIN before it.", true);
    return true;
  }
  if (needs_admission && !refusals_.by_fence.empty()) {
    raise(refusals_.by_fence, true);
    return true;
  }
  if (needs_admission) {
    send_admission();
    close_own_portal();
    sync();
    replies_.back().effect = Effect::call_follows;
    flight_ = Flight::open;
    return false;
  }
  expect('Q', std::exchange(refusals_.of_call, false) ? Whose::refusal : Whose::client);
  to_server_.append(message);
  return true;
}

// It is parsed, executed and forgotten in one go, so that nothing can take its place.
void Relay::send_own(std::string_view text, Effect effect) {
  add_parse(to_server_, own_name, text);
  add_bind(to_server_, own_name);
  add_execute(to_server_);
  add_close(to_server_, 'S', own_name);
  expect('P', Whose::ours);
  expect('B', Whose::ours);
  expect('E', Whose::ours).effect = effect;
  expect('C', Whose::ours);
}

void Relay::send_admission() {
  const auto [first, second] = admission_statements();
  send_own(first, second.empty() ? Effect::admission : Effect::none);
  if (!second.empty()) send_own(second, Effect::admission);
  transaction_.send_admission();
}

bool Relay::send_prelude(Kind kind) {
  const auto prelude = transaction_.prelude_of(kind);
  if (prelude.admission && !refusals_.by_fence.empty()) {
    raise(refusals_.by_fence, false);
    return false;
  }
  if (prelude.block) {
    send_own("BEGIN", Effect::own_block);
    transaction_.begin_own_block();
  }
  if (prelude.admission) send_admission();
  if (prelude.block || prelude.admission) close_own_portal();
  return true;
}

void Relay::close_own_portal() {
  add_close(to_server_, 'P', "");
  expect('C', Whose::ours);
}

void Relay::take_parse(std::string_view message, std::string_view body) {
  const auto name = take_text(body);
  const auto given = name ? take_text(body) : std::nullopt;
  if (!given) return end("08P01", "invalid message format");
  const std::string text{*given};
  const auto found = classify_statements(text);
  if (found.why != nullptr) return refuse(found.why, "", false);
  // Of a broken text or several statements the server parses none.
  const bool is_probe = found.is_broken || found.count > 1;
  const auto kind = is_probe || found.count == 0 ? Kind::ordinary : found.kind;
  if (keeps_text(kind) && !statements_.has_room_for(text.size()))
    return end("54000", "too many, or too long, prepared statements for transactions");
  if (!send_prelude(kind)) return;
  if (!name->empty() && is_transaction_control(kind)) {
    // Under a name EXECUTE would reach it, in SQL or in a function, and end the transaction unseen: the
    // server says what it thinks of it, and keeps one that always fails.
    add_parse(to_server_, own_name, text);
    add_close(to_server_, 'S', own_name);
    add_parse(to_server_, *name, never_executed);
    for (const char request : {'P', 'C'}) expect(request, Whose::ours);
  } else {
    to_server_.append(message);
  }
  auto& reply = expect('P', is_probe ? Whose::probe : Whose::client);
  if (is_probe) add_message(to_server_, 'H', {});  // nothing follows it before its answer
  reply.replaced =
      statements_.replace(*name, kind, keeps_text(kind) ? std::string_view{text} : std::string_view{});
}

// Parsed anew under our name: a statement of the client's may have been replaced in SQL. rest: of the Bind.
void Relay::bind_special(std::string_view portal, std::string_view text, std::string_view rest) {
  add_parse(to_server_, own_name, text);
  expect('P', Whose::ours);
  std::string body;
  add_text(body, portal);
  add_text(body, own_name);
  add_message(to_server_, 'B', body.append(rest));
  expect('B');
  add_close(to_server_, 'S', own_name);
  expect('C', Whose::ours);
}

// After an error it may be left at the server, where SQL could execute it; and which of the portals without a
// name is there is not known.
void Relay::close_own_statement() {
  if (!std::exchange(statements_.may_hold_ours, false)) return;
  add_close(to_server_, 'S', own_name);
  expect('C', Whose::ours);
  close_own_portal();
  statements_.unnamed_portal = {};
}

void Relay::take_bind(std::string_view message, std::string_view body) {
  const auto portal = take_text(body);
  const auto name = portal ? take_text(body) : std::nullopt;
  if (!name) return end("08P01", "invalid message format");
  const auto kind = statements_.kind_of(*name);
  if (is_transaction_control(kind) && !portal->empty())
    return end("0A000", "a named portal of a statement for transactions is not relayed");
  if (!send_prelude(kind)) return;
  Statements bound;
  if (kind == Kind::begin || kind == Kind::set_transaction)
    bound = classify_statements(statements_.text_of(*name));
  bound.kind = kind;
  if (portal->empty()) statements_.unnamed_portal = bound;
  if (!name->empty() && keeps_text(kind)) {
    if (message.size() < read_number(message.substr(1)) + 1)
      return end("08P01", "a statement for transactions or settings takes no parameters");
    bind_special(*portal, statements_.text_of(*name), body);
  } else {
    to_server_.append(message);
    expect('B');
  }
  if (!portal->empty()) transaction_.set_access(bound);
}

void Relay::take_execute(std::string_view message, std::string_view body) {
  const auto portal = take_text(body);
  if (!portal) return end("08P01", "invalid message format");
  const bool is_named = !portal->empty();
  const auto kind = is_named ? Kind::ordinary : statements_.unnamed_portal.kind;
  // A cursor that outlived its transaction.
  if (is_named && transaction_.needs_admission_first() && !send_prelude(Kind::ordinary)) return;
  to_server_.append(message);
  auto& reply = expect('E');
  if (!is_named) transaction_.set_access(statements_.unnamed_portal);
  if (kind == Kind::begin) reply.ends_own_block = transaction_.begin_block();
  if (kind == Kind::rollback_to) reply.rollbacks_to = 1;
  if (kind != Kind::end && kind != Kind::chain) return;
  reply.ends_transaction = true;
  reply.ends_own_block = transaction_.end_with_execute(kind);
}

void Relay::take_describe(std::string_view message, std::string_view body) {
  if (body.size() < 2) return end("08P01", "invalid message format");
  if (body.front() == 'S' && !send_prelude(statements_.kind_of(body.substr(1, body.size() - 2)))) return;
  to_server_.append(message);
  expect('D');
}

void Relay::take_close(std::string_view message, std::string_view body) {
  if (body.size() < 2) return end("08P01", "invalid message format");
  to_server_.append(message);
  auto& reply = expect('C');
  if (body.front() == 'S')
    reply.replaced = statements_.replace(body.substr(1, body.size() - 2), Kind::ordinary, "");
}

void Relay::take_sync() {
  if (transaction_.is_in_own_block() && flight_ != Flight::failed) {
    send_own("COMMIT");
    close_own_portal();
  }
  sync();
}

void Relay::lose_claims() {
  if (is_over() || std::exchange(lease_, Lease::lost) == Lease::lost) return;
  if (!is_ready())
    return end("57P03", "the sidecar lost what it held before this session began", "Connect again.");
  end_where_lost();
  // Of a pipeline whose Sync is not taken any more the server answers what it has done.
  if (!is_over() && flight_ != Flight::none) add_message(to_server_, 'H', {});
}

void Relay::end_where_lost() {
  if (lease_ != Lease::lost || is_over()) return;
  // Amid a message of the server's the client would take it for a part of that.
  if (from_server_.passing > 0 && !from_server_.is_dropped && !may_be_committing()) {
    phase_ = Phase::over;
    return;
  }
  if (!may_be_committing())
    return end("57P01",
               "terminating connection because the sidecar no longer holds what this session writes under",
               "Nothing that was not committed is kept. Connect again, and start over from the read.");
  // The rest of this message would have to come before the answers do: the client is not told what is not
  // known.
  if (from_client_.passing > 0 && flight_ != Flight::none) phase_ = Phase::over;
}

// Something that the client has sent is perhaps being committed, and its answer is to come.
bool Relay::may_be_committing() const noexcept {
  if (replies_.has_end_of_transaction()) return true;
  return transaction_.status() == 'I' && copy_in_ != CopyIn::open && replies_.has_ready_for_query();
}

}  // namespace fenceguard::pgwire
