#include "server/doctor/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/etcd/fences/address_beside_source.hpp"
#include "guard/error.hpp"
#include "server/doctor/etcd_checks.hpp"

namespace fenceguard::etcd {
namespace {

using Level = Finding::Level;

std::vector<MemberReport> look_at_members(Client& client) {
  std::vector<MemberReport> all;
  for (const auto& endpoint : client.address().endpoints) {
    MemberReport reports{endpoint, {}, {}};
    try {
      reports.member = client.status(endpoint);
    } catch (const Unavailable& error) {
      reports.failure = error.what();
    }
    all.push_back(std::move(reports));
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
  const auto reports = look_at_members(client);
  if (std::ranges::none_of(reports, [](const MemberReport& one) { return one.member.has_value(); }))
    throw Unavailable(fmt::format("no member can be reached: {}", reports.front().failure));
  Findings findings{look_at_reach(reports)};
  add(findings, look_at_cluster(reports));
  add(findings, look_at_versions(reports));
  add(findings, look_at_alarms(reports));
  findings.push_back(look_at_size(reports));
  findings.push_back(look_at_access(address));
  if (is_storage) findings.push_back(look("namespace", [&] { return look_at_namespace(client); }));
  findings.push_back(look("offset", [&] { return look_at_offset(client); }));
  findings.push_back(look("order", [&] { return look_at_order(client); }));
  return findings;
}

}  // namespace

Findings examine_source(const Url& url) {
  return examine(address_beside_source(url), false);
}

Findings examine_storage(const Url& url) {
  return examine(address_beside_source(url), true);
}

}  // namespace fenceguard::etcd
