#pragma once

// The doctor's single checks. Each answers findings.

#include <optional>
#include <string>
#include <vector>

#include "adapters/etcd/client.hpp"
#include "server/doctor/doctor.hpp"

namespace fenceguard::etcd {

// An endpoint of the URL, and what its member says of itself.
struct MemberReport {
  std::string endpoint;
  std::optional<Client::Member> member;
  std::string failure;  // why there is no member
};

// Of the members and the cluster that they make.
[[nodiscard]] Finding look_at_reach(const std::vector<MemberReport>& reports);
[[nodiscard]] Findings look_at_versions(const std::vector<MemberReport>& reports);
[[nodiscard]] Findings look_at_cluster(const std::vector<MemberReport>& reports);
[[nodiscard]] Findings look_at_alarms(const std::vector<MemberReport>& reports);
[[nodiscard]] Finding look_at_size(const std::vector<MemberReport>& reports);
[[nodiscard]] Finding look_at_access(const Address& address);

// Of what is kept there. They read, and throw as Client does.
[[nodiscard]] Finding look_at_offset(Client& client);
[[nodiscard]] Finding look_at_namespace(Client& client);
// The tokens that are drawn now beside the fences.
[[nodiscard]] Finding look_at_order(Client& client);

// What is known of a version of etcd that matters here; empty if nothing is.
[[nodiscard]] std::vector<std::string> known_defects(const std::string& version);

}  // namespace fenceguard::etcd
