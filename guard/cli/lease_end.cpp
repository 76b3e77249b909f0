#include "guard/cli/lease_end.hpp"

#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

namespace fenceguard::cli {

void leave(int status) {
  std::fflush(nullptr);
  std::_Exit(status);
}

std::optional<Release> release_within(Lease& lease, std::chrono::milliseconds limit) {
  std::packaged_task<Release()> task{[&lease] { return lease.release(); }};
  auto result = task.get_future();
  std::thread{std::move(task)}.detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace fenceguard::cli
