#include "adapters/redis/fences/old_clients.hpp"

#include <array>

#include "adapters/redis/client.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::string_view what_is_known =
    "--fence-method kill-client: name=PATTERN, user=NAME or addr=IP[:PORT] says which connections";

// The value of 'field=' in a line of CLIENT LIST, whose values hold no blanks.
std::string_view value_of(std::string_view line, std::string_view field) {
  while (!line.empty()) {
    const auto end = std::min(line.find(' '), line.size());
    const auto part = line.substr(0, end);
    if (part.starts_with(field) && part.substr(field.size()).starts_with('='))
      return part.substr(field.size() + 1);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return {};
}

Reply call(Connection& connection, std::initializer_list<std::string_view> words) {
  const std::vector<std::string_view> arguments{words};
  return unless_error("ending the connections of an old holder", connection.call(arguments));
}

}  // namespace

ClientFilter ClientFilter::parse(std::string_view text) {
  const auto equals = std::min(text.find('='), text.size());
  const auto word = text.substr(0, equals);
  const auto value = text.substr(std::min(equals + 1, text.size()));
  if (value.empty()) throw InvalidInput(std::string{what_is_known});
  if (word == "name") return {By::name, value};
  if (word == "user") return {By::user, value};
  if (word == "addr") return {By::address, value};
  throw InvalidInput(std::string{what_is_known});
}

std::string_view ClientFilter::user() const noexcept {
  return by_ == By::user ? std::string_view{value_} : std::string_view{};
}

bool ClientFilter::matches(std::string_view line, const Resource& resource, Token old_token) const {
  switch (by_) {
    case By::name:
      return matches_name(value_of(line, "name"), resource, old_token);
    case By::user:
      return value_of(line, "user") == value_;
    case By::address:
      break;
  }
  const auto address = value_of(line, "addr");
  return address == value_ || address.substr(0, address.rfind(':')) == value_;
}

bool ClientFilter::matches_name(std::string_view name, const Resource& resource, Token old_token) const {
  std::string_view pattern = value_;
  while (!pattern.empty()) {
    const auto next = std::min(pattern.find('%'), pattern.size());
    if (!name.starts_with(pattern.substr(0, next))) return false;
    name.remove_prefix(next);
    const auto mark = pattern.substr(next, 2);
    pattern.remove_prefix(next + std::min<std::size_t>(mark.size(), 2));
    if (mark == "%t") {
      const auto digits = name.substr(0, std::min(name.find_first_not_of("0123456789"), name.size()));
      const auto token = Token::parse(digits);
      if (!token || *token > old_token) return false;
      name.remove_prefix(digits.size());
    } else if (!mark.empty()) {
      const auto text = mark == "%r" ? percent_encode_path(resource.name()) : std::string{mark};
      if (!name.starts_with(text)) return false;
      name.remove_prefix(text.size());
    }
  }
  return name.empty();
}

int kill_clients(const Url& url, const ClientFilter& filter, const Resource& resource, Token old_token) {
  Client client{url};
  auto& connection = client.connection(client.keys().fence(resource));
  const auto own = std::to_string(call(connection, {"CLIENT", "ID"}).integer);
  const auto list = call(connection, {"CLIENT", "LIST"}).text;
  int killed = 0;
  for (std::string_view rest = list; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const auto line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto id = value_of(line, "id");
    if (id.empty() || id == own || !filter.matches(line, resource, old_token)) continue;
    // By its number, which no later connection has.
    killed += static_cast<int>(call(connection, {"CLIENT", "KILL", "ID", id}).integer);
  }
  return killed;
}

}  // namespace fenceguard::redis
