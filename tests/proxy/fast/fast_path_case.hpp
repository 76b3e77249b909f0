#pragma once

// Two guards that are compared, one with the fast path and one without: each in front of an upstream of its
// own, which keeps its connections.
//
// Not thread-safe.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/proxy/fast/fast_path_script.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {

// Where the fences stand.
inline constexpr int fast_path_token = 5;

// One of the two guards, its upstream, and what has come of it.
class FastPathSide {
 public:
  FastPathSide(bool has_fast_path, const GuardedOptions& options);

  [[nodiscard]] Guarded& guarded() noexcept { return guarded_; }
  [[nodiscard]] Upstream& upstream() noexcept { return upstream_; }

  // The fence of path stands at fast_path_token, and a connection to the upstream has rested.
  void prepare(const std::string& path);
  // What the client got, an answer each, but for dates and times.
  [[nodiscard]] std::vector<std::string> play(const FastPathScript& script);
  // What the upstream has logged since it was prepared, but for ports; the same read once.
  [[nodiscard]] std::vector<std::string> seen();

 private:
  Upstream upstream_{keeps_connections};
  Guarded guarded_;
  std::size_t seen_before_ = 0;
};

class FastPathTest : public testing::Test {
 protected:
  static constexpr int token = fast_path_token;

  explicit FastPathTest(const GuardedOptions& options = {}) : fast_{true, options}, slow_{false, options} {}
  ~FastPathTest() override;

  // A path that no other script has used.
  std::string next_path() { return "/fast/" + std::to_string(++paths_); }

  // False: something differs.
  bool expect_same(const FastPathScript& script, const std::string& path);

  static FastPathScript script_of(const std::string& request) { return {{request}, {false}, {}}; }
  static std::string request(const std::string& method, const std::string& path, const std::string& words);
  [[nodiscard]] std::uint64_t served_fast() { return fast_.guarded().service().served_fast(); }

  FastPathSide fast_;
  FastPathSide slow_;

 private:
  int paths_ = 0;
};

}  // namespace fenceguard::test
