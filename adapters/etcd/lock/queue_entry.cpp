#include "adapters/etcd/lock/queue_entry.hpp"

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "guard/error.hpp"

namespace fenceguard::etcd {
namespace {

constexpr std::string_view waits = "awaits";

}  // namespace

QueueEntry::QueueEntry(KeyValue key_value) : key{std::move(key_value)} {
  const auto space = key.value.rfind(' ');
  if (space == std::string::npos) return;
  const auto rest = std::string_view{key.value}.substr(space + 1);
  const auto number = parse_decimal(rest);
  std::optional<Holder> name =
      space == 0 ? Holder{} : Holder::parse(std::string_view{key.value}.substr(0, space));
  if ((!number && rest != waits) || !name) return;
  holder = std::move(name);
  if (number) offset = *number;
}

Token QueueEntry::token(std::int64_t present_offset) const {
  return token_at(key.create_revision, offset.value_or(present_offset));
}

std::string granted_value(const Holder& holder, std::int64_t offset) {
  return fmt::format("{} {}", holder.id(), offset);
}

std::string waiting_value(const Holder& holder) {
  return fmt::format("{} {}", holder.id(), waits);
}

Token token_at(std::int64_t revision, std::int64_t offset) {
  if (offset > std::numeric_limits<std::int64_t>::max() - revision)
    throw Unavailable("the tokens of this etcd namespace are used up: its offset leaves no room");
  return Token{revision + offset};
}

}  // namespace fenceguard::etcd
