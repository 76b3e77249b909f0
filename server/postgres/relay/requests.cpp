// What the client says, in a session that is guarded.

#include <fmt/format.h>

#include <algorithm>

#include "server/postgres/relay/relay.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr std::string_view own_name = "fenceguard admission";
constexpr std::size_t password_bytes_max = 65'535;  // as PostgreSQL has it
constexpr std::size_t names_bytes_max = 8 * 1024;
constexpr std::size_t special_bytes_max = 1024;  // of a text that is kept
constexpr std::size_t specials_max = 1024;
constexpr std::string_view make_writable = "SET TRANSACTION READ WRITE";
constexpr std::string_view keep_read_only = "SET TRANSACTION READ ONLY";
// After a snapshot no transaction becomes writable.
constexpr std::string_view take_snapshot = "SELECT 1";

// Always fails, and can be parsed in a block that is aborted, too.
constexpr std::string_view never_executed =
    R"(ROLLBACK TO "EXECUTE of a statement for transactions is refused")";

// Of these the text is kept, by the statement's name.
bool has_text(Kind kind) noexcept {
  return kind != Kind::ordinary && kind != Kind::call && kind != Kind::rollback_to;
}

// What may come before our statements: it writes nothing, and takes no snapshot.
bool may_precede(Kind kind, char status) noexcept {
  if (kind == Kind::discard) return status == 'I';
  return has_text(kind) && kind != Kind::refused;
}

bool is_control(Kind kind) noexcept {
  return kind == Kind::begin || kind == Kind::end || kind == Kind::chain;
}

// One text and its NUL.
bool is_text(std::string_view body) noexcept {
  return !body.empty() && body.find('\0') == body.size() - 1;
}

}  // namespace

// How many bytes were taken: the message, or its beginning, the rest of which passes; 0: it is not all there,
// or is held.
std::size_t Relay::take_client_message(char type, std::string_view in, std::size_t size) {
  const auto pass = [&] {
    const auto now = std::min(in.size(), size);
    to_server_.append(in.substr(0, now));
    client_passing_ = size - now;
    return now;
  };
  const auto break_off = [&](std::string_view state, std::string_view why) {
    end(state, why);
    return std::size_t{0};
  };
  if (phase_ == Phase::authenticating) {
    if (type == 'X') return pass();
    if (type != 'p' || size > password_bytes_max) return break_off("08P01", "expected password response");
    return pass();
  }
  if (type == 'd' || type == 'c' || type == 'f') {
    // Before the server has said that it copies, it is not known which Sync it swallows; and half of one
    // would take in what we say next. What is left over from a COPY that failed, the server ignores.
    const bool was_held = is_held();
    is_copy_waiting_ = !is_copying_in_ && (was_held || !expected_.empty());
    // What it waits for comes only if it is asked for: no Sync of the client's may follow.
    if (is_copy_waiting_ && !was_held) add_message(to_server_, 'H', {});
    if (is_copy_waiting_) return 0;
    if (type != 'd') is_copying_in_ = false;
    return pass();
  }
  if (is_held()) return 0;
  if (std::string_view{"QPBEDCSHFX"}.find(type) == std::string_view::npos)
    return break_off("08P01",
                     fmt::format("invalid frontend message type {}", static_cast<unsigned char>(type)));
  if (type == 'H' || type == 'X') return pass();
  if (is_copying_in_) {
    // The server swallows it, unless the COPY has failed there already: so it is swallowed here.
    if (type == 'S' && size == header_bytes) return size;
    return break_off("08P01", "unexpected message type during COPY from stdin");
  }
  if (is_skipping_ && type != 'S') return pass();
  const bool is_statement = type == 'Q' || type == 'P';
  if (type != 'B' && size > (is_statement ? options_.statement_bytes_max : names_bytes_max) + header_bytes &&
      type != 'F')
    return break_off("54000", "a statement is longer than --statement-limit");
  const bool is_enough = in.size() >= size || type == 'F' || (type == 'B' && in.size() >= names_bytes_max);
  if (!is_enough) return 0;
  const auto message = in.substr(0, std::min(in.size(), size));
  const auto body = message.substr(header_bytes);
  if (is_in_flight_ && (type == 'Q' || type == 'F'))
    return break_off("0A000",
                     "a query amid messages of the extended protocol is not relayed: send a Sync before it");
  if (!is_in_flight_) forget_own();
  is_in_flight_ = type != 'Q' && type != 'F';
  switch (type) {
    case 'Q':
      take_query(message, body);
      break;
    case 'P':
      take_parse(message, body);
      break;
    case 'B':
      take_bind(message, body);
      break;
    case 'E':
      take_execute(message, body);
      break;
    case 'D':
      take_describe(message, body);
      break;
    case 'C':
      take_close(message, body);
      break;
    case 'S':
      take_sync();
      break;
    default:
      if (!take_call(message, message.size() == size)) return 0;
  }
  client_passing_ = is_over() ? 0 : size - message.size();
  if (expected_.size() >= expected_max && client_passing_ == 0 && !is_held()) {
    // So that what is waited for comes.
    is_full_ = true;
    add_message(to_server_, 'H', {});
  }
  return message.size();
}

