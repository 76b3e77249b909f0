#include "server/sidecar.hpp"

#include <spdlog/spdlog.h>

#include <mutex>

#include "guard/claim_keys.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/support/wait_for.hpp"
#include "server/control/access_tokens.hpp"
#include "server/control/control_service.hpp"
#include "server/control/json_body.hpp"
#include "server/data/data_service.hpp"
#include "server/data/object_service.hpp"
#include "server/fencing/fencer.hpp"
#include "server/http/server.hpp"
#include "server/leases/lease_holder.hpp"
#include "server/net/address.hpp"

namespace fenceguard {
namespace {

constexpr std::chrono::milliseconds hold_first_max{10'000};

// What clients of the data side may name by ALPN. Redis has no name there.
const char* protocol_of(std::string_view storage_scheme) {
  if (storage_scheme == "redis") return nullptr;
  return storage_scheme == "postgres" ? "postgresql" : "http/1.1";
}

std::shared_ptr<net::TlsContext> open_tls(const SidecarOptions& options) {
  if (options.tls.certificate_file.empty()) return nullptr;
  return net::TlsContext::server(options.tls, protocol_of(options.storage_scheme));
}

std::unique_ptr<AccessTokens> open_tokens(const SidecarOptions& options) {
  if (!options.control_token_file.empty()) return std::make_unique<AccessTokens>(options.control_token_file);
  if (!net::is_loopback(options.control)) {
    throw InvalidInput(
        "without --control-token-file the control side listens on loopback or a Unix socket only, not on " +
        options.control);
  }
  return std::make_unique<AccessTokens>();
}

std::unique_ptr<ClaimKeys> open_keys(const SidecarOptions& options) {
  if (!options.claim_key_file.empty()) {
    return std::make_unique<ClaimKeys>(ClaimKeys::from_file(options.claim_key_file, options.claim_space));
  }
  if (options.require_signature) throw InvalidInput("--require-signature needs the keys of --claim-key");
  return nullptr;
}

std::unique_ptr<LeaseHolder> open_holder(const SidecarOptions& options, TokenSource* source,
                                         FenceStore& fences, Metrics& metrics, RefusalLog& log) {
  if (options.hold.empty()) return nullptr;
  if (options.listen.empty())
    throw InvalidInput("--hold holds for the clients of the data side: give --listen HOST:PORT too");
  if (source == nullptr) throw InvalidInput("--hold takes leases from a token source: give --source URL");
  for (const auto& resource : options.hold)
    if (const auto text = fences.objection_to(resource); !text.empty()) throw InvalidInput("--hold: " + text);
  return std::make_unique<LeaseHolder>(
      *source, fences, metrics, log,
      LeaseHolder::Options{options.hold, options.hold_ttl, options.hold_takes_any_program, options.hold_for});
}

}  // namespace

// A member for each part of a guard, in the order in which they are made: what is put together here stays
// together.
class Sidecar::Impl {
 public:
  Impl(Storage& storage, TokenSource* source, SidecarOptions options)
      : options_{std::move(options)},
        tokens_{open_tokens(options_)},
        keys_{open_keys(options_)},
        tls_{open_tls(options_)},
        signatures_{keys_.get(), options_.require_signature ? keys_.get() : nullptr},
        metrics_{options_.storage_scheme},
        lease_service_{source != nullptr
                           ? std::make_unique<LeaseService>(*source, storage.fences(), metrics_, log_)
                           : nullptr},
        holder_{open_holder(options_, source, storage.fences(), metrics_, log_)},
        control_hosts_{HostCheck::Side::control, options_.control_hosts},
        probe_side_{storage.fences(), metrics_, [this, &storage] { return look_at_data_side(storage); },
                    [this] { return not_serving(); }},
        watch_{metrics_, log_.events(), [this](std::string_view name) { return quarantine(name); }},
        control_side_{
            {storage.fences(), source, lease_service_.get(), metrics_, log_, pending_, signatures_,
             options_.resource_depth, [this](std::string_view resource) { return quarantine(resource); },
             options_.source_wait, finisher(storage)},
            watch_context(storage, source),
            control_hosts_,
            *tokens_,
            probe_side_},
        data_{options_.threads},
        control_{1} {
    if (!options_.listen.empty()) make_data_side(storage);
    if (options_.fencer) {
      cut_old_holders_off(storage);
    } else if (auto* served = dynamic_cast<ServedStorage*>(&storage)) {
      served->cut_off_none();
    }
    try {
      listen();
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Impl() { stop(); }

  bool stop() {
    const std::scoped_lock lock{stop_mutex_};
    if (is_stopped_) return was_clean_;
    is_stopped_ = true;
    probe_side_.set_draining();
    watch_.stop();
    // What waits for a fence method is answered that none has succeeded; the cut stays owed.
    if (options_.fencer) options_.fencer->stop();
    if (lease_service_) lease_service_->close();
    if (holder_) holder_->stop_taking();
    const auto begun = BootClock::now();
    was_clean_ = service_ ? service_->drain(options_.drain_timeout) : data_.drain(options_.drain_timeout);
    // After the sessions, so that the next holder waits for none of them.
    if (holder_) holder_->stop();
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(BootClock::now() - begun);
    const auto left = std::max(options_.drain_timeout - spent, std::chrono::milliseconds{0});
    was_clean_ = control_.drain(left) && was_clean_;
    // What a store or a source has not answered yet refers to this object: stop waits for it, though no
    // client hears of it.
    if (data_side_) data_side_->wait_idle();
    pending_.wait();
    if (lease_service_) lease_service_->finish();
    pending_.wait();
    return was_clean_;
  }

  [[nodiscard]] bool answers(std::chrono::milliseconds limit) {
    const auto share = limit / 3;
    const bool is_data_side_well = service_ ? service_->answers(share) : data_.answers(share);
    if (!is_data_side_well || !control_.answers(share)) return false;
    return !lease_service_ || lease_service_->answers(share);
  }

  void make_data_side(Storage& storage) {
    // Elsewhere only the operator knows by which names it is called.
    if (!options_.data_hosts.empty() || net::is_loopback(options_.listen)) {
      data_hosts_.emplace(HostCheck::Side::data, options_.data_hosts);
      data_hosts_->set_address(options_.listen);
    }
    const ServiceContext context{.metrics = metrics_,
                                 .log = log_,
                                 .keys = signatures_.required,
                                 .tls = tls_,
                                 .resource_depth = options_.resource_depth,
                                 .threads = options_.threads,
                                 .limits = options_.data_limits,
                                 .hosts = data_hosts_ ? &*data_hosts_ : nullptr,
                                 .permissions = options_.permissions,
                                 .password = options_.data_password,
                                 .holder = holder_.get()};
    if (auto* served = dynamic_cast<ServedStorage*>(&storage)) {
      service_ = served->data_service(context);
      return;
    }
    ObjectStore* objects = storage.objects();
    if (objects == nullptr)
      throw InvalidInput("this storage keeps no objects, so there is nothing to serve on the data side");
    data_side_.emplace(*objects, context);
  }

  void cut_old_holders_off(Storage& storage) {
    for (const auto& method : options_.fencer->method_names()) metrics_.add_fence_method(method);
    options_.fencer->use(
        [this](const TakeOver& take_over, std::chrono::milliseconds limit) {
          return service_ && service_->reset_writes(take_over.resource, take_over.old_token, limit);
        },
        [this](const FenceReport& report) { note(report); });
    dynamic_cast<ServedStorage&>(storage).cut_off_by(*options_.fencer);
  }

  void note(const FenceReport& report) {
    const auto& [take_over, method, result] = report;
    metrics_.count_fence_method(method, to_string(result.outcome));
    const bool is_cut = result.outcome == FenceResult::Outcome::success;
    spdlog::log(is_cut ? spdlog::level::info : spdlog::level::warn,
                "event=fence_method method={} outcome={} resource={} old_token={} new_token={} detail={}",
                method, to_string(result.outcome), fenceguard::quoted(take_over.resource),
                take_over.old_token, take_over.new_token, fenceguard::quoted(result.detail));
  }

  // Empty where no holder is cut off.
  [[nodiscard]] std::function<void(const Claim&)> finisher(Storage& storage) const {
    auto* served = dynamic_cast<ServedStorage*>(&storage);
    if (!options_.fencer || served == nullptr) return {};
    return [served](const Claim& claim) {
      try {
        (void)wait_for<bool>([&](Done<bool> done) { served->finish(claim, std::move(done)); });
      } catch (const Error& error) {
        // The next take-over cuts off a holder that is not there any more.
        spdlog::warn("event=\"release not noted\" resource={} token={} reason={}",
                     fenceguard::quoted(claim.resource.name()), claim.token.value(),
                     fenceguard::quoted(error.what()));
      }
    };
  }

  [[nodiscard]] WatchContext watch_context(Storage& storage, const TokenSource* source) {
    return {
        .fences = storage.fences(),
        .watch = watch_,
        .storage = options_.storage_name,
        .source = source != nullptr ? options_.source_name : std::string{},
        .lists_leases = dynamic_cast<const LeaseLister*>(source) != nullptr,
        .in_flight = [this] { return service_ ? service_->in_flight() : data_.in_flight(); },
        .figures = [this] { return service_ ? service_->lanes() : DataService::LaneFigures{}; },
        .lanes =
            [this](const FenceListing& listing, DataService::Lanes which) {
              return service_ ? service_->list_lanes(listing, which) : DataService::LanePage{};
            },
        .quarantine = [this] { return quarantine({}); },
    };
  }

  // Requests that are not answered. Brings the metrics of the lanes up to the moment.
  [[nodiscard]] std::int64_t look_at_data_side(Storage& storage) {
    if (!service_) return data_.in_flight();
    const auto lanes = service_->lanes();
    // Where everything is closed, these are all that are known.
    const std::int64_t all =
        quarantine({}) ? std::max<std::int64_t>(1, storage.fences().status().resources) : 0;
    metrics_.set_lanes({lanes.waiting, lanes.in_flight, std::max(all, lanes.closed), lanes.settle_closures,
                        lanes.cuts_owed});
    return service_->in_flight();
  }

  // What a balancer should know: others may serve.
  [[nodiscard]] std::optional<Fault> not_serving() const {
    if (holder_ && !holder_->present()) return Fault{FaultKind::unavailable, holder_->absence()};
    return quarantine({});
  }

  [[nodiscard]] std::optional<Fault> quarantine(std::string_view resource) const {
    if (!service_) return std::nullopt;
    return service_->quarantine(resource);
  }

  void listen() {
    http::Limits limits;
    limits.body_bytes_max = JsonBody::bytes_max;
    control_address_ = control_.listen(options_.control, control_side_, limits);
    control_hosts_.set_address(control_address_);
    if (!options_.probe.empty()) probe_address_ = control_.listen(options_.probe, probe_side_, limits);
    watch_.start();
    // Last, so that nothing is written by a guard that then fails to start.
    if (const auto why = quarantine({})) log_.quarantined("*", *why);
    if (service_) data_address_ = service_->listen(options_.listen);
    if (data_side_) data_address_ = data_.listen(options_.listen, *data_side_, options_.data_limits, tls_);
    if (holder_) holder_->start([this] { service_->end_held(); }, hold_first_max);
  }

  SidecarOptions options_;
  std::unique_ptr<AccessTokens> tokens_;
  std::unique_ptr<ClaimKeys> keys_;
  std::shared_ptr<net::TlsContext> tls_;
  SignatureRules signatures_;
  Metrics metrics_;
  RefusalLog log_;
  PendingCalls pending_;
  std::unique_ptr<LeaseService> lease_service_;
  std::unique_ptr<LeaseHolder> holder_;
  HostCheck control_hosts_;
  std::optional<HostCheck> data_hosts_;
  std::optional<ObjectService> data_side_;
  std::shared_ptr<DataService> service_;
  ProbeService probe_side_;
  Watch watch_;
  ControlService control_side_;
  std::string data_address_;
  std::string control_address_;
  std::string probe_address_;
  std::mutex stop_mutex_;
  bool is_stopped_ = false;
  bool was_clean_ = true;
  http::Server data_;
  http::Server control_;
};

Sidecar::Sidecar(Storage& storage, TokenSource* source, SidecarOptions options)
    : impl_{std::make_unique<Impl>(storage, source, std::move(options))} {}

Sidecar::~Sidecar() = default;

const std::string& Sidecar::data_address() const noexcept {
  return impl_->data_address_;
}
const std::string& Sidecar::control_address() const noexcept {
  return impl_->control_address_;
}
const std::string& Sidecar::probe_address() const noexcept {
  return impl_->probe_address_;
}
bool Sidecar::reload_tokens() {
  return impl_->tokens_->reload();
}
bool Sidecar::reload_keys() {
  if (impl_->keys_) impl_->keys_->reload();
  return impl_->keys_ != nullptr;
}
bool Sidecar::reload_certificates() {
  if (impl_->tls_) impl_->tls_->reload();
  return impl_->tls_ != nullptr;
}
bool Sidecar::reload_upstream_certificates() {
  return impl_->service_ && impl_->service_->reload_upstream_certificates();
}
bool Sidecar::answers(std::chrono::milliseconds limit) {
  return impl_->answers(limit);
}
bool Sidecar::stop() {
  return impl_->stop();
}

}  // namespace fenceguard
