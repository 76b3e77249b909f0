#pragma once

// What Prometheus' client libraries tell of their process, under their names: processor time, memory, file
// descriptors, start. prometheus-cpp tells none of it.
//
// Thread-safe.

#include <prometheus/metric_family.h>

#include <vector>

namespace fenceguard {

// As they are now. What the system does not show, because there is no /proc, is left out.
[[nodiscard]] std::vector<prometheus::MetricFamily> process_metrics();

}  // namespace fenceguard
