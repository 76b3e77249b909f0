#include "server/control/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "server/process_metrics.hpp"

namespace fenceguard {
namespace {

// The words of Fencing-Verdict; the first four are Verdict's enumerators in their order.
enum Word { admitted, duplicate, stale, conflict, missing, implausible, unavailable, unknown, not_signed };
constexpr const char* words[] = {"admitted",    "duplicate",   "stale",   "conflict", "missing",
                                 "implausible", "unavailable", "unknown", "unsigned"};

prometheus::Counter& add_counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& add_gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Histogram& add_histogram(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(
      {}, prometheus::Histogram::BucketBoundaries{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                  0.5, 1, 2.5, 5, 10});
}

// Of every guard; answers the gauge of its readiness.
prometheus::Gauge& add_presence(prometheus::Registry& registry) {
  prometheus::BuildGauge()
      .Name("fenceguard_build_info")
      .Help("Always 1; the version is the label")
      .Register(registry)
      .Add({{"version", FENCEGUARD_VERSION}})
      .Set(1);
  return add_gauge(registry, "fenceguard_ready", "1 while /readyz says ready, else 0");
}

std::string text_of(const prometheus::Registry& registry) {
  auto families = registry.Collect();
  for (auto& family : process_metrics()) families.push_back(std::move(family));
  return prometheus::TextSerializer{}.Serialize(families);
}

}  // namespace

const char* to_string(LeaseEvent event) noexcept {
  switch (event) {
    case LeaseEvent::acquired:
      return "acquired";
    case LeaseEvent::repeated:
      return "repeated";
    case LeaseEvent::held:
      return "held";
    case LeaseEvent::withdrawn:
      return "withdrawn";
    case LeaseEvent::undelivered:
      return "undelivered";
    case LeaseEvent::failed:
      return "failed";
    case LeaseEvent::renewed:
      return "renewed";
    case LeaseEvent::lost:
      return "lost";
    case LeaseEvent::released:
      return "released";
    case LeaseEvent::revoked:
      return "revoked";
  }
  return "failed";
}

Metrics::Metrics(const std::string& storage) : registry_{std::make_shared<prometheus::Registry>()} {
  auto& registry = *registry_;
  auto& verdicts = prometheus::BuildCounter()
                       .Name("fenceguard_verdicts_total")
                       .Help("Answers to claims on the data side and to advances")
                       .Register(registry);
  for (std::size_t i = 0; i < verdict_count; ++i) {
    verdicts_[i] = &verdicts.Add({{"verdict", words[i]}, {"storage", storage}});
  }
  auto& events = prometheus::BuildCounter()
                     .Name("fenceguard_leases_total")
                     .Help("What happened to leases through the control side")
                     .Register(registry);
  for (std::size_t i = 0; i < event_count; ++i) {
    lease_events_[i] = &events.Add({{"event", to_string(static_cast<LeaseEvent>(i))}});
  }
  advances_ = &add_counter(registry, "fenceguard_advances_total", "Advances that raised a fence");
  regressions_ = &add_counter(registry, "fenceguard_source_regressions_total",
                              "Fresh grants whose token was not above the guard's mark");
  conflicts_ =
      &add_counter(registry, "fenceguard_token_conflicts_total", "Numbers that were issued to two holders");
  unknown_ = &add_counter(registry, "fenceguard_unknown_total", "Answers that the outcome is unknown");
  leases_waiting_ =
      &add_gauge(registry, "fenceguard_leases_waiting", "Callers for a lease that are not yet answered");
  in_flight_ = &add_gauge(registry, "fenceguard_in_flight", "Requests on the data side not yet answered");
  resources_ = &add_gauge(registry, "fenceguard_resources", "Fences with a record of their own");
  floor_ = &add_gauge(registry, "fenceguard_floor", "Fence of every resource without a record of its own");
  refusals_ = &prometheus::BuildGauge()
                   .Name("fenceguard_storage_refusals")
                   .Help("Claims that the storage refused by itself and counted, by protected table")
                   .Register(registry);
  write_duration_ = &add_histogram(registry, "fenceguard_write_duration_seconds",
                                   "From a write's arrival, whole, to its answer");
  upstream_duration_ = &add_histogram(registry, "fenceguard_upstream_duration_seconds",
                                      "From a request's last byte to the storage to the end of its answer");
  lane_waiting_ =
      &add_gauge(registry, "fenceguard_lane_waiting", "Claims that wait in a lane for older writes");
  lane_writes_ =
      &add_gauge(registry, "fenceguard_lane_writes", "Writes that were forwarded and are not over");
  lane_quarantined_ =
      &add_gauge(registry, "fenceguard_lane_quarantined",
                 "Resources closed by an outcome that is not known, until the settle time is over");
  lane_cuts_owed_ = &add_gauge(registry, "fenceguard_lane_cuts_owed",
                               "Resources that wait until their old holders are cut off");
  settle_closures_ = &add_counter(registry, "fenceguard_settle_closures_total",
                                  "How often a resource was closed by an outcome that is not known");
  ready_ = &add_presence(registry);
}

Metrics::~Metrics() = default;

void Metrics::count(Verdict verdict, std::size_t times) {
  verdicts_[static_cast<std::size_t>(verdict)]->Increment(static_cast<double>(times));
  if (verdict == Verdict::conflict) conflicts_->Increment(static_cast<double>(times));
}

void Metrics::count(FaultKind fault) {
  switch (fault) {
    case FaultKind::invalid_input:
      return;
    case FaultKind::implausible:
      return verdicts_[implausible]->Increment();
    case FaultKind::unavailable:
      return verdicts_[unavailable]->Increment();
    case FaultKind::unknown:
      verdicts_[unknown]->Increment();
      unknown_->Increment();
  }
}

void Metrics::count(LeaseEvent event) {
  lease_events_[static_cast<std::size_t>(event)]->Increment();
}
void Metrics::count_missing() {
  verdicts_[missing]->Increment();
}
void Metrics::count_unsigned() {
  verdicts_[not_signed]->Increment();
}
void Metrics::count_advance() {
  advances_->Increment();
}
void Metrics::count_source_regression() {
  regressions_->Increment();
}

void Metrics::set_leases_waiting(std::size_t count) {
  leases_waiting_->Set(static_cast<double>(count));
}

void Metrics::observe_write(std::chrono::nanoseconds duration) {
  write_duration_->Observe(std::chrono::duration<double>(duration).count());
}

void Metrics::observe_upstream(std::chrono::nanoseconds duration) {
  upstream_duration_->Observe(std::chrono::duration<double>(duration).count());
}

void Metrics::set_lanes(const Lanes& lanes) {
  lane_waiting_->Set(static_cast<double>(lanes.waiting));
  lane_writes_->Set(static_cast<double>(lanes.writes));
  lane_quarantined_->Set(static_cast<double>(lanes.quarantined));
  lane_cuts_owed_->Set(static_cast<double>(lanes.cuts_owed));
  settle_closures_->Increment(static_cast<double>(lanes.settle_closures) - settle_closures_->Value());
}

void Metrics::add_fence_method(const std::string& method) {
  if (fence_methods_ == nullptr) {
    fence_methods_ = &prometheus::BuildCounter()
                          .Name("fenceguard_fence_methods_total")
                          .Help("Runs of the fence methods that cut old holders off, by how they ended")
                          .Register(*registry_);
  }
  for (const char* outcome : {"success", "failure", "timeout"})
    fence_methods_->Add({{"method", method}, {"outcome", outcome}});
}

void Metrics::count_fence_method(const std::string& method, const std::string& outcome) {
  fence_methods_->Add({{"method", method}, {"outcome", outcome}}).Increment();
}

void Metrics::set_held(std::int64_t token) {
  if (held_ == nullptr) {
    held_ = &add_gauge(*registry_, "fenceguard_held", "1 while the leases of --hold are held, else 0");
    held_token_ =
        &add_gauge(*registry_, "fenceguard_held_token", "The highest token of those leases; 0: none");
    older_programs_ = &prometheus::BuildCounter()
                           .Name("fenceguard_hold_refusals_total")
                           .Help(
                               "Connections that were refused what --hold holds, because their program began "
                               "before the lease, or cannot be seen")
                           .Register(*registry_)
                           .Add({});
  }
  held_->Set(token > 0 ? 1 : 0);
  held_token_->Set(static_cast<double>(token));
}

void Metrics::count_older_program() {
  older_programs_->Increment();
}

Metrics::VerdictCounts Metrics::verdict_counts() const {
  VerdictCounts counts{};
  for (std::size_t i = 0; i < verdict_count; ++i)
    counts[i] = static_cast<std::uint64_t>(verdicts_[i]->Value());
  return counts;
}

std::span<const char* const, Metrics::verdict_count> Metrics::verdict_words() noexcept {
  return words;
}

void Metrics::set_ready(bool is_ready) {
  ready_->Set(is_ready ? 1 : 0);
}

std::string Metrics::render(const StoreStatus& status, std::int64_t in_flight) {
  in_flight_->Set(static_cast<double>(in_flight));
  resources_->Set(static_cast<double>(status.resources));
  floor_->Set(static_cast<double>(status.floor));
  for (const auto& [table, verdict, refusals] : status.refusals) {
    refusals_->Add({{"table", table}, {"verdict", verdict}}).Set(static_cast<double>(refusals));
  }
  return text_of(*registry_);
}

std::string Metrics::render_standby() {
  prometheus::Registry registry;
  add_presence(registry);
  return text_of(registry);
}

}  // namespace fenceguard
