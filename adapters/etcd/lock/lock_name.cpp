#include "adapters/etcd/lock/lock_name.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::etcd {
namespace {

std::string escaped(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == '/')
      result += "%2F";
    else if (c == '%')
      result += "%25";
    else
      result += c;
  }
  return result;
}

}  // namespace

LockName::LockName(std::string prefix, const std::string& pattern)
    : prefix_{std::move(prefix)}, is_shared_{!pattern.empty()} {
  if (!is_shared_) return;
  const auto position = pattern.find("%s");
  if (position == pattern.npos || pattern.find("%s", position + 1) != pattern.npos) {
    throw InvalidInput(fmt::format(
        "?lock_key of an etcd: URL has one %s, which stands for the resource, and this is '{}'", pattern));
  }
  before_ = pattern.substr(0, position);
  after_ = pattern.substr(position + 2);
}

std::string LockName::of(const Resource& resource) const {
  if (!is_shared_) return own() + escaped(resource.name()) + "/";
  auto name = before_ + resource.name() + after_;
  if (name.starts_with(prefix_ + "/") && !name.starts_with(own())) {
    throw InvalidInput(fmt::format("?lock_key makes '{}' out of '{}', and such keys are fenceguard's own",
                                   name, resource.name()));
  }
  return name + "/";
}

std::string LockName::key_of(const Resource& resource, std::int64_t lease) const {
  return of(resource) + lease_in_key(lease);
}

std::vector<Op> LockName::registration() const {
  if (!is_shared_) return {};
  return {put(registered(prefix_).key + before_ + "%s" + after_, "")};
}

Op LockName::registered(const std::string& prefix) {
  return get_all(prefix + "/lock_keys/");
}

LockName LockName::of_registration(const std::string& prefix, const KeyValue& registration) {
  return {prefix, registration.key.substr(registered(prefix).key.size())};
}

std::optional<Resource> LockName::resource_of(std::string_view key) const {
  auto name = key.substr(0, key.find_last_of('/') + 1);
  const std::string before = is_shared_ ? before_ : own();
  const std::string after = (is_shared_ ? after_ : "") + "/";
  const bool is_reserved = is_shared_ && key.starts_with(prefix_ + "/") && !key.starts_with(own());
  if (is_reserved || name.size() < before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return std::nullopt;
  name = name.substr(before.size(), name.size() - before.size() - after.size());
  if (is_shared_) return Resource::parse(name);
  const auto decoded = percent_decode(name);
  return decoded ? Resource::parse(*decoded) : std::nullopt;
}

Op LockName::all_of(const std::string& prefix) const {
  const auto start = is_shared_ ? before_ + prefix : own() + escaped(prefix);
  auto range = get_all(start);
  // Without anything before the resource, everything: etcd has no empty key.
  if (start.empty()) range.key = std::string(1, '\0');
  return range;
}

std::vector<Op> LockName::all() const {
  std::vector<Op> ranges{get_all(own())};
  if (is_shared_ && !before_.starts_with(own())) ranges.push_back(all_of(""));
  return ranges;
}

std::string lease_in_key(std::int64_t lease) {
  return fmt::format("{:x}", static_cast<std::uint64_t>(lease));
}

}  // namespace fenceguard::etcd
