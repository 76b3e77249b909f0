// How a session begins: its startup, and the advance of its claims before the client hears that it is ready.

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <charconv>
#include <span>
#include <stdexcept>

#include "guard/claim_keys.hpp"
#include "server/postgres/relay/relay.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr int version_min = 14;  // from then on it tells when default_transaction_read_only changes
constexpr std::string_view read_only_setting = "default_transaction_read_only";

constexpr std::string_view handover_setting = "fenceguard.relayed_claims";

std::string digest_of(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned bytes = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &bytes, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error{"no SHA-256"};
  std::string hex;
  for (const auto byte : std::span{digest}.first(bytes)) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

void Relay::take_startup() {
  const auto given = take_claims(startup_);
  if (!brings_claims_ && given && !given->empty())
    return end("22023",
               "this sidecar holds the claims of its clients (--hold): a connection brings none of its own",
               "Leave out the setting fenceguard.session_claims. Nothing was written.");
  try {
    if (given && !given->empty()) claims_ = read_claims(*given);
  } catch (const InvalidInput& error) {
    return end(
        "22023", fmt::format("the setting fenceguard.session_claims cannot be used: {}", error.what()),
        "It is a JSON array such as [{\"resource\": \"accounts/1\", \"token\": \"34\", \"holder\": \"h\"}]; "
        "in "
        "PGOPTIONS and options each space and each backslash of it has a backslash in front. Nothing was "
        "written.");
  }
  for (const auto& [claim, signature] : claims_) {
    if (!brings_claims_ || options_.keys_required == nullptr ||
        options_.keys_required->verify(claim, signature))
      continue;
    observer_.not_signed(claim);
    return end(
        "28000",
        fmt::format("the claim to '{}' is not signed by a key that is known here", claim.resource.name()),
        "Each claim has a member 'signature'. Nothing was written.");
  }
  if (!claims_.empty()) {
    mode_ = Mode::fenced;
    hand_over();
  } else if (options_.unfenced != Unfenced::allow) {
    mode_ = Mode::read_only;
  }
  if (mode_ == Mode::read_only && options_.unfenced == Unfenced::refuse) {
    observer_.missing();
    return end("ZF003", "a connection without a claim",
               "Give it as it connects: options=-c fenceguard.session_claims=[...], which 'fenceguard exec' "
               "puts into "
               "PGOPTIONS.");
  }
  if (mode_ != Mode::raw) {
    const auto* replication = startup_.find("replication");
    if (replication != nullptr && !replication->empty())
      return end("0A000", "replication is not relayed", "Connect to the server directly for it.");
    startup_.set(read_only_setting, "on");
  }
  to_server_ = startup_.encode();
  if (to_server_.size() > startup_bytes_max)
    end("54000",
        fmt::format(
            "the startup packet of this session has {} bytes with its claims, and PostgreSQL takes {}",
            to_server_.size(), startup_bytes_max),
        "Use fewer claims, or shorter names. Nothing was written.");
}

// The claims go to the server once, in a setting that other sessions cannot read. Its statements are read by
// others, and name them by a digest.
void Relay::hand_over() {
  const auto handed = options_.draw_nonce() + write_claims(claims_);
  startup_.set(handover_setting, handed);
  seal_ = digest_of(handed);
  admission_ = fmt::format("SELECT fenceguard.confirm_relayed('{}')", seal_);
}

void Relay::begin_session() {
  if (options_.needs_primary && parameters_["in_hot_standby"] == "on") {
    observer_.is_standby();
    return end("57P03", "the server is a standby, and the sidecar is to connect to a primary",
               "Connect again: the next of its servers is tried.");
  }
  if (mode_ == Mode::raw) {
    to_client_.append(ready_message_);
    phase_ = Phase::ready;
    is_begun_ = true;
    return;
  }
  int version = 0;
  const auto& text = parameters_["server_version"];
  std::from_chars(text.data(), text.data() + text.size(), version);
  if (version < version_min)
    return end("0A000",
               fmt::format("PostgreSQL {} is too old for a guarded session; it takes {}", text, version_min));
  if (!parameters_.contains(std::string{read_only_setting}))
    return end(
        "0A000", "the server does not tell its settings: a pooler is between",
        "The sidecar connects to PostgreSQL itself; put a pooler in front of the sidecar, in session mode.");
  if (objects_to_parameters()) return;
  advance_claims();
}

// Before the client hears that it is ready.
void Relay::advance_claims() {
  phase_ = Phase::advancing;
  advanced_ = 0;
  advance_next();
}

void Relay::advance_next() {
  if (advanced_ == claims_.size()) {
    to_client_.append(std::exchange(ready_message_, {}));
    phase_ = Phase::ready;
    is_begun_ = true;
    return;
  }
  verdict_.clear();
  std::string body;
  add_text(body,
           fmt::format("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SELECT a.verdict,a.highest FROM "
                       "fenceguard.advance_relayed('{}',{},{}) a;COMMIT",
                       seal_, advanced_,
                       brings_claims_ ? options_.jump_max : 0));  // numbers of our own source are not bounded
  add_message(to_server_, 'Q', body);
}

void Relay::take_advance(char type, std::string_view body) {
  if (type == 'A') return add_message(to_client_, 'A', body);
  const auto& claim = claims_[advanced_].claim;
  if (type == 'D' && body.size() > 2) {
    auto rest = body.substr(2);
    for (auto* value : {&verdict_, &highest_}) {
      const auto length = static_cast<std::int32_t>(read_number(rest));
      rest.remove_prefix(std::min<std::size_t>(4, rest.size()));
      value->assign(rest.substr(0, length < 0 ? 0 : static_cast<std::size_t>(length)));
      rest.remove_prefix(value->size());
    }
  } else if (type == 'E' || (type == 'N' && field_of(body, 'V') == "WARNING")) {
    // A warning leaves it in doubt whether the advance is durable.
    const std::string message{field_of(body, 'M').value_or("")};
    const std::string state{field_of(body, 'C').value_or("XX000")};
    observer_.failed("advance", claim, {type == 'E' ? FaultKind::unavailable : FaultKind::unknown, message});
    const bool is_older = state == "42883";  // undefined_function
    end(type == 'E' ? state : "08007", message,
        is_older ? "The schema fenceguard of this database is older than the sidecar: run 'fenceguard sql "
                   "postgres | psql'."
                 : field_of(body, 'H').value_or(""));
  } else if (type == 'Z') {
    if (verdict_ != "admitted") return refuse_advance(verdict_, highest_);
    std::int64_t highest = 0;
    std::from_chars(highest_.data(), highest_.data() + highest_.size(), highest);
    observer_.ruled("advance", claim, Verdict::admitted, highest);
    ++advanced_;
    advance_next();
  }
}

// As fenceguard.raise_refusal() says it.
void Relay::refuse_advance(std::string_view verdict, std::string_view highest) {
  const auto& claim = claims_[advanced_].claim;
  const bool is_stale = verdict == "stale";
  std::int64_t mark = 0;
  std::from_chars(highest.data(), highest.data() + highest.size(), mark);
  observer_.ruled("advance", claim, is_stale ? Verdict::stale : Verdict::conflict, mark);
  const auto& resource = claim.resource.name();
  add_error(
      to_client_,
      {.severity = "FATAL",
       .state = is_stale ? "ZF001" : "ZF002",
       .message = is_stale ? fmt::format("the claim to '{}' is stale", resource)
                           : fmt::format("another holder uses the same token for '{}'", resource),
       .detail = fmt::format(R"({{"verdict": "{}", "token": "{}", "highest": "{}"}})", verdict,
                             to_string(claim.token), highest),
       .hint = is_stale
                   ? "A newer token was seen, or this one was closed. The lock was lost: take it again, and "
                     "start over from the read."
                   : "The token source issued one number twice. Take the lock again, and look after the "
                     "source."});
  phase_ = Phase::over;
}

}  // namespace fenceguard::pgwire
