#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "guard/error.hpp"
#include "server/doctor/etcd_checks.hpp"

namespace fenceguard::etcd {
namespace {

using Level = Finding::Level;

struct Version {
  int major = 0, minor = 0, patch = 0;
  friend auto operator<=>(const Version&, const Version&) = default;
};

Version parse_version(const std::string& text) {
  Version version;
  int* parts[] = {&version.major, &version.minor, &version.patch};
  const char* at = text.data();
  const char* end = at + text.size();
  for (auto* part : parts) {
    at = std::from_chars(at, end, *part).ptr;
    if (at != end) ++at;
  }
  return version;
}

struct Defect {
  Version first, last;
  const char* what;
};

// From etcd's change logs and the notices of its maintainers; the numbers are those of its issues.
constexpr std::array defects{
    Defect{{3, 4, 0}, {3, 4, 7}, "with authentication, members may differ after a restart (11651)"},
    Defect{{3, 4, 20}, {3, 4, 21}, "with authentication, a member that is added may differ (14571)"},
    Defect{{3, 4, 20}, {3, 4, 41}, "a read may be answered from the past after a pause (20418)"},
    Defect{{3, 5, 0}, {3, 5, 2}, "members may differ after a crash (13766)"},
    Defect{{3, 5, 0}, {3, 5, 5}, "members may differ after a crash during defragmentation (14685)"},
    Defect{{3, 5, 5}, {3, 5, 5}, "with authentication, a member that is added may differ (14571)"},
    Defect{{3, 5, 0}, {3, 5, 27}, "a read may be answered from the past after a pause (20418)"},
    Defect{{3, 6, 0}, {3, 6, 8}, "a read may be answered from the past after a pause (20418)"},
};

constexpr std::int64_t default_quota_bytes = std::int64_t{2} << 30;
constexpr std::int64_t mebibyte = 1 << 20;

bool is_loopback(std::string_view endpoint) {
  const auto host = endpoint.substr(std::min(endpoint.find("://") + 3, endpoint.size()));
  return host.starts_with("127.") || host.starts_with("localhost:") || host.starts_with("[::1]");
}

// Whether the cluster answers a client without credentials.
bool lets_anybody_read(Address address) {
  address.user.clear();
  address.password.clear();
  Client client{address};
  try {
    (void)client.range(get(address.prefix + "/floor"));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<std::string> known_defects(const std::string& version) {
  const auto number = parse_version(version);
  std::vector<std::string> found;
  for (const auto& defect : defects) {
    if (defect.first <= number && number <= defect.last) found.emplace_back(defect.what);
  }
  return found;
}

Finding look_at_reach(const std::vector<MemberReport>& reports) {
  constexpr auto check = "members";
  std::vector<std::string> failures;
  for (const auto& one : reports) {
    if (!one.member) failures.push_back(fmt::format("{}: {}", one.endpoint, one.failure));
  }
  if (!failures.empty()) {
    return {Level::warning, check,
            fmt::format("{} of {} cannot be reached: {}", failures.size(), reports.size(),
                        fmt::join(failures, "; "))};
  }
  const auto found = fmt::format("{} named, all answer", reports.size());
  if (reports.size() == 1) {
    return {Level::warning, check,
            found + ": where that one fails nothing can be reached; name three or five members"};
  }
  if (reports.size() % 2 == 0) {
    return {Level::warning, check,
            found + ": an odd number is better, one less lets as many fail; name all members"};
  }
  return {Level::ok, check, found};
}

Findings look_at_versions(const std::vector<MemberReport>& reports) {
  std::set<std::string> versions;
  for (const auto& one : reports) {
    if (one.member) versions.insert(one.member->version);
  }
  Findings findings;
  for (const auto& version : versions) {
    const auto known = known_defects(version);
    if (known.empty()) {
      findings.push_back({Level::ok, "version", "etcd " + version});
      continue;
    }
    findings.push_back(
        {Level::warning, "version",
         fmt::format("etcd {}: {}; nothing is decided by a read here, but others may; install the latest of "
                     "its line",
                     version, fmt::join(known, "; "))});
  }
  return findings;
}

Findings look_at_cluster(const std::vector<MemberReport>& reports) {
  constexpr auto check = "cluster";
  std::set<std::int64_t> clusters, members, leaders;
  std::size_t answered = 0;
  for (const auto& one : reports) {
    if (!one.member) continue;
    ++answered;
    clusters.insert(one.member->cluster);
    members.insert(one.member->id);
    leaders.insert(one.member->leader);
  }
  Findings findings;
  if (clusters.size() > 1) {
    findings.push_back({Level::danger, check,
                        fmt::format("the endpoints belong to {} different clusters: their revisions have "
                                    "nothing to do with each other, and a lock in one is free in the other; "
                                    "name the members of one",
                                    clusters.size())});
  } else if (members.size() < answered) {
    findings.push_back({Level::warning, check, "some endpoints are one and the same member"});
  }
  if (leaders.contains(0))
    findings.push_back({Level::danger, check, "there is no leader, or a member that has lost it"});
  if (findings.empty()) findings.push_back({Level::ok, check, "one cluster, with a leader"});
  return findings;
}

Findings look_at_alarms(const std::vector<MemberReport>& reports) {
  constexpr auto check = "alarms";
  std::set<std::string> errors;
  for (const auto& one : reports) {
    if (one.member) errors.insert(one.member->errors.begin(), one.member->errors.end());
  }
  Findings findings;
  for (const auto& error : errors) {
    const bool is_space = error.find("NOSPACE") != error.npos;
    findings.push_back(
        {Level::danger, check,
         is_space ? fmt::format("{}: the database is full, and nothing is written any more; compact, "
                                "defragment, and run 'etcdctl alarm disarm'",
                                error)
                  : error});
  }
  if (findings.empty()) findings.push_back({Level::ok, check, "none"});
  return findings;
}

Finding look_at_size(const std::vector<MemberReport>& reports) {
  constexpr auto check = "database";
  std::int64_t bytes = 0;
  for (const auto& one : reports) {
    if (one.member) bytes = std::max(bytes, one.member->database_bytes);
  }
  const auto found = fmt::format("{} MiB", (bytes + mebibyte - 1) / mebibyte);
  if (bytes * 4 < default_quota_bytes * 3) return {Level::ok, check, found};
  return {Level::warning, check,
          fmt::format("{}, and 2048 are the quota unless --quota-backend-bytes says otherwise: beyond it "
                      "nothing is written any more; switch automatic compaction on, and defragment",
                      found)};
}

Finding look_at_access(const Address& address) {
  constexpr auto check = "access";
  const bool is_open = lets_anybody_read(address);
  const auto* auth = is_open ? "no authentication" : "authentication";
  const auto found = fmt::format("{}, {}", auth, address.tls.is_on ? "TLS" : "no TLS");
  if (std::ranges::all_of(address.endpoints, is_loopback)) return {Level::ok, check, found + ", loopback"};
  if (is_open && !address.tls.is_on) {
    return {Level::warning, check,
            found +
                ": every client that reaches it can bypass the fences; switch both on (auth enable, "
                "--cert-file)"};
  }
  if (!address.tls.is_on)
    return {Level::warning, check, found + ": the password and all tokens travel in the clear"};
  return {Level::ok, check, found};
}

}  // namespace fenceguard::etcd