void Relay::expect(char request, Whose whose) {
  Expected expected;
  expected.request = request;
  expected.whose = whose;
  expected.was_read_only = is_read_only_;
  expected.was_chained_read_only = is_chained_read_only_;
  expected_.push_back(std::move(expected));
}

void Relay::sync() {
  add_message(to_server_, 'S', {});
  expect('S');
}

void Relay::note_mode(const Statements& statements) noexcept {
  if (statements.says_read_only) is_read_only_ = true;
  if (statements.says_read_write) is_read_only_ = false;
}

// To the transaction behind. An aborted one has forgotten what was set in it, and keeps what it was handed.
void Relay::hand_on_mode(Kind kind) noexcept {
  is_chained_read_only_ = kind == Kind::chain && (status_ == 'E' ? is_chained_read_only_ : is_read_only_);
  is_read_only_ = is_chained_read_only_;
}

bool Relay::needs_opening(Kind kind) const noexcept {
  return status_ != 'E' && !is_open_ && (is_strict_ || !may_precede(kind, status_));
}

std::string Relay::opening_query() const {
  if (mode_ == Mode::read_only) return fmt::format("{};{};", keep_read_only, take_snapshot);
  if (is_read_only_) return fmt::format("{};", admission_);
  return fmt::format("{};{};", make_writable, admission_);
}

// Those of opening_query(), in which a claim may hold a semicolon.
std::size_t Relay::opening_statements() const noexcept {
  return mode_ == Mode::fenced && is_read_only_ ? 1 : 2;
}

void Relay::refuse(std::string_view why, std::string_view hint, bool syncs) {
  std::string error;
  add_error(error, {.severity = "ERROR", .state = "0A000", .message = why, .hint = hint});
  raise(std::move(error), syncs);
}

// The server is made to raise an error, so that a block is aborted, and this one is told in its place.
void Relay::raise(std::string error, bool syncs) {
  refusal_ = std::move(error);
  add_parse(to_server_, own_name, "refused");
  expect('P', Whose::refusal);
  if (syncs) sync();
}

void Relay::take_query(std::string_view message, std::string_view body) {
  if (!is_text(body)) return end("08P01", "invalid message format");
  const std::string text{body.substr(0, body.size() - 1)};
  const auto found = look_at(text);
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
  const bool opens = found.count > 0 && needs_opening(kind);
  if (opens && !stale_.empty()) return raise(stale_, true);
  if (found.count > 0) note_mode(found);
  expect('Q');
  expected_.back().rollbacks_to = found.rollbacks_to;
  if (opens) {
    send_opened(text, found);
  } else {
    to_server_.append(message);
  }
  if (found.last == Kind::end || found.last == Kind::chain) {
    expected_.back().is_end = true;
    is_open_ = false;
    is_strict_ = true;
    hand_on_mode(found.last);
  }
}

