#pragma once

// What 'fenceguard doctor' looks at, product by product, and answers as findings. Changes nothing.
// Thread-safe.

#include <string>
#include <vector>

#include "guard/source/url.hpp"

namespace fenceguard {

// One line of 'fenceguard doctor'.
struct Finding {
  enum class Level { ok, warning, danger };
  Level level = Level::ok;
  std::string check;    // what was looked at: 'journal mode'
  std::string message;  // what was found and, if it is not well, what to do

  friend bool operator==(const Finding&, const Finding&) = default;
};
using Findings = std::vector<Finding>;

// Throw InvalidInput for a URL that is none of the product's, Unavailable where it cannot be reached.
namespace sqlite {
[[nodiscard]] Findings examine_source(const Url& url);
[[nodiscard]] Findings examine_storage(const Url& url);
}  // namespace sqlite

namespace postgres {
[[nodiscard]] Findings examine_source(const Url& url);
[[nodiscard]] Findings examine_storage(const Url& url);
}  // namespace postgres

namespace mariadb {
[[nodiscard]] Findings examine_source(const Url& url);
[[nodiscard]] Findings examine_storage(const Url& url);
}  // namespace mariadb

namespace redis {
// The server, or each master of a cluster.
[[nodiscard]] Findings examine_source(const Url& url);
[[nodiscard]] Findings examine_storage(const Url& url);
// redis-quorum://: each server by its name; one that cannot be reached is a danger. What its counters need to
// be safe is more than a single source needs: every write on disk before its answer.
[[nodiscard]] Findings examine_quorum(const Url& url);
}  // namespace redis

namespace zookeeper {
// They open a session and send a multi that only checks, both of which the servers log.
[[nodiscard]] Findings examine_source(const Url& url);
[[nodiscard]] Findings examine_storage(const Url& url);
}  // namespace zookeeper

namespace etcd {
// One of several members that cannot be reached is a finding.
[[nodiscard]] Findings examine_source(const Url& url);
[[nodiscard]] Findings examine_storage(const Url& url);
}  // namespace etcd

namespace proxy {
// The upstream. That it has no other way in cannot be seen.
[[nodiscard]] Findings examine_storage(const Url& url);
}  // namespace proxy

}  // namespace fenceguard
