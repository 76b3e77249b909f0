#include "server/resp/upstream/greeting.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "adapters/redis/wire/client_list.hpp"

namespace fenceguard::resp {
namespace {

constexpr int version_min = 7;

std::string value_of(std::string_view map, std::string_view name) {
  const auto whole = take_value(map);
  if (!whole) return {};
  auto rest = whole->inside;
  for (auto key = take_value(rest); key; key = take_value(rest)) {
    const auto value = take_value(rest);
    if (value && key->text == name) return std::string{value->text};
  }
  return {};
}

}  // namespace

net::Task<std::optional<std::string>> Greeter::receive_one() {
  for (;;) {
    const auto outcome = reader_.read(buffer_.view());
    if (outcome == ReplyReader::Outcome::malformed) co_return std::nullopt;
    if (outcome == ReplyReader::Outcome::whole) {
      std::string reply{buffer_.view().substr(0, reader_.size())};
      buffer_.consume(reader_.size());
      co_return reply;
    }
    buffer_.reserve();
    const auto [error, bytes] = co_await transport_.read_some(buffer_.room(), buffer_.room_bytes());
    if (error) co_return std::nullopt;
    buffer_.commit(bytes);
  }
}

net::Task<std::string> Greeter::greet(const redis::Address& address, bool takes_replica, Greeting& greeting) {
  const auto where = to_string(address.endpoints.front());
  std::string commands;
  const bool has_credentials = !address.password.empty() || !address.user.empty();
  if (has_credentials && address.user.empty()) add_command(commands, {"AUTH", address.password});
  if (!address.user.empty()) add_command(commands, {"AUTH", address.user, address.password});
  add_command(commands, {"HELLO", "2"});
  const bool selects = address.database != 0;
  if (selects) add_command(commands, {"SELECT", std::to_string(address.database)});
  // What its end is asked for by, should it be lost, and of which process; a user may lack the rights.
  add_command(commands, {"CLIENT", "INFO"});
  add_command(commands, {"INFO", "server"});
  if (co_await transport_.write_all(commands, {}))
    co_return "the connection to Redis broke while it was greeted";
  std::string hello;
  for (int left = 1 + (has_credentials ? 1 : 0) + (selects ? 1 : 0); left > 0; --left) {
    auto reply = co_await receive_one();
    if (!reply) co_return fmt::format("Redis at {} did not answer a greeting", where);
    if (reply->starts_with("-NOAUTH") && !has_credentials) {
      greeting.needs_password = true;
    } else if (reply->starts_with('-')) {
      // Its own words, which do not repeat the password.
      co_return std::string{error_of(*reply)};
    } else if (reply->starts_with('*')) {
      hello = *std::move(reply);
    }
  }
  const auto info = co_await receive_one();
  if (!info) co_return fmt::format("Redis at {} did not answer a greeting", where);
  const auto server_info = co_await receive_one();
  if (!server_info) co_return fmt::format("Redis at {} did not answer a greeting", where);
  if (server_info->starts_with('$')) greeting.run_id = redis::info_field(*server_info, "run_id");
  if (info->starts_with('$')) {
    greeting.id = redis::client_field(*info, "id");
    greeting.address = redis::client_field(*info, "addr");
  }
  greeting.version = value_of(hello, "version");
  greeting.is_cluster = value_of(hello, "mode") == "cluster";
  if (greeting.needs_password) co_return std::string{};
  if (std::atoi(greeting.version.c_str()) < version_min)
    co_return fmt::format("Redis at {} is {}; fenceguard needs {}.0 or later", where, greeting.version,
                          version_min);
  // One that takes writes would judge by an old fence, and forget what it admitted.
  if (!takes_replica && !greeting.is_cluster && value_of(hello, "role") != "master")
    co_return fmt::format("{} is a replica; connect to the master", where);
  co_return std::string{};
}

}  // namespace fenceguard::resp