// The query that was expected last, with what is ours in front of it, or behind its BEGIN and what may come
// before the first statement of a block.
void Relay::send_opened(const std::string& text, const Statements& found) {
  const auto opening = opening_query();
  const auto place = found.count == 1 ? Place{} : is_strict_ ? found.behind_begin : found.behind_preamble;
  // A character is a byte, or what begins one.
  const bool is_utf8 = parameters_["client_encoding"] == "UTF8";
  const auto continues = [&](char c) { return is_utf8 && (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
  const auto bytes_more =
      std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place.at), continues);
  expected_.back().shift = {opening.size(), place.at - static_cast<std::size_t>(bytes_more)};
  own_before_ = place.statements;
  own_left_ = opening_statements();
  is_open_ = true;
  std::string changed = text;
  changed.insert(place.at, opening);
  changed.push_back('\0');
  add_message(to_server_, 'Q', changed);
}

// In a transaction of its own it would not be admitted. In a block that was not opened yet, what opens it
// goes ahead, and is answered first.
bool Relay::take_call(std::string_view message, bool is_whole) {
  const bool is_refused = status_ == 'I' || (status_ == 'T' && !is_open_ && !stale_.empty());
  if (is_refused && !is_whole) {
    end("0A000", "a function call of the protocol that is refused is longer than what is read of it");
    return false;
  }
  if (status_ == 'I') {
    refuse("a function call of the protocol is relayed only inside a block", "Send BEGIN before it.", true);
    return true;
  }
  if (status_ == 'T' && !is_open_) {
    if (!stale_.empty()) {
      raise(stale_, true);
      return true;
    }
    open();
    close_own_portal();
    sync();
    expected_.back().is_before_call = true;
    is_in_flight_ = true;
    return false;
  }
  expect('Q', std::exchange(is_call_refused_, false) ? Whose::refusal : Whose::client);
  to_server_.append(message);
  return true;
}

// It is parsed, executed and forgotten in one go, so that nothing can take its place.
void Relay::send_own(std::string_view text) {
  add_parse(to_server_, own_name, text);
  add_bind(to_server_, own_name);
  add_execute(to_server_);
  add_close(to_server_, 'S', own_name);
  for (const char request : {'P', 'B', 'E', 'C'}) expect(request, Whose::ours);
}

void Relay::open() {
  if (mode_ == Mode::read_only) {
    send_own(keep_read_only);
    send_own(take_snapshot);
  } else {
    if (!is_read_only_) send_own(make_writable);
    send_own(admission_);
    expected_[expected_.size() - 2].admits = true;
  }
  is_open_ = true;
}

// Before a statement of this kind is parsed, bound or described.
bool Relay::open_for(Kind kind) {
  const bool opens = needs_opening(kind);
  if (opens && !stale_.empty()) {
    raise(stale_, false);
    return false;
  }
  const bool begins = kind == Kind::call && !is_in_block_ && status_ != 'E';
  if (begins) {
    send_own("BEGIN");
    expected_[expected_.size() - 2].wraps = true;
    is_in_block_ = is_wrapped_ = true;
  }
  if (opens) open();
  if (begins || opens) close_own_portal();
  return true;
}

void Relay::close_own_portal() {
  add_close(to_server_, 'P', "");
  expect('C', Whose::ours);
}

Kind Relay::kind_of_statement(std::string_view name) const {
  const auto found = specials_.find(name);
  return found == specials_.end() ? Kind::ordinary : found->second.kind;
}

// From what was expected last on.
void Relay::remember(std::string_view name, Kind kind, std::string_view text) {
  const auto before = specials_.find(name);
  if (before == specials_.end() && kind == Kind::ordinary) return;
  auto& expected = expected_.back();
  expected.name = name;
  expected.is_replaced = true;
  if (before != specials_.end()) expected.before = before->second;
  if (kind == Kind::ordinary) {
    specials_.erase(before);
  } else {
    specials_.insert_or_assign(std::string{name}, Special{kind, std::string{text}});
  }
}

