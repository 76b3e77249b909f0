#pragma once

// PreparedStatements: those of a client's that begin, set or end a transaction, by name; every other name
// stands for an ordinary statement. And of what the portal without a name is. Not thread-safe.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/postgres/relay/statements.hpp"

namespace fenceguard::pgwire {

// A statement that is not ordinary; the text where its kind keeps one.
struct SpecialStatement {
  Kind kind;
  std::string text;
};

// What a name stood for before a Parse or a Close, should that not come about.
struct ReplacedStatement {
  std::string name;
  std::optional<SpecialStatement> before;
};

class PreparedStatements {
 public:
  [[nodiscard]] Kind kind_of(std::string_view name) const;
  // REQUIRES: kind_of(name) is not ordinary.
  [[nodiscard]] const std::string& text_of(std::string_view name) const {
    return by_name_.find(name)->second.text;
  }
  // Whether a text of this size can be kept.
  [[nodiscard]] bool has_room_for(std::size_t text_bytes) const noexcept;
  // What it was before; null where it was and is ordinary.
  [[nodiscard]] std::unique_ptr<ReplacedStatement> replace(std::string_view name, Kind kind,
                                                           std::string_view text);
  void restore(ReplacedStatement replaced);
  void clear() noexcept { by_name_.clear(); }

  Statements unnamed_portal{};
  // After an error: one of ours may be left at the server, where SQL could execute it.
  bool may_hold_ours = false;

 private:
  std::map<std::string, SpecialStatement, std::less<>> by_name_;
};

}  // namespace fenceguard::pgwire
