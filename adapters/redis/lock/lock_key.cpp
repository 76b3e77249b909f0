#include "adapters/redis/lock/lock_key.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view{"*?[]\\^-"}.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

LockKey::LockKey(Keys keys, const std::string& pattern, bool is_cluster)
    : keys_{std::move(keys)}, is_cluster_{is_cluster}, is_shared_{!pattern.empty()} {
  if (!is_shared_) {
    before_ = keys_.prefix() + "lock:{";
    after_ = "}";
    return;
  }
  const auto parts = LockPattern::parse(pattern);
  if (!parts) {
    throw InvalidInput(fmt::format(
        "?lock_key of a redis: URL has one %s, which stands for the resource, and this is '{}'", pattern));
  }
  before_ = parts->before;
  after_ = parts->after;
  if (is_cluster && (before_.find('{') != before_.size() - 1 || !after_.starts_with('}'))) {
    throw InvalidInput(fmt::format(
        "under Redis Cluster %s is the hash tag of ?lock_key, as in lock:{{%s}}, and this is '{}'", pattern));
  }
}

std::string LockKey::of(const Resource& resource) const {
  if (is_cluster_ && resource.name().find('}') != std::string::npos) {
    throw InvalidInput(fmt::format(
        "under Redis Cluster a resource is a hash tag and holds no '}}', and this is '{}'", resource.name()));
  }
  auto key = before_ + resource.name() + after_;
  if (is_shared_ && keys_.is_reserved(key)) {
    throw InvalidInput(fmt::format("?lock_key makes '{}' out of '{}', and that key is fenceguard's own", key,
                                   resource.name()));
  }
  return key;
}

std::string LockKey::glob(const std::string& prefix) const {
  return escaped(before_) + escaped(prefix) + "*" + escaped(after_);
}

std::optional<Resource> LockKey::resource_of(std::string_view key) const {
  const bool is_lock = key.size() > before_.size() + after_.size() && key.starts_with(before_) &&
                       key.ends_with(after_) && !(is_shared_ && keys_.is_reserved(key));
  if (!is_lock) return std::nullopt;
  return Resource::parse(key.substr(before_.size(), key.size() - before_.size() - after_.size()));
}

}  // namespace fenceguard::redis