void Relay::take_parse(std::string_view message, std::string_view body) {
  const auto name = take_text(body);
  const auto given = name ? take_text(body) : std::nullopt;
  if (!given) return end("08P01", "invalid message format");
  const std::string text{*given};
  const auto found = look_at(text);
  if (found.why != nullptr) return refuse(found.why, "", false);
  // Of a broken text or several statements the server parses none.
  const bool is_probe = found.is_broken || found.count > 1;
  const auto kind = is_probe || found.count == 0 ? Kind::ordinary : found.kind;
  if (has_text(kind) && (text.size() > special_bytes_max || specials_.size() >= specials_max))
    return end("54000", "too many, or too long, prepared statements for transactions");
  if (!open_for(kind)) return;
  if (!name->empty() && is_control(kind)) {
    // Under a name EXECUTE would reach it, in SQL or in a function, and end the transaction unseen: the
    // server says what it thinks of it, and keeps one that always fails.
    add_parse(to_server_, own_name, text);
    add_close(to_server_, 'S', own_name);
    add_parse(to_server_, *name, never_executed);
    for (const char request : {'P', 'C'}) expect(request, Whose::ours);
  } else {
    to_server_.append(message);
  }
  expect('P', is_probe ? Whose::probe : Whose::client);
  if (is_probe) add_message(to_server_, 'H', {});  // nothing follows it before its answer
  remember(*name, kind, has_text(kind) ? std::string_view{text} : std::string_view{});
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
void Relay::forget_own() {
  if (!std::exchange(is_own_left_, false)) return;
  add_close(to_server_, 'S', own_name);
  expect('C', Whose::ours);
  close_own_portal();
  portal_ = {};
}

void Relay::take_bind(std::string_view message, std::string_view body) {
  const auto portal = take_text(body);
  const auto name = portal ? take_text(body) : std::nullopt;
  if (!name) return end("08P01", "invalid message format");
  const auto kind = kind_of_statement(*name);
  if (is_control(kind) && !portal->empty())
    return end("0A000", "a named portal of a statement for transactions is not relayed");
  if (!open_for(kind)) return;
  Statements bound;
  if (kind == Kind::begin || kind == Kind::set_transaction)
    bound = look_at(specials_.find(*name)->second.text);
  bound.kind = kind;
  if (portal->empty()) portal_ = bound;
  if (!name->empty() && has_text(kind)) {
    if (message.size() < read_number(message.substr(1)) + 1)
      return end("08P01", "a statement for transactions or settings takes no parameters");
    bind_special(*portal, specials_.find(*name)->second.text, body);
  } else {
    to_server_.append(message);
    expect('B');
  }
  if (!portal->empty()) note_mode(bound);
}

void Relay::take_execute(std::string_view message, std::string_view body) {
  const auto portal = take_text(body);
  if (!portal) return end("08P01", "invalid message format");
  const auto kind = portal->empty() ? portal_.kind : Kind::ordinary;
  // A cursor that outlived its transaction.
  if (!portal->empty() && is_strict_ && !open_for(Kind::ordinary)) return;
  to_server_.append(message);
  expect('E');
  if (portal->empty()) note_mode(portal_);
  if (kind == Kind::begin) {
    is_in_block_ = true;
    expected_.back().unwraps = std::exchange(is_wrapped_, false);
  }
  if (kind == Kind::rollback_to) expected_.back().rollbacks_to = 1;
  if (kind != Kind::end && kind != Kind::chain) return;
  expected_.back().is_end = true;
  expected_.back().unwraps = std::exchange(is_wrapped_, false);
  is_open_ = false;
  is_strict_ = true;
  hand_on_mode(kind);
  status_ = kind == Kind::chain ? 'T' : 'I';  // an aborted one has ended, too
  if (kind == Kind::end) is_in_block_ = false;
}

void Relay::take_describe(std::string_view message, std::string_view body) {
  if (body.size() < 2) return end("08P01", "invalid message format");
  if (body.front() == 'S' && !open_for(kind_of_statement(body.substr(1, body.size() - 2)))) return;
  to_server_.append(message);
  expect('D');
}

void Relay::take_close(std::string_view message, std::string_view body) {
  if (body.size() < 2) return end("08P01", "invalid message format");
  to_server_.append(message);
  expect('C');
  if (body.front() == 'S') remember(body.substr(1, body.size() - 2), Kind::ordinary, "");
}

void Relay::take_sync() {
  if (is_wrapped_ && !is_skipping_) {
    send_own("COMMIT");
    close_own_portal();
  }
  sync();
}

}  // namespace fenceguard::pgwire
