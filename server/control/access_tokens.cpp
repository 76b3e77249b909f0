#include "server/control/access_tokens.hpp"

#include <algorithm>
#include <sstream>

#include "guard/error.hpp"
#include "guard/support/text.hpp"

namespace fenceguard {
namespace {

constexpr std::size_t file_bytes_max = 64 * 1024;
constexpr auto kind = "the control token file";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InvalidInput(std::string{kind} + " " + path + " " + why);
}

// Looks at every byte of given, wherever the first difference is.
bool equals_in_constant_time(std::string_view known, std::string_view given) noexcept {
  volatile unsigned difference = known.size() == given.size() ? 0U : 1U;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto expected = static_cast<unsigned char>(known[i % known.size()]);
    difference = difference | (expected ^ static_cast<unsigned char>(given[i]));
  }
  return difference == 0;
}

}  // namespace

AccessTokens::AccessTokens(std::string path)
    : path_{std::move(path)},
      entries_{std::make_shared<const std::vector<Entry>>(load(path_, Reading::first))} {}

bool AccessTokens::reload() {
  if (path_.empty()) return false;
  auto fresh = std::make_shared<const std::vector<Entry>>(load(path_, Reading::again));
  const std::scoped_lock lock{mutex_};
  entries_ = std::move(fresh);
  return true;
}

std::optional<Role> AccessTokens::role_of(std::optional<std::string_view> authorization) const {
  std::shared_ptr<const std::vector<Entry>> entries;
  {
    const std::scoped_lock lock{mutex_};
    entries = entries_;
  }
  if (!entries) return Role::admin;
  constexpr std::string_view scheme = "Bearer ";
  if (!authorization || !equals_ignoring_case(authorization->substr(0, scheme.size()), scheme))
    return std::nullopt;
  const auto given = authorization->substr(scheme.size());
  std::optional<Role> role;
  for (const Entry& entry : *entries) {
    if (equals_in_constant_time(entry.token, given)) role = std::max(role.value_or(Role::open), entry.role);
  }
  return role;
}

std::vector<AccessTokens::Entry> AccessTokens::load(const std::string& path, Reading reading) {
  std::istringstream lines{read_private_file(kind, path, file_bytes_max, reading)};
  std::vector<Entry> entries;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto where = "line " + std::to_string(number);
    std::istringstream words{line.substr(0, line.find('#'))};
    std::string role;
    std::string token;
    std::string rest;
    if (!(words >> role)) continue;
    if (role != "lease" && role != "admin") refuse(path, where + ": the role is lease or admin");
    if (!(words >> token) || words >> rest) refuse(path, where + " is not 'ROLE TOKEN'");
    if (token.size() < token_bytes_min) refuse(path, where + ": a token has at least 16 characters");
    if (!is_visible_ascii(token)) refuse(path, where + ": a token is visible ASCII");
    Entry& entry = entries.emplace_back();
    entry.role = role == "admin" ? Role::admin : Role::lease;
    entry.token = std::move(token);
  }
  if (entries.empty()) refuse(path, "holds no token: one line is 'lease TOKEN' or 'admin TOKEN'");
  return entries;
}

}  // namespace fenceguard
