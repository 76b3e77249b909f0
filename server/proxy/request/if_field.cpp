#include "server/proxy/request/if_field.hpp"

#include "server/proxy/request/target.hpp"

namespace fenceguard::proxy {
namespace {

constexpr std::string_view malformed_if =
    "If is lists in brackets, each behind a URL in angle brackets or none.";

// Where the list that begins at from ends, behind its bracket; npos: nowhere. URLs and entity tags in it may
// hold any bracket.
std::size_t end_of_list(std::string_view value, std::size_t from) noexcept {
  for (auto i = from + 1; i < value.size(); ++i) {
    if (value[i] == ')') return i + 1;
    if (value[i] != '<' && value[i] != '"') continue;
    i = value.find(value[i] == '<' ? '>' : '"', i + 1);
    if (i == std::string_view::npos) break;
  }
  return std::string_view::npos;
}

}  // namespace

std::variant<std::vector<IfPiece>, BadPath> parse_if(std::string_view value, std::string_view host) {
  std::vector<IfPiece> pieces;
  bool has_list = false;
  for (std::size_t at = 0, end = 0; at < value.size(); at = end) {
    const char first = value[at];
    end = at + 1;
    if (first == '(') end = end_of_list(value, at);
    if (first == '<') end = value.find('>', at) + 1;
    const bool is_blank = first == ' ' || first == '\t';
    if (end == std::string_view::npos || end == 0 || (first != '(' && first != '<' && !is_blank))
      return BadPath{std::string{malformed_if}};
    has_list = has_list || first == '(';
    IfPiece piece{false, std::string{value.substr(at, end - at)}};
    if (first == '<') {
      auto own = parse_own_reference(value.substr(at + 1, end - at - 2), host);
      if (own && std::holds_alternative<BadPath>(*own))
        return BadPath{"If: " + std::get<BadPath>(*own).reason};
      if (own) piece = {true, std::move(std::get<std::string>(*own))};
    }
    pieces.push_back(std::move(piece));
  }
  if (!has_list) return BadPath{std::string{malformed_if}};
  return pieces;
}

}  // namespace fenceguard::proxy
