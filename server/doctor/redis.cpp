#include "server/doctor/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/redis/fences/address_beside_source.hpp"
#include "guard/error.hpp"
#include "server/doctor/redis_checks.hpp"

namespace fenceguard::redis {
namespace {

using Level = Finding::Level;

// What is known of one server of several, under its name.
Findings examine_named(const Address& address, Use use) {
  const auto name = to_string(address.endpoints.front());
  Findings findings;
  try {
    ProbedServer server{address, use};
    findings = examine(server);
  } catch (const Unavailable& error) {
    findings = {{Level::danger, "server", error.what()}};
  }
  for (auto& finding : findings) finding.check = fmt::format("{} {}", name, finding.check);
  return findings;
}

Findings examine_each(const Address& address, const std::vector<Endpoint>& endpoints, Use use) {
  Findings all;
  for (const auto& endpoint : endpoints) {
    for (auto&& finding : examine_named(address.at(endpoint), use)) all.push_back(std::move(finding));
  }
  return all;
}

Finding what_a_cluster_loses(Use use) {
  if (use == Use::storage) {
    return {Level::warning, "cluster",
            "a script sees one slot only: there is no record of the namespace, so a new resource starts "
            "without a floor, FLUSHALL and keys that were deleted are not noticed, and fences cannot be "
            "listed or compacted"};
  }
  return {
      Level::warning, "cluster",
      "tokens come from one counter for each resource: fences cannot be compacted, and a counter that was "
      "deleted by hand starts again at the server's clock"};
}

Findings examine_address(const Address& address, Use use) {
  ProbedServer server{address, use};
  if (!server.is_cluster()) return examine(server);
  auto findings = examine_each(address, masters(server), use);
  findings.insert(findings.begin(), what_a_cluster_loses(use));
  return findings;
}

Finding look_at_size(std::size_t servers) {
  const auto found = fmt::format("{} servers, {} may fail", servers, (servers - 1) / 2);
  if (servers < 3) return {Level::warning, "quorum", found + ": three or five let one or two fail"};
  if (servers % 2 == 0)
    return {Level::warning, "quorum", found + ": one less is as safe, and an odd number is better"};
  return {Level::ok, "quorum", found};
}

}  // namespace

Findings examine_source(const Url& url) {
  return examine_address(address_beside_source(url), Use::source);
}

Findings examine_storage(const Url& url) {
  return examine_address(address_beside_source(url), Use::storage);
}

Findings examine_quorum(const Url& url) {
  const auto address = address_of(url, {"node_timeout", "unsafe_persistence"});
  const auto unsafe = url.parameters.find("unsafe_persistence");
  const bool is_unsafe_fine = unsafe != url.parameters.end() && unsafe->second == "1";
  Findings findings{look_at_size(address.endpoints.size())};
  const auto use = is_unsafe_fine ? Use::unsafe_quorum_node : Use::quorum_node;
  for (auto&& finding : examine_each(address, address.endpoints, use)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace fenceguard::redis
