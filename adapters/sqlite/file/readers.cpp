#include "adapters/sqlite/file/readers.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::size_t queue_max = 100'000;

}  // namespace

Readers::Readers(const std::string& path, unsigned threads) : executor_{threads, "the file", queue_max} {
  for (unsigned i = 0; i < threads; ++i) snapshots_.emplace_back(path);
}

Readers::~Readers() {
  executor_.stop();
  executor_.join();
  if (log_is_settled_) {
    for (auto& snapshot : snapshots_) snapshot.database.copy_log_at_close(true);
  }
}

}  // namespace fenceguard::sqlite
