#pragma once

// PgBouncer in transaction mode before the test's server, in a temporary folder, on a free port; gone with
// the object.

#include <sys/types.h>

#include <string>

#include "tests/conformance/temp_dir.hpp"

namespace fenceguard::test {

class PgBouncer {
 public:
  explicit PgBouncer(int pool_size);
  ~PgBouncer();
  PgBouncer(const PgBouncer&) = delete;
  PgBouncer& operator=(const PgBouncer&) = delete;

  [[nodiscard]] const std::string& port() const { return port_; }

 private:
  TempDir folder_;
  std::string port_;
  pid_t pid_ = -1;
};

}  // namespace fenceguard::test
