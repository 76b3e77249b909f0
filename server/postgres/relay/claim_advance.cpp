#include "server/postgres/relay/claim_advance.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <stdexcept>

#include "guard/claim_keys.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

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

ClaimAdvance::ClaimAdvance(const RelayOptions& options, RelayObserver& observer,
                           const std::vector<Claim>& held)
    : options_{options}, observer_{observer}, is_held_{!held.empty()} {
  for (const auto& claim : held) claims_.push_back({claim, {}});
}

std::string ClaimAdvance::take_startup(Startup& startup) {
  if (auto error = read(startup); !error.empty()) return error;
  if (claims_.empty() && options_.unfenced == Unfenced::allow) return {};
  if (claims_.empty() && options_.unfenced == Unfenced::refuse) {
    observer_.missing();
    return fatal_error(
        "ZF003", "a connection without a claim",
        "Give it as it connects: options=-c fenceguard.session_claims=[...], which 'fenceguard "
        "exec' puts into PGOPTIONS.");
  }
  if (!claims_.empty()) hand_over(startup);
  const auto* replication = startup.find("replication");
  if (replication != nullptr && !replication->empty())
    return fatal_error("0A000", "replication is not relayed", "Connect to the server directly for it.");
  startup.set(read_only_setting, "on");
  return {};
}

std::string ClaimAdvance::read(Startup& startup) {
  const auto given = take_claims(startup);
  if (is_held_ && given && !given->empty())
    return fatal_error(
        "22023", "this sidecar holds the claims of its clients (--hold): a connection brings none of its own",
        "Leave out the setting fenceguard.session_claims. Nothing was written.");
  try {
    if (given && !given->empty()) claims_ = read_claims(*given);
  } catch (const InvalidInput& error) {
    return fatal_error(
        "22023", fmt::format("the setting fenceguard.session_claims cannot be used: {}", error.what()),
        "It is a JSON array such as [{\"resource\": \"accounts/1\", \"token\": \"34\", \"holder\": \"h\"}]; "
        "in "
        "PGOPTIONS and options each space and each backslash of it has a backslash in front. Nothing was "
        "written.");
  }
  for (const auto& [claim, signature] : claims_) {
    if (is_held_ || options_.keys_required == nullptr || options_.keys_required->verify(claim, signature))
      continue;
    observer_.not_signed(claim);
    return fatal_error(
        "28000",
        fmt::format("the claim to '{}' is not signed by a key that is known here", claim.resource.name()),
        "Each claim has a member 'signature'. Nothing was written.");
  }
  return {};
}

// The claims go to the server once, in a setting that other sessions cannot read. Its statements are read by
// others, and name them by a digest.
void ClaimAdvance::hand_over(Startup& startup) {
  const auto handed = options_.draw_nonce() + write_claims(claims_);
  startup.set(handover_setting, handed);
  digest_ = digest_of(handed);
  admission_ = fmt::format("SELECT fenceguard.confirm_relayed('{}')", digest_);
}

ClaimAdvance::Outcome ClaimAdvance::begin(std::string& to_server) {
  next_ = 0;
  return send_next(to_server);
}

ClaimAdvance::Outcome ClaimAdvance::send_next(std::string& to_server) {
  if (next_ == claims_.size()) return Outcome::advanced;
  verdict_.clear();
  std::string body;
  add_text(body,
           fmt::format("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SELECT a.verdict,a.highest FROM "
                       "fenceguard.advance_relayed('{}',{},{}) a;COMMIT",
                       digest_, next_,
                       is_held_ ? 0 : options_.jump_max));  // numbers of our own source are not bounded
  add_message(to_server, 'Q', body);
  return Outcome::pending;
}

ClaimAdvance::Outcome ClaimAdvance::take(char type, std::string_view body, std::string& to_client,
                                         std::string& to_server) {
  if (type == 'A') add_message(to_client, 'A', body);
  if (type == 'D' && body.size() > 2) read_row(body.substr(2));
  // A warning leaves it in doubt whether the advance is durable.
  if (type == 'E' || (type == 'N' && field_of(body, 'V') == "WARNING")) {
    fail(type == 'E', body, to_client);
    return Outcome::refused;
  }
  return type == 'Z' ? rule(to_client, to_server) : Outcome::pending;
}

void ClaimAdvance::read_row(std::string_view values) {
  for (auto* value : {&verdict_, &highest_}) {
    const auto length = static_cast<std::int32_t>(read_number(values));
    values.remove_prefix(std::min<std::size_t>(4, values.size()));
    value->assign(values.substr(0, length < 0 ? 0 : static_cast<std::size_t>(length)));
    values.remove_prefix(value->size());
  }
}

void ClaimAdvance::fail(bool is_error, std::string_view body, std::string& to_client) const {
  const std::string message{field_of(body, 'M').value_or("")};
  const auto state = field_of(body, 'C').value_or("XX000");
  observer_.failed("advance", claims_[next_].claim,
                   {is_error ? FaultKind::unavailable : FaultKind::unknown, message});
  const bool is_older = state == "42883";  // undefined_function
  to_client += fatal_error(is_error ? state : "08007", message,
                           is_older ? "The schema fenceguard of this database is older than the sidecar: run "
                                      "'fenceguard sql postgres | psql'."
                                    : field_of(body, 'H').value_or(""));
}

// A refusal is said as fenceguard.raise_refusal() says it.
ClaimAdvance::Outcome ClaimAdvance::rule(std::string& to_client, std::string& to_server) {
  const auto& claim = claims_[next_].claim;
  std::int64_t highest = 0;
  std::from_chars(highest_.data(), highest_.data() + highest_.size(), highest);
  if (verdict_ == "admitted") {
    observer_.ruled("advance", claim, Verdict::admitted, highest);
    ++next_;
    return send_next(to_server);
  }
  const bool is_stale = verdict_ == "stale";
  observer_.ruled("advance", claim, is_stale ? Verdict::stale : Verdict::conflict, highest);
  const auto& resource = claim.resource.name();
  add_error(
      to_client,
      {.severity = "FATAL",
       .state = is_stale ? "ZF001" : "ZF002",
       .message = is_stale ? fmt::format("the claim to '{}' is stale", resource)
                           : fmt::format("another holder uses the same token for '{}'", resource),
       .detail = fmt::format(R"({{"verdict": "{}", "token": "{}", "highest": "{}"}})", verdict_,
                             to_string(claim.token), highest_),
       .hint = is_stale
                   ? "A newer token was seen, or this one was closed. The lock was lost: take it again, and "
                     "start over from the read."
                   : "The token source issued one number twice. Take the lock again, and look after the "
                     "source."});
  return Outcome::refused;
}

void ClaimAdvance::report_admitted() const {
  for (const auto& [claim, signature] : claims_) observer_.ruled("write", claim, Verdict::admitted, 0);
}

// Which of the claims it was, the detail says.
void ClaimAdvance::report_refused(std::string_view state, std::string_view body) const {
  const auto detail = field_of(body, 'D').value_or("");
  for (const auto& [claim, signature] : claims_) {
    if (claims_.size() > 1 &&
        detail.find(fmt::format("\"{}\"", claim.resource.name())) == std::string_view::npos)
      continue;
    observer_.ruled("write", claim, state == "ZF001" ? Verdict::stale : Verdict::conflict, 0);
    return;
  }
}

}  // namespace fenceguard::pgwire
