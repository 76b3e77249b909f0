#pragma once

// What the tests of the guard share: a namespace of its own for each test, claims, and short names.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "adapters/etcd/fences/fence_keys.hpp"
#include "adapters/etcd/guard.hpp"
#include "guard/error.hpp"
#include "tests/conformance/until_answered.hpp"
#include "tests/etcd/cluster.hpp"

namespace fenceguard::test {

inline Claim claim_of(std::int64_t token, const std::string& holder = "h", const std::string& resource = "r",
                      std::optional<std::int64_t> sequence = {}) {
  Claim claim{Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
  if (sequence) claim.sequence = Sequence{*sequence};
  return claim;
}

// For what breaks nothing: one member, which the tests of a program share.
inline EtcdCluster& shared_cluster() {
  static EtcdCluster shared{1};
  return shared;
}

// A namespace of a cluster, initialised, and a client that goes there by the straight way.
class EtcdSpace {
 public:
  explicit EtcdSpace(EtcdCluster& cluster, std::int64_t floor = 0) : cluster_{cluster} {
    set_floor(floor);
    set(keys_.highest(), std::to_string(floor));
  }

  [[nodiscard]] etcd::Address address(const std::string& rest = "") const {
    return etcd::address_of(Url::parse(cluster_.url("/" + name_ + rest)));
  }
  // By one member, or by what else listens on a port.
  [[nodiscard]] etcd::Address address_by(int port, const std::string& rest = "") const {
    return etcd::address_of(Url::parse(cluster_.url_of_port(port, "/" + name_ + rest)));
  }
  [[nodiscard]] etcd::Client& client() { return client_; }
  [[nodiscard]] const etcd::FenceKeys& keys() const { return keys_; }

  // A key of the data.
  [[nodiscard]] std::string key(const std::string& name = "value") const { return name_ + "-data/" + name; }

  void set(const std::string& key, const std::string& value) {
    (void)client_.txn({{}, {etcd::put(key, value)}, {}});
  }
  void remove(const std::string& key) { (void)client_.txn({{}, {etcd::remove(key)}, {}}); }
  // '' if there is no such key. By the log, so that nothing older is seen.
  [[nodiscard]] std::string get(const std::string& key) {
    const auto answer = client_.txn({{}, {etcd::get(key), etcd::remove(keys_.nothing())}, {}});
    const auto& found = answer.answers.at(0).found;
    return found.empty() ? std::string{} : found.front().value;
  }
  [[nodiscard]] std::string value() { return get(key()); }
  [[nodiscard]] std::string fence(const std::string& resource = "r") {
    return get(keys_.fence(Resource{resource}));
  }
  void set_floor(std::int64_t floor) { set(keys_.floor(), std::to_string(floor)); }
  // As a compaction does.
  void compact(const std::string& resource, std::int64_t floor) {
    (void)client_.txn(
        {{},
         {etcd::remove(keys_.fence(Resource{resource})), etcd::put(keys_.floor(), std::to_string(floor))},
         {}});
  }

 private:
  static std::string next_name() {
    static int number = 0;
    return fmt::format("n{}", ++number);
  }

  EtcdCluster& cluster_;
  const std::string name_ = next_name();
  // Where another member may answer, none is waited for long.
  etcd::Client client_{address(cluster_.size() == 1 ? "?timeout=60s" : "?timeout=2s")};
  etcd::FenceKeys keys_{name_};
};

// The fault that function ends with; a failure of the test if there is none.
template <class Function>
Fault fault_of_call(const Function& function) {
  try {
    (void)function();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "no fault";
  return {FaultKind::invalid_input, ""};
}

inline FaultKind kind_of(const auto& function) {
  return fault_of_call(function).kind;
}

}  // namespace fenceguard::test
