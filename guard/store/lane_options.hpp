#pragma once

// LaneOptions: how a storage that offers no atomic check of its own is guarded: one process in front of it,
// its fences in a state of its own, and one lane per resource. See the page of guarantees for the timing
// assumption that goes with 'settle'.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace fenceguard {

class Storage;

struct LaneOptions {
  std::shared_ptr<Storage> state;  // keeps the fences; must offer a LaneState
  // For so long a resource stays closed after a write whose end was not seen: the upstream has finished or
  // abandoned a request by then.
  std::chrono::milliseconds settle{30'000};
  // From the last byte of a request to the last of its answer; past that a write's outcome is unknown. Also
  // bounds the time to connect.
  std::chrono::milliseconds upstream_timeout{30'000};
  std::size_t waiting_per_resource_max = 1'000;  // claims that wait in a lane; beyond it 503
  std::size_t waiting_max = 10'000;              // of all lanes
  // Its address: a state that was closed in front of another upstream tells nothing of this one.
  std::string upstream;
  // The operator says so: nothing that another guard forwarded is under way any more. A state under which
  // nothing was ever forwarded is then not closed for the settle time.
  bool is_settled = false;
  bool forward_claim = false;  // pass the fencing headers on to the upstream
  // For an https: upstream, files in PEM. Empty: the system's certificates, and none of our own.
  std::string upstream_ca_file;
  std::string upstream_certificate_file;
  std::string upstream_key_file;
};

}  // namespace fenceguard
