#include "server/postgres/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "guard/claim_keys.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr std::size_t ahead_bytes_max = 64 * 1024;     // of the client's, that are read ahead
constexpr std::size_t answer_bytes_max = 1024 * 1024;  // of an error or a notice that is looked at
constexpr std::array backslash_encodings{"SJIS", "SHIFT_JIS_2004", "BIG5", "GBK", "GB18030", "UHC", "JOHAB"};

// What is looked at; the rest passes as it comes.
bool is_whole(char type) noexcept {
  return std::string_view{"RSKZENC"}.find(type) != std::string_view::npos;
}

// The last message with which the server answers a request of the extended protocol.
bool answers(char request, char type) noexcept {
  switch (request) {
    case 'P':
      return type == '1';
    case 'B':
      return type == '2';
    case 'C':
      return type == '3';
    case 'D':
      return type == 'T' || type == 'n';
    case 'E':
      return type == 'C' || type == 's' || type == 'I';
    default:
      return false;
  }
}

}  // namespace

Relay::Relay(const RelayOptions& options, RelayObserver& observer, Startup startup,
             const std::vector<Claim>& held)
    : options_{options}, observer_{observer}, startup_{std::move(startup)}, brings_claims_{held.empty()} {
  for (const auto& claim : held) claims_.push_back({claim, {}});
  take_startup();
}

void Relay::end(std::string_view state, std::string_view message, std::string_view hint) {
  if (phase_ == Phase::over) return;
  add_error(to_client_, {.severity = "FATAL", .state = state, .message = message, .hint = hint});
  phase_ = Phase::over;
}

bool Relay::is_held() const noexcept {
  if (phase_ == Phase::advancing || is_lost_) return true;
  if (is_copying_in_) return false;
  if (is_copy_waiting_ && !expected_.empty()) return true;
  if (is_full_) return true;
  if (expected_.empty()) return false;
  const auto& last = expected_.back();
  return last.request == 'S' || last.request == 'Q' || last.whose == Whose::probe;
}

bool Relay::takes_client() const noexcept {
  return !is_over() && (!is_held() || client_in_.size() < ahead_bytes_max);
}

bool Relay::is_idle() const noexcept {
  return phase_ == Phase::ready && expected_.empty() && status_ == 'I' && !is_open_ && !is_in_flight_ &&
         server_passing_ == 0;
}

void Relay::probe_server() {
  if (phase_ == Phase::ready && mode_ != Mode::raw && client_passing_ == 0 && to_server_.empty())
    add_message(to_server_, 'H', {});
}

void Relay::from_client(std::string_view bytes) {
  if (is_over()) return;
  if (client_in_.empty()) {
    bytes.remove_prefix(take_client(bytes));
    client_in_.assign(bytes);
    return;
  }
  client_in_.append(bytes);
  client_in_.erase(0, take_client(client_in_));
}

void Relay::from_server(std::string_view bytes) {
  if (is_over()) return;
  if (server_in_.empty()) {
    bytes.remove_prefix(take_server(bytes));
    server_in_.assign(bytes);
  } else {
    server_in_.append(bytes);
    server_in_.erase(0, take_server(server_in_));
  }
  end_where_lost();
  if (expected_.size() < expected_max / 2) is_full_ = false;
  // It may be ready for what was held.
  if (!is_over() && !client_in_.empty() && !is_held()) client_in_.erase(0, take_client(client_in_));
}

std::size_t Relay::take_client(std::string_view in) {
  std::size_t at = 0;
  while (!is_over() && at < in.size()) {
    const auto rest = in.substr(at);
    if (client_passing_ > 0) {
      const auto part = rest.substr(0, client_passing_);
      to_server_.append(part);
      client_passing_ -= part.size();
      at += part.size();
      continue;
    }
    if (mode_ == Mode::raw && phase_ == Phase::ready) {
      to_server_.append(rest);
      is_in_flight_ = true;
      return in.size();
    }
    if (rest.size() < header_bytes) break;
    const std::size_t length = read_number(rest.substr(1));
    if (length < 4 || length >= (std::size_t{1} << 31)) {
      end("08P01", "invalid message length");
      break;
    }
    const auto taken = take_client_message(rest.front(), rest, length + 1);
    if (taken == 0) break;
    at += taken;
  }
  return at;
}

