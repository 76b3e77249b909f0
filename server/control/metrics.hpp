#pragma once

// Metrics: what the sidecar counts, under the names that the design fixes, as Prometheus text. Handles are
// looked up once, so that counting on the hot path is an atomic addition. No resource is ever a label.
//
// Thread safety: all calls may be made from any thread.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "guard/error.hpp"
#include "guard/judge.hpp"
#include "guard/store/storage.hpp"

namespace prometheus {
class Counter;
template <typename T>
class Family;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace fenceguard {

// What can happen to a lease here; to_string() is the label.
enum class LeaseEvent {
  acquired,
  repeated,
  held,
  withdrawn,
  undelivered,
  failed,
  renewed,
  lost,
  released,
  revoked
};
[[nodiscard]] const char* to_string(LeaseEvent event) noexcept;

class Metrics {
 public:
  // storage: the scheme, which is the label of the verdicts.
  explicit Metrics(const std::string& storage);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Counts the verdict, and a conflict among the token conflicts too.
  void count(Verdict verdict, std::size_t times = 1);
  // Counts 'implausible', 'unavailable' or 'unknown' among the verdicts; invalid input is none.
  void count(FaultKind fault);
  void count(LeaseEvent event);
  // A write without a token.
  void count_missing();
  // A claim without its signature, or with a wrong one.
  void count_unsigned();
  // An advance, on its own or before a fenced read, that raised a fence.
  void count_advance();
  // A grant whose token the guard had passed already.
  void count_source_regression();
  void set_leases_waiting(std::size_t count);
  void observe_write(std::chrono::nanoseconds duration);
  // From the last byte of a request to a storage of its own to the end of its answer, or of the wait for it.
  void observe_upstream(std::chrono::nanoseconds duration);
  // The lanes of the moment; settle_closures counts from the start.
  struct Lanes {
    std::int64_t waiting = 0;
    std::int64_t writes = 0;
    std::int64_t quarantined = 0;
    std::int64_t settle_closures = 0;
    std::int64_t cuts_owed = 0;
  };
  void set_lanes(const Lanes& lanes);
  // A fence method of this word was run, and ended so. Those of add_fence_method() are told from the start.
  void add_fence_method(const std::string& method);
  void count_fence_method(const std::string& method, const std::string& outcome);
  // What /readyz says.
  void set_ready(bool is_ready);
  // The highest token that is held for all clients; 0: none is. Not told before the first call, which comes
  // before all others.
  void set_held(std::int64_t token);
  // A connection was refused what is held, because its program may be older. REQUIRES: set_held() came
  // before.
  void count_older_program();

  // How often each verdict was given since the start, in the order of verdict_words().
  static constexpr std::size_t verdict_count = 9;
  using VerdictCounts = std::array<std::uint64_t, verdict_count>;
  [[nodiscard]] VerdictCounts verdict_counts() const;
  [[nodiscard]] static std::span<const char* const, verdict_count> verdict_words() noexcept;

  // Everything as Prometheus text, with these values of the moment.
  [[nodiscard]] std::string render(const StoreStatus& status, std::int64_t in_flight);
  // What a guard tells that waits for another one's state: it is there, and not ready.
  [[nodiscard]] static std::string render_standby();

 private:
  static constexpr std::size_t event_count = 10;

  // A handle for each metric.
  std::shared_ptr<prometheus::Registry> registry_;
  std::array<prometheus::Counter*, verdict_count> verdicts_{};
  std::array<prometheus::Counter*, event_count> lease_events_{};
  prometheus::Counter* advances_;
  prometheus::Counter* regressions_;
  prometheus::Counter* conflicts_;
  prometheus::Counter* unknown_;
  prometheus::Gauge* leases_waiting_;
  prometheus::Gauge* ready_;
  prometheus::Gauge* held_ = nullptr;
  prometheus::Gauge* held_token_ = nullptr;
  prometheus::Counter* older_programs_ = nullptr;
  prometheus::Gauge* in_flight_;
  prometheus::Gauge* resources_;
  prometheus::Gauge* floor_;
  prometheus::Family<prometheus::Gauge>* refusals_;
  prometheus::Histogram* write_duration_;
  prometheus::Histogram* upstream_duration_;
  prometheus::Family<prometheus::Counter>* fence_methods_ = nullptr;
  prometheus::Gauge* lane_waiting_;
  prometheus::Gauge* lane_writes_;
  prometheus::Gauge* lane_quarantined_;
  prometheus::Gauge* lane_cuts_owed_;
  prometheus::Counter* settle_closures_;
};

}  // namespace fenceguard
