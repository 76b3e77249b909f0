#include "adapters/etcd/wire/errors.hpp"

#include <fmt/format.h>

namespace fenceguard::etcd {
namespace {

constexpr std::string_view existing_lease = "etcdserver: lease already exists";
constexpr std::string_view missing_lease = "etcdserver: requested lease not found";
constexpr std::string_view bad_token = "etcdserver: invalid auth token";
constexpr std::string_view no_user = "etcdserver: user name is empty";
constexpr std::string_view no_space = "etcdserver: mvcc: database space exceeded";
constexpr std::string_view old_token = "etcdserver: revision of auth store is old";
constexpr std::string_view off = "etcdserver: authentication is not enabled";

struct Row {
  std::string_view begins;
  FaultKind kind;
  std::string_view hint;  // what to do; empty: the server's own words say it
};

// Only what certainly did nothing stands here, most specific first. Everything else that a call which writes
// is answered is 'unknown', and these are meant to be missing:
//   'request timed out', in all its forms, and 'server stopped': the proposal may be in the log already;
//   'leader changed': the former leader may have sent it on;
//   'no leader': a keep-alive says so after it may have reached the former leader;
//   'mvcc: database space exceeded': a member that finds the quota exceeded applies the transaction and then
//   answers this (quotaApplierV3).
constexpr Row rows[] = {
    // Before it is proposed: too many proposals are waiting.
    {"etcdserver: too many requests", FaultKind::unavailable, "the cluster is overloaded; try again"},
    {no_user, FaultKind::unavailable, "the URL needs a user and a password"},
    {"etcdserver: authentication failed", FaultKind::unavailable, "the URL's user or password is wrong"},
    {"etcdserver: permission denied", FaultKind::unavailable,
     "the user's role must allow it; see docs/etcd.md"},
    {bad_token, FaultKind::unavailable, "this member does not know the session of the URL's user; try again"},
    {old_token, FaultKind::unavailable, "users or roles change just now; try again"},
    {off, FaultKind::unavailable, ""},
    {"etcdserver: user name not found", FaultKind::unavailable, "the URL's user does not exist"},
    // Each put of a transaction is checked before its first operation is carried out.
    {missing_lease, FaultKind::unavailable, "it has run out; try again"},
    {existing_lease, FaultKind::unavailable, ""},
    {"etcdserver: mvcc: required revision has been compacted", FaultKind::unavailable, ""},
    {"etcdserver: mvcc: required revision is a future revision", FaultKind::unavailable, ""},
    // A corrupt member answers so in place of applying anything.
    {"etcdserver: corrupt cluster", FaultKind::unavailable, "the members' data differ; see etcd's manual"},
    {"etcdserver: not capable", FaultKind::unavailable, "etcd 3.4 or newer is needed"},
    {"etcdserver: rpc not supported for learner", FaultKind::unavailable, "connect to voting members"},
};

constexpr int invalid_argument = 3;
constexpr int not_found = 404;

std::string sentence(std::string_view doing, std::string_view text, std::string_view hint) {
  return fmt::format("{}: {}{}{}", doing, text, hint.empty() ? "" : "; ", hint);
}

}  // namespace

Fault fault_of(std::string_view doing, const Refusal& refusal, bool writes) {
  for (const auto& row : rows) {
    if (refusal.text.starts_with(row.begins)) return {row.kind, sentence(doing, refusal.text, row.hint)};
  }
  // What is too large or repeats a key is refused before it is proposed.
  if (refusal.code == invalid_argument) return {FaultKind::invalid_input, sentence(doing, refusal.text, "")};
  if (refusal.code == 0 && refusal.http_status == not_found) {
    return {FaultKind::unavailable,
            sentence(doing, "the server has no such call", "etcd 3.4 or newer is needed, with its gateway")};
  }
  const auto text = refusal.text.empty() ? fmt::format("HTTP {}", refusal.http_status) : refusal.text;
  return {writes ? FaultKind::unknown : FaultKind::unavailable, sentence(doing, text, "")};
}

bool is_outdated_authentication(const Refusal& refusal) noexcept {
  return refusal.text.starts_with(bad_token) || refusal.text.starts_with(old_token) ||
         refusal.text.starts_with(no_user);
}

bool is_out_of_space(const Refusal& refusal) noexcept {
  return refusal.text.starts_with(no_space);
}

bool is_authentication_off(const Refusal& refusal) noexcept {
  return refusal.text.starts_with(off);
}

bool is_existing_lease(const Refusal& refusal) noexcept {
  return refusal.text.starts_with(existing_lease);
}

bool is_missing_lease(const Refusal& refusal) noexcept {
  return refusal.text.starts_with(missing_lease);
}

}  // namespace fenceguard::etcd
