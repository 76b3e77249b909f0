#include "adapters/etcd/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/etcd/address_beside_source.hpp"
#include "adapters/etcd/doctor_checks.hpp"
#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

using Level = Finding::Level;

std::vector<Seen> look_at_members(Client& client) {
  std::vector<Seen> all;
  for (const auto& endpoint : client.address().endpoints) {
    Seen seen{endpoint, {}, {}};
    try {
      seen.member = client.status(endpoint);
    } catch (const Unavailable& error) {
      seen.failure = error.what();
    }
    all.push_back(std::move(seen));
  }
  return all;
}

void add(Findings& findings, Findings&& more) {
  std::ranges::move(more, std::back_inserter(findings));
}

// A check that reads. Where the cluster does not answer, that is the finding.
template <class Check>
Finding look(const char* name, const Check& check) {
  try {
    return check();
  } catch (const Error& error) {
    return {Level::danger, name, error.what()};
  }
}

Findings examine(const Address& address, bool is_storage) {
  Client client{address};
  const auto seen = look_at_members(client);
  if (std::ranges::none_of(seen, [](const Seen& one) { return one.member.has_value(); }))
    throw Unavailable(fmt::format("no member can be reached: {}", seen.front().failure));
  Findings findings{look_at_reach(seen)};
  add(findings, look_at_cluster(seen));
  add(findings, look_at_versions(seen));
  add(findings, look_at_alarms(seen));
  findings.push_back(look_at_size(seen));
  findings.push_back(look_at_access(address));
  if (is_storage) findings.push_back(look("namespace", [&] { return look_at_namespace(client); }));
  findings.push_back(look("offset", [&] { return look_at_offset(client); }));
  findings.push_back(look("order", [&] { return look_at_order(client); }));
  return findings;
}

}  // namespace

std::vector<Finding> examine_source(const Url& url) {
  return examine(address_beside_source(url), false);
}

std::vector<Finding> examine_storage(const Url& url) {
  return examine(address_beside_source(url), true);
}

}  // namespace fenceguard::etcd
