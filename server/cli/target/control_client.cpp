#include "server/cli/target/control_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "guard/error.hpp"
#include "guard/source/boot_condition.hpp"
#include "guard/support/percent.hpp"
#include "server/cli/target/answer_body.hpp"
#include "server/http/client.hpp"

namespace fenceguard::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds wait_slice_max{10'000};
constexpr milliseconds answer_max{15'000};  // for the server, beyond the wait that it was asked for
constexpr milliseconds renewal_max{10'000};
constexpr milliseconds release_max{5'000};
constexpr milliseconds ask_again_for{2'000};  // after a lost answer, even if the caller does not wait
constexpr milliseconds ask_again_pause{50};

std::string lease_target(const Resource& resource) {
  return "/v1/leases/" + percent_encode_path(resource.name());
}
std::string fence_target(const Resource& resource) {
  return "/v1/fences/" + percent_encode_path(resource.name());
}

// Everything but unreserved characters encoded, for a query.
std::string query_value(std::string_view text) {
  std::string encoded;
  for (const char c : percent_encode_path(text)) encoded += c == '/' ? std::string{"%2F"} : std::string(1, c);
  return encoded;
}

json::object parse_body(const http::Response& response) {
  boost::system::error_code error;
  auto value = json::parse(response.body, error);
  if (error || !value.is_object()) return {};
  return std::move(value.get_object());
}

std::string detail_of(const ControlClient::Answer& answer) {
  if (const auto* detail = answer.body.if_contains("detail"); detail != nullptr && detail->is_string()) {
    return std::string{detail->get_string()};
  }
  return fmt::format("status {}", answer.status);
}

milliseconds retry_after(const ControlClient::Answer& answer) {
  const auto seconds = parse_decimal(answer.fields.single("Retry-After").value_or("0")).value_or(0);
  return std::chrono::seconds{std::min<std::int64_t>(seconds, 60)};
}

// Unavailable for now: the server says when to ask again.
class Passing : public Unavailable {
 public:
  Passing(const std::string& message, milliseconds retry_after)
      : Unavailable{message}, retry_after_{retry_after} {}
  [[nodiscard]] milliseconds retry_after() const noexcept { return retry_after_; }

 private:
  milliseconds retry_after_;
};

[[noreturn]] void raise_status(const ControlClient::Answer& answer) {
  const auto sentence = fmt::format("the server says: {}", detail_of(answer));
  switch (answer.status) {
    case 400:
    case 405:
    case 413:
    case 415:
      throw InvalidInput(sentence);
    case 422:
      throw Implausible(sentence);
    case 401:
    case 403:
    case 408:
    case 421:
    case 428:
    case 429:
    case 431:
    case 501:
    case 503:
      if (answer.fields.contains("Retry-After")) throw Passing(sentence, retry_after(answer));
      throw Unavailable(sentence);
    default:
      throw OutcomeUnknown(sentence);
  }
}

bool is_ruling(unsigned status) {
  return (status >= 200 && status < 300) || status == 404 || status == 409 || status == 412;
}

// What a data side, or anything else that speaks HTTP, says to a call of the control side.
// A storage behind one may even say that it is done.
bool could_be_elsewhere(const ControlClient::Call& call, const ControlClient::Answer& answer) {
  const auto status = answer.status;
  const bool is_empty = status / 100 == 2 && answer.body.empty() && call.method != "DELETE";
  return status == 400 || status == 404 || status == 405 || status == 428 || status == 501 || is_empty;
}

std::optional<milliseconds> left_in(const json::object& lease) {
  auto left = number_in(lease, "expires_in_ms");
  if (!left) left = number_in(lease, "ttl_ms");  // of an older version
  if (!left) return std::nullopt;
  return milliseconds{*left};
}

std::string listing_query(const FenceListing& listing) {
  return fmt::format("prefix={}&after={}&limit={}", query_value(listing.prefix), query_value(listing.after),
                     listing.limit);
}

}  // namespace

ControlClient::ControlClient(std::string server, std::string bearer)
    : server_{std::move(server)}, bearer_{std::move(bearer)} {
  static_cast<void>(http::Client{server_});
}

ControlClient::Answer ControlClient::send(const Call& call) const {
  http::Request request{.method = call.method, .target = call.target, .fields = {}, .body = {}};
  if (!bearer_.empty()) request.fields.add("Authorization", "Bearer " + bearer_);
  if (call.claim) {
    request.fields.add("Fencing-Token", to_string(call.claim->token));
    if (!call.claim->holder.id().empty()) request.fields.add("Fencing-Holder", call.claim->holder.id());
  }
  if (!call.signature.empty()) request.fields.add("Fencing-Signature", call.signature);
  if (call.body) {
    request.fields.add("Content-Type", "application/json");
    request.body = json::serialize(*call.body);
  }
  http::Client client{server_, call.timeout};
  const auto response = client.send(request);
  Answer answer{.status = response.status, .fields = response.fields, .body = parse_body(response)};
  if (could_be_elsewhere(call, answer)) require_control_side(call);
  if (!is_ruling(answer.status)) raise_status(answer);
  return answer;
}

void ControlClient::require_control_side(const Call& call) const {
  const auto response = http::Client{server_, call.timeout}.send(
      {.method = "GET", .target = "/healthz", .fields = {}, .body = {}});
  if (response.status == 200 && response.body == "ok\n") return;
  const bool is_data_side =
      response.body.find("urn:fenceguard:problem:") != std::string::npos ||
      response.fields.single("Via").value_or("").find("fenceguard") != std::string_view::npos;
  throw InvalidInput(
      fmt::format("--server: what answers there is {}; give the address of --control",
                  is_data_side ? "the data side of a guard" : "not the control side of a guard"));
}

std::string RemoteSource::signature_of(const Claim& claim) const {
  const std::scoped_lock lock{mutex_};
  const auto found = granted_.find(claim.resource.name());
  if (found == granted_.end() || found->second.first != claim.token) return signature_;
  return found->second.second;
}

void RemoteSource::remember(const Claim& claim, std::string signature) {
  if (signature.empty()) return;
  const std::scoped_lock lock{mutex_};
  granted_.insert_or_assign(claim.resource.name(), std::pair{claim.token, std::move(signature)});
}

std::variant<Grant, LockBusy> RemoteSource::ask(const Ask& ask) {
  const auto answer = client_.send({.method = "POST",
                                    .target = "/v1/leases",
                                    .body = json::object{{"resource", ask.resource.name()},
                                                         {"ttl_ms", ask.ttl.count()},
                                                         {"wait_ms", ask.wait.count()},
                                                         {"holder", ask.holder.id()}},
                                    .timeout = ask.wait + answer_max});
  if (answer.status == 409) return LockBusy{.retry_after = retry_after(answer)};
  if (answer.status != 201 && answer.status != 200)
    throw OutcomeUnknown("the server answered what is no grant");
  Grant grant{.claim = {ask.resource, token_in(answer.body), ask.holder, std::nullopt}, .ttl = ask.ttl};
  grant.is_new = answer.status == 201;
  remember(grant.claim, std::string{answer.fields.single("Fencing-Signature").value_or("")});
  return grant;
}

std::variant<Grant, LockBusy> RemoteSource::try_acquire(const Resource& resource, const Holder& holder,
                                                        milliseconds ttl) {
  return ask({resource, holder, ttl, milliseconds{0}});
}

Renewal RemoteSource::renew(const Claim& claim, milliseconds ttl) {
  // Half of the term at most, so that a request that hangs leaves time for another.
  const auto timeout = std::clamp(ttl / 2, milliseconds{100}, renewal_max);
  const auto answer = client_.send({.method = "PUT",
                                    .target = lease_target(claim.resource),
                                    .claim = claim,
                                    .signature = signature_of(claim),
                                    .body = json::object{{"ttl_ms", ttl.count()}},
                                    .timeout = timeout});
  if (const auto fresh = answer.fields.single("Fencing-Signature"); fresh && answer.status == 200) {
    remember(claim, std::string{*fresh});
  }
  return answer.status == 200 ? Renewal::renewed : Renewal::lost;
}

Release RemoteSource::release(const Claim& claim) {
  const auto answer = client_.send({.method = "DELETE",
                                    .target = lease_target(claim.resource),
                                    .claim = claim,
                                    .signature = signature_of(claim),
                                    .timeout = release_max});
  const std::scoped_lock lock{mutex_};
  const auto found = granted_.find(claim.resource.name());
  if (found != granted_.end() && found->second.first == claim.token) granted_.erase(found);
  return answer.status < 300 ? Release::released : Release::not_held;
}

Release RemoteSource::end(const Resource& /*resource*/) {
  throw InvalidInput("a running guard ends a lease by 'fence revoke'");
}

std::optional<LeaseRecord> RemoteSource::show(const Resource& resource) {
  const auto answer = client_.send({.method = "GET", .target = lease_target(resource)});
  if (answer.status != 200) return std::nullopt;
  const auto* holder = answer.body.if_contains("holder");
  LeaseRecord record{.claim = {resource, token_in(answer.body), {}, std::nullopt}};
  if (holder != nullptr && holder->is_string()) {
    record.claim.holder = Holder::parse(std::string{holder->get_string()}).value_or(Holder{});
  }
  record.remaining = left_in(answer.body);
  return record;
}

LeasePage RemoteSource::list_leases(const FenceListing& listing) {
  const auto answer = client_.send({.method = "GET", .target = "/v1/leases?" + listing_query(listing)});
  LeasePage page;
  for (const auto& lease : entries_in(answer.body, "leases")) {
    page.entries.push_back(
        {{Resource{text_in(lease, "resource")}, token_in(lease), {}, std::nullopt}, left_in(lease)});
  }
  page.has_more = has_more_in(answer.body);
  return page;
}

void RemoteSource::raise(const Resource& resource, Token mark) {
  const auto answer = client_.send({.method = "POST",
                                    .target = lease_target(resource) + "/raise",
                                    .body = json::object{{"token", to_string(mark)}}});
  if (answer.status >= 300)
    throw Unavailable(fmt::format("the server did not raise its source: {}", detail_of(answer)));
}

Token RemoteSource::draw() {
  throw InvalidInput("a running guard draws no numbers without a grant");
}

std::optional<Grant> RemoteSource::dated(Grant grant, BootClock::time_point asked_at) {
  grant.asked_at = asked_at;
  const auto now = BootClock::now();
  if (now - asked_at < grant.ttl / 4) return grant;
  // The lease began somewhere within the wait at the server; renewed, its term counts from now.
  if (renew(grant.claim, grant.ttl) == Renewal::lost) return std::nullopt;
  grant.asked_at = now;
  return grant;
}

std::optional<Grant> RemoteSource::wait_acquire(const Resource& resource, const Holder& holder,
                                                const AcquireOptions& options) {
  const auto started_at = BootClock::now();
  const auto deadline = started_at + options.wait;
  const auto ask_again_until = std::max(deadline, started_at + std::chrono::nanoseconds{ask_again_for});
  bool is_uncertain = false;
  for (;;) {
    const auto asked_at = BootClock::now();
    const auto remaining = std::chrono::duration_cast<milliseconds>(deadline - asked_at);
    milliseconds pause = ask_again_pause;
    try {
      auto answer =
          ask({resource, holder, options.ttl, std::clamp(remaining, milliseconds{0}, wait_slice_max)});
      is_uncertain = false;
      if (auto* grant = std::get_if<Grant>(&answer)) {
        is_uncertain = true;  // the lease is there, until it is known to be lost
        if (auto result = dated(std::move(*grant), asked_at)) return result;
        is_uncertain = false;
      }
      if (BootClock::now() >= deadline || options.stop.stop_requested()) return std::nullopt;
    } catch (const OutcomeUnknown&) {
      is_uncertain = true;
      if (BootClock::now() >= ask_again_until || options.stop.stop_requested()) throw;
    } catch (const Unavailable& error) {
      const auto* passing = dynamic_cast<const Passing*>(&error);
      if (passing == nullptr && !is_uncertain) throw;
      const bool is_over = BootClock::now() >= (is_uncertain ? ask_again_until : deadline);
      if ((is_over || options.stop.stop_requested()) && is_uncertain) throw OutcomeUnknown(error.what());
      if (is_over || options.stop.stop_requested()) throw;
      if (passing != nullptr) pause = std::max(pause, passing->retry_after());
    }
    // Once more at the end of the wait, whatever the server said about when.
    const auto last_chance = std::max<BootClock::duration>(deadline - BootClock::now(), ask_again_pause);
    sleep_for(std::min<BootClock::duration>(pause, last_chance), options.stop);
    if (!options.stop.stop_requested()) continue;
    if (is_uncertain) throw OutcomeUnknown("stopped before it was known whether the lease was granted");
    return std::nullopt;
  }
}

ShownFence RemoteFences::show(const Resource& resource) {
  const auto answer = client_.send({.method = "GET", .target = fence_target(resource)});
  if (answer.status != 200) return {};
  const auto left = number_in(answer.body, "quarantined_ms").value_or(0);
  return {{.record = fence_in(answer.body)}, milliseconds{left}};
}

FencePage RemoteFences::list(const FenceListing& listing) {
  const auto answer = client_.send({.method = "GET", .target = "/v1/fences?" + listing_query(listing)});
  FencePage page;
  for (const auto& fence : entries_in(answer.body, "fences"))
    page.entries.push_back({Resource{text_in(fence, "resource")}, fence_in(fence)});
  page.has_more = has_more_in(answer.body);
  return page;
}

bool RemoteFences::is_revoked(const Claim& claim) {
  const auto answer = client_.send(
      {.method = "GET", .target = fence_target(claim.resource), .timeout = std::chrono::seconds{1}});
  if (answer.status != 200) return false;
  const auto fence = fence_in(answer.body);
  return fence.closed && fence.token == claim.token;
}

Ruling RemoteFences::advance(const Claim& claim) {
  const auto answer = client_.send({.method = "POST",
                                    .target = fence_target(claim.resource) + "/advance",
                                    .claim = claim,
                                    .signature = signature_});
  const auto verdict = parse_verdict(answer.fields.single("Fencing-Verdict").value_or(""));
  if (!verdict) throw OutcomeUnknown("the server's answer holds no verdict");
  Ruling ruling;
  ruling.verdict = *verdict;
  ruling.highest = parse_decimal(answer.fields.single("Fencing-Highest").value_or("0")).value_or(0);
  return ruling;
}

FenceView RemoteFences::revoke(const Resource& resource) {
  const auto answer = client_.send({.method = "POST", .target = fence_target(resource) + "/revoke"});
  if (answer.status >= 300 || !answer.body.contains("token")) return {};
  return {.record = fence_in(answer.body)};
}

std::optional<Compaction> RemoteFences::compact() {
  const auto answer = client_.send({.method = "POST", .target = "/v1/fences/compact"});
  if (answer.status >= 300) return std::nullopt;
  Compaction done;
  done.dropped = number_in(answer.body, "dropped").value_or(0);
  done.floor = number_in(answer.body, "floor").value_or(0);
  return done;
}

}  // namespace fenceguard::cli
