#pragma once

// What every fence store must pass, whatever keeps its fences: that each call is answered exactly once, on a
// thread of the store's own, never before it has returned and never by the thread that ends the store; and
// what a change, a refusal and a look at it answer. An adapter runs it in some 30 lines: a FenceSpace, and
// INSTANTIATE_TEST_SUITE_P with what makes one. Its tests are compiled once, in fence_store_suite.cpp.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "guard/store/storage.hpp"
#include "tests/conformance/fence_calls.hpp"

namespace fenceguard::test {

// A namespace of its own, for one test.
class FenceSpace {
 public:
  virtual ~FenceSpace() = default;
  [[nodiscard]] virtual std::unique_ptr<Storage> open(const StorageOptions& options) = 0;
  // Whether it can be looked at (StorageOptions::Mode::inspect).
  [[nodiscard]] virtual bool can_be_inspected() const { return true; }
  // Whether floor, listing and compaction are there, and a fence can be set by hand beside a guard.
  [[nodiscard]] virtual bool can_be_rebased() const { return true; }
  // Whether an advance tells that it raised the fence (Ruling::changed).
  [[nodiscard]] virtual bool tells_changes() const { return true; }
  // Whether it tells over whom (Ruling::overtaken).
  [[nodiscard]] virtual bool tells_overtaken() const { return true; }
};

struct FenceKind {
  std::string name;
  std::function<std::unique_ptr<FenceSpace>()> make;
};

inline std::string fence_kind_name(const testing::TestParamInfo<FenceKind>& info) {
  return info.param.name;
}

class FenceStoreSuite : public testing::TestWithParam<FenceKind> {
 protected:
  // Ready to be used.
  [[nodiscard]] std::unique_ptr<Storage> open(std::int64_t jump_max = 0) {
    auto storage = space_->open({.initialise = true, .jump_max = jump_max});
    if (storage->fences().status().state != StoreState::ready) (void)init(*storage, 0);
    return storage;
  }

  static Claim claim(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
    return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
  }

  std::unique_ptr<FenceSpace> space_ = GetParam().make();
};

}  // namespace fenceguard::test