std::size_t Relay::take_server(std::string_view in) {
  std::size_t at = 0;
  while (!is_over() && at < in.size()) {
    const auto rest = in.substr(at);
    if (server_passing_ > 0) {
      const auto part = rest.substr(0, server_passing_);
      if (!is_dropping_) to_client_.append(part);
      server_passing_ -= part.size();
      at += part.size();
      continue;
    }
    if (rest.size() < header_bytes) break;
    const std::size_t length = read_number(rest.substr(1));
    if (length < 4 || length >= (std::size_t{1} << 31)) {
      end("08P01", "the server sent what is no message");
      break;
    }
    if (mode_ == Mode::raw && phase_ == Phase::ready) {
      // Looked at only to know when it may be ended.
      if (rest.front() == 'Z') {
        if (rest.size() == header_bytes) break;
        status_ = rest[header_bytes];
        is_in_flight_ = false;
      }
      is_dropping_ = false;
      server_passing_ = length + 1;
      continue;
    }
    const char type = rest.front();
    const auto size = length + 1;
    const bool is_looked_at =
        (is_whole(type) && size <= answer_bytes_max) || phase_ != Phase::ready || size <= header_bytes + 4;
    if (is_looked_at && size > answer_bytes_max) {
      end("08P01", "the server sent a message that is too long");
      break;
    }
    if (is_looked_at && rest.size() < size) break;
    if (is_looked_at) {
      take_server_message(type, rest.substr(0, size), rest.substr(header_bytes, size - header_bytes));
      at += size;
      continue;
    }
    take_answer(type);
    server_passing_ = size;
  }
  return at;
}

