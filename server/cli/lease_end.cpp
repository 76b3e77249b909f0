#include "server/cli/lease_end.hpp"

#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>
#include <utility>

namespace fenceguard::cli {

void leave(int status) {
  std::fflush(nullptr);
  std::_Exit(status);
}

std::optional<Release> release_within(std::function<Release()> release, std::chrono::milliseconds limit) {
  std::packaged_task<Release()> task{std::move(release)};
  auto result = task.get_future();
  std::thread{std::move(task)}.detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace fenceguard::cli
