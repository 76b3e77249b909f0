#include "adapters/redis/fences/old_clients.hpp"

#include <fmt/format.h>

#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "adapters/redis/client.hpp"
#include "adapters/redis/wire/client_list.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::redis {
namespace {

constexpr std::string_view what_is_known =
    "--fence-method kill-client: name=PATTERN, name=PATTERN&user=NAME, user=NAME or addr=IP[:PORT] says "
    "which "
    "connections";
constexpr std::chrono::milliseconds between_looks{10};

Reply call(Connection& connection, std::initializer_list<std::string_view> words) {
  const std::vector<std::string_view> arguments{words};
  return unless_error("ending the connections of an old holder", connection.call(arguments));
}

}  // namespace

ClientFilter ClientFilter::parse(std::string_view text) {
  const auto equals = std::min(text.find('='), text.size());
  const auto word = text.substr(0, equals);
  const auto value = text.substr(std::min(equals + 1, text.size()));
  if (word == "name") {
    constexpr std::string_view and_user = "&user=";
    const auto place = std::min(value.rfind(and_user), value.size());
    const auto user = value.substr(std::min(place + and_user.size(), value.size()));
    const bool has_user = place < value.size();
    if (place > 0 && has_user == !user.empty()) return {By::name, value.substr(0, place), user};
  } else if (!value.empty()) {
    if (word == "user") return {By::user, {}, value};
    if (word == "addr") return {By::address, value, {}};
  }
  throw InvalidInput(std::string{what_is_known});
}

bool ClientFilter::matches(std::string_view line, const Resource& resource, Token old_token) const {
  switch (by_) {
    case By::name:
      return is_of_user(line) && matches_name(client_field(line, "name"), &resource, old_token);
    case By::user:
      return is_of_user(line);
    case By::address:
      break;
  }
  const auto address = client_field(line, "addr");
  return address == value_ || address.substr(0, address.rfind(':')) == value_;
}

bool ClientFilter::may_match(std::string_view line) const {
  // Links of replication run no commands of a holder's.
  if (by_ != By::name || !is_of_user(line) ||
      client_field(line, "flags").find_first_of("MS") != std::string::npos)
    return false;
  return !matches_name(client_field(line, "name"), nullptr, Token{std::numeric_limits<std::int64_t>::max()});
}

bool ClientFilter::is_of_user(std::string_view line) const {
  return user_.empty() || client_field(line, "user") == user_;
}

bool ClientFilter::matches_name(std::string_view name, const Resource* resource, Token old_token) const {
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
    } else if (mark == "%r" && resource == nullptr) {
      // Of any: as long as what follows it allows.
      const auto rest = ClientFilter{by_, pattern, {}};
      for (std::size_t length = 1; length <= name.size(); ++length)
        if (rest.matches_name(name.substr(length), nullptr, old_token)) return true;
      return false;
    } else if (!mark.empty()) {
      const auto text = mark == "%r" ? percent_encode_path(resource->name()) : std::string{mark};
      if (!name.starts_with(text)) return false;
      name.remove_prefix(text.size());
    }
  }
  return name.empty();
}

int kill_clients(const Url& url, const ClientFilter& filter, const Resource& resource, Token old_token,
                 std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Client client{url};
  auto& connection = client.connection(client.keys().fence(resource));
  const auto own = std::to_string(call(connection, {"CLIENT", "ID"}).integer);
  std::set<std::string, std::less<>> killed;
  for (;;) {
    const auto list = call(connection, {"CLIENT", "LIST"}).text;
    int left = 0;
    int unknown = 0;
    for (std::string_view rest = list; !rest.empty();) {
      const auto end = std::min(rest.find('\n'), rest.size());
      const auto line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const auto id = client_field(line, "id");
      if (id.empty() || id == own) continue;
      if (filter.may_match(line)) ++unknown;
      if (!filter.matches(line, resource, old_token)) continue;
      ++left;
      // By its number, which no later connection has.
      if (call(connection, {"CLIENT", "KILL", "ID", id}).integer > 0) killed.emplace(id);
    }
    if (left == 0 && unknown > 0)
      throw Unavailable(
          fmt::format("{} ended, but {} other connections do not say whose they are, and any client may "
                      "change its name: give the "
                      "holders a user of their own, and user=NAME, or name=PATTERN&user=NAME where each of "
                      "its connections has such "
                      "a name",
                      killed.size(), unknown));
    if (left == 0) return static_cast<int>(killed.size());
    if (std::chrono::steady_clock::now() >= deadline)
      throw Unavailable(fmt::format("{} connections did not end, or have come since", left));
    std::this_thread::sleep_for(between_looks);
  }
}

}  // namespace fenceguard::redis