void Relay::take_server_message(char type, std::string_view message, std::string_view body) {
  if (phase_ == Phase::authenticating && type == 'R') return take_authentication(message, body);
  if (type == 'S') {
    to_client_.append(message);
    return take_parameter(body);
  }
  if (phase_ == Phase::advancing) return take_advance(type, body);
  if (type == 'Z') return take_ready(message, body.empty() ? 'I' : body.front());
  if (type == 'E' && phase_ == Phase::ready) return take_error(body);
  if (phase_ == Phase::authenticating) {
    to_client_.append(message);
    return;
  }
  const bool is_expected = type == 'C' && expects_end(body);
  take_answer(type);
  if (is_dropping_) return;
  if (type == 'C') take_tag(body, is_expected);
  const auto shift = expected_.empty() ? Shift{} : expected_.front().shift;
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

void Relay::take_parameter(std::string_view body) {
  const auto name = take_text(body);
  const auto value = name ? take_text(body) : std::nullopt;
  if (!value) return;
  constexpr std::array matter{"server_version", "standard_conforming_strings", "client_encoding",
                              "default_transaction_read_only", "in_hot_standby"};
  if (std::ranges::find(matter, *name) == matter.end()) return;
  parameters_.insert_or_assign(std::string{*name}, std::string{*value});
  if (phase_ == Phase::ready && mode_ != Mode::raw) (void)objects_to_parameters();
}

// True, and it is over, where the session cannot be guarded any more.
bool Relay::objects_to_parameters() {
  if (parameters_["default_transaction_read_only"] != "on") {
    end("0A000",
        "default_transaction_read_only is no longer on, which keeps this session from writing without its "
        "claim",
        "The session is ended. Leave the setting alone.");
  } else if (parameters_["standard_conforming_strings"] == "off") {
    end("0A000", "a session with standard_conforming_strings=off is not relayed",
        "Its text would be read otherwise than by the server.");
  } else if (std::ranges::find(backslash_encodings, parameters_["client_encoding"]) !=
             backslash_encodings.end()) {
    end("0A000", fmt::format("a session with the encoding {} is not relayed", parameters_["client_encoding"]),
        "A backslash may be half of a character in it. Set client_encoding to UTF8.");
  }
  return is_over();
}

void Relay::take_ready(std::string_view message, char status) {
  if (phase_ == Phase::authenticating) {
    ready_message_.assign(message);
    return begin_session();
  }
  const bool is_owed = expected_.size() == 1 && (expected_[0].request == 'S' || expected_[0].request == 'Q');
  if (!is_owed || own_left_ > 0) return end("08P01", "the server is out of step");
  const bool is_before_call = expected_[0].is_before_call;
  expected_.clear();
  own_before_ = 0;
  status_ = status;
  is_skipping_ = is_copying_in_ = is_dropping_ = is_in_flight_ = false;
  is_in_block_ = status != 'I';
  if (is_wrapped_ && !is_rolling_back_ && status != 'I') {
    is_rolling_back_ = true;
    // No query, which would take the client's statement without a name with it.
    forget_own();
    send_own("ROLLBACK");
    return sync();
  }
  is_wrapped_ = is_rolling_back_ = false;
  if (is_before_call) return;
  if (status == 'I') is_open_ = is_strict_ = is_read_only_ = is_chained_read_only_ = false;
  if (status == 'I') portal_ = {};  // in a block it outlives a Sync, and ROLLBACK TO
  if (status == 'I' && std::exchange(is_below_, false) && !is_lost_) {
    ready_message_.assign(message);
    return advance_claims();
  }
  to_client_.append(message);
}

void Relay::take_error(std::string_view body) {
  const auto severity = field_of(body, 'V').value_or("");
  const bool is_fatal = severity == "FATAL" || severity == "PANIC";
  const auto state = field_of(body, 'C').value_or("");
  if (expected_.empty() && !is_in_flight_ && !is_fatal) return end("08P01", "the server is out of step");
  auto whose = Whose::client;
  Shift shift;
  if (!expected_.empty()) {
    whose = expected_.front().whose;
    shift = expected_.front().shift;
  }
  const bool is_own = (own_left_ > 0 && own_before_ == 0) || whose == Whose::ours;
  own_left_ = own_before_ = 0;
  is_own_left_ = is_in_flight_;
  is_copying_in_ = is_dropping_ = false;
  take_back();
  if (is_own && (state == "ZF001" || state == "ZF002")) {
    refused_by_fence(state, body);
    add_message(stale_, 'E', body);
  }
  // It was put back meanwhile. The token is ours for as long as the lease is.
  if (is_own && state == "40001" && !brings_claims_) is_below_ = true;
  if (!expected_.empty() && expected_.front().is_before_call && !is_fatal) {
    is_call_refused_ = true;
    add_message(refusal_, 'E', body);
  } else if (whose == Whose::refusal && !is_fatal) {
    to_client_.append(std::exchange(refusal_, {}));
  } else if (mode_ == Mode::read_only && state == "25006") {
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

// What was sent up to the next Sync does not come about.
void Relay::take_back() {
  const auto end =
      std::ranges::find_if(expected_, [](const Expected& e) { return e.request == 'S' || e.request == 'Q'; });
  for (auto at = end; at != expected_.begin();) {
    auto& undone = *--at;
    if (undone.wraps) is_wrapped_ = false;
    if (undone.unwraps) is_wrapped_ = true;
    if (!undone.is_replaced) continue;
    if (undone.before) {
      specials_.insert_or_assign(undone.name, *std::move(undone.before));
    } else {
      specials_.erase(undone.name);
    }
  }
  if (end != expected_.begin()) {
    is_read_only_ = expected_.front().was_read_only;
    is_chained_read_only_ = expected_.front().was_chained_read_only;
  }
  is_skipping_ = end == expected_.end();
  expected_.erase(expected_.begin(), end);
}

// Sets is_dropping_: whether this message is kept from the client.
void Relay::take_answer(char type) {
  is_dropping_ = false;
  if (type == 'A' || expected_.empty()) return;
  auto& first = expected_.front();
  if (first.request == 'Q') {
    is_dropping_ = own_left_ > 0 && own_before_ == 0;
    if (own_before_ > 0 && type == 'C') --own_before_;
    if (is_dropping_ && type == 'C' && --own_left_ == 0 && first.whose == Whose::client) tell_admitted();
    if (type == 'G') is_copying_in_ = true;
    return;
  }
  is_dropping_ = first.whose == Whose::ours;
  if (type == 'N') return;
  if (type == 'G') {
    // A Sync that it was sent before is swallowed; anything else makes the COPY fail.
    is_copying_in_ = std::all_of(expected_.begin() + 1, expected_.end(),
                                 [](const Expected& e) { return e.request == 'S'; });
    if (is_copying_in_) expected_.erase(expected_.begin() + 1, expected_.end());
    return;
  }
  if (!answers(first.request, type)) return;
  if (first.whose == Whose::probe)
    return end("0A000", "the scanner does not read this text as the server does");
  if (first.admits) tell_admitted();
  expected_.pop_front();
}

void Relay::tell_admitted() {
  for (const auto& [claim, signature] : claims_) observer_.ruled("write", claim, Verdict::admitted, 0);
}

// Which of the claims it was, the detail says.
void Relay::refused_by_fence(std::string_view state, std::string_view body) {
  const auto detail = field_of(body, 'D').value_or("");
  for (const auto& [claim, signature] : claims_) {
    if (claims_.size() > 1 &&
        detail.find(fmt::format("\"{}\"", claim.resource.name())) == std::string_view::npos)
      continue;
    observer_.ruled("write", claim, state == "ZF001" ? Verdict::stale : Verdict::conflict, 0);
    return;
  }
}

// Whether this tag of what is answered is that of a statement that is known to end a transaction, or to go
// back to a savepoint of one. The admission came ahead of the first savepoint: no ROLLBACK TO undoes it.
bool Relay::expects_end(std::string_view tag) noexcept {
  if (expected_.empty()) return false;
  auto& first = expected_.front();
  if (first.rollbacks_to == 0 || !tag.starts_with("ROLLBACK")) return first.is_end;
  --first.rollbacks_to;
  return true;
}

void Relay::take_tag(std::string_view body, bool is_expected) {
  // Whatever ended a transaction unseen (EXECUTE reaches no such statement) does not pass for admitted. A
  // ROLLBACK TO that was not seen says the same; its transaction is admitted once more.
  if (!is_expected && (body.starts_with("COMMIT") || body.starts_with("ROLLBACK"))) {
    is_open_ = false;
    is_strict_ = true;
  }
  // What the server has forgotten is forgotten here, unless something was parsed behind it.
  if (!body.starts_with("DISCARD ALL") && !body.starts_with("DEALLOCATE ALL")) return;
  if (std::ranges::none_of(expected_, [](const Expected& e) { return e.request == 'P'; })) specials_.clear();
}

}  // namespace fenceguard::pgwire
