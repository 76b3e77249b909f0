#include "server/postgres/relay/prepared_statements.hpp"

#include <utility>

namespace fenceguard::pgwire {
namespace {

constexpr std::size_t text_bytes_max = 1024;
constexpr std::size_t statements_max = 1024;

}  // namespace

Kind PreparedStatements::kind_of(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? Kind::ordinary : found->second.kind;
}

bool PreparedStatements::has_room_for(std::size_t text_bytes) const noexcept {
  return text_bytes <= text_bytes_max && by_name_.size() < statements_max;
}

std::unique_ptr<ReplacedStatement> PreparedStatements::replace(std::string_view name, Kind kind,
                                                               std::string_view text) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end() && kind == Kind::ordinary) return nullptr;
  auto replaced = std::make_unique<ReplacedStatement>(ReplacedStatement{std::string{name}, std::nullopt});
  if (found != by_name_.end()) replaced->before = found->second;
  if (kind == Kind::ordinary) {
    by_name_.erase(found);
  } else {
    by_name_.insert_or_assign(replaced->name, SpecialStatement{kind, std::string{text}});
  }
  return replaced;
}

void PreparedStatements::restore(ReplacedStatement replaced) {
  if (replaced.before) {
    by_name_.insert_or_assign(std::move(replaced.name), *std::move(replaced.before));
  } else {
    by_name_.erase(replaced.name);
  }
}

}  // namespace fenceguard::pgwire
