// How a link comes about.

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>

#include "adapters/redis/wire/client_list.hpp"
#include "server/net/client/connect.hpp"
#include "server/resp/upstream/link.hpp"

namespace fenceguard::resp {
namespace {

namespace asio = boost::asio;

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

void Link::open(std::function<void(const Greeting&)> greeted) {
  greeted_ = std::move(greeted);
  try {
    asio::co_spawn(loop_.context(), run(), asio::detached);
  } catch (...) {
    close();
    throw;
  }
}

void Link::decline(std::string why, std::function<void(const Greeting&)> greeted) {
  greeted_ = std::move(greeted);
  try {
    asio::post(loop_.context(),
               [self = shared_from_this(), why = std::move(why)] { self->end_greeting(std::move(why)); });
  } catch (...) {
    close();
    throw;
  }
}

net::Task<void> Link::run() {
  const auto self = shared_from_this();
  try {
    // Nothing of it comes about within open().
    co_await loop_.yield();
    if (state_ == State::closed) co_return;
    auto error = co_await connect();
    if (state_ == State::closed) co_return;
    if (error.empty()) error = co_await greet();
    if (state_ == State::closed) co_return;
    if (!error.empty()) co_return end_greeting(std::move(error));
    state_ = State::ready;
    set_deadline(net::SteadyTime::max());
    end_greeting({});
    if (state_ == State::closed) co_return;
    schedule_flush();
    co_await receive_all();
  } catch (...) {
    fail("there is no memory for what Redis answered");
  }
}

net::Task<net::Transport::Error> Link::connect_to(const net::Endpoint& endpoint) {
  auto& socket = transport_.socket();
  net::Transport::Error error;
  if (socket.is_open()) socket.close(error);
  error = net::open_socket(socket, endpoint, {.resets = true});
  if (error) co_return error;
  socket.non_blocking(true, error);
  const auto [outcome] = co_await socket.async_connect(endpoint, net::as_result);
  co_return outcome;
}

net::Task<std::string> Link::connect() {
  set_deadline(std::chrono::steady_clock::now() + address_.connect_timeout);
  const auto& server = address_.endpoints.front();
  const net::Address address{server.host, static_cast<std::uint16_t>(server.port), server.socket};
  const auto found = co_await net::resolve(loop_, address, address_.connect_timeout);
  auto reason = found.error;
  for (const auto& endpoint : found.endpoints) {
    if (state_ == State::closed) break;
    const auto error = co_await connect_to(endpoint);
    if (!error) co_return std::string{};
    reason = error.message();
  }
  co_return fmt::format("Redis at {} cannot be reached: {}", to_string(server), reason);
}

net::Task<std::optional<std::string>> Link::receive_one() {
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

// As redis::Connection greets.
net::Task<std::string> Link::greet() {
  const auto where = to_string(address_.endpoints.front());
  set_deadline(std::chrono::steady_clock::now() + address_.timeout);
  std::string commands;
  const bool has_credentials = !address_.password.empty() || !address_.user.empty();
  if (has_credentials && address_.user.empty()) add_command(commands, {"AUTH", address_.password});
  if (!address_.user.empty()) add_command(commands, {"AUTH", address_.user, address_.password});
  add_command(commands, {"HELLO", "2"});
  const bool selects = address_.database != 0;
  if (selects) add_command(commands, {"SELECT", std::to_string(address_.database)});
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
      greeting_.needs_password = true;
    } else if (reply->starts_with('-')) {
      // Its own words, which do not repeat the password.
      co_return reply->substr(1, reply->size() - 3);
    } else if (reply->starts_with('*')) {
      hello = *std::move(reply);
    }
  }
  const auto info = co_await receive_one();
  if (!info) co_return fmt::format("Redis at {} did not answer a greeting", where);
  const auto server_info = co_await receive_one();
  if (!server_info) co_return fmt::format("Redis at {} did not answer a greeting", where);
  if (server_info->starts_with('$')) greeting_.run_id = redis::info_field(*server_info, "run_id");
  if (info->starts_with('$')) {
    greeting_.id = redis::client_field(*info, "id");
    greeting_.address = redis::client_field(*info, "addr");
  }
  greeting_.version = value_of(hello, "version");
  greeting_.is_cluster = value_of(hello, "mode") == "cluster";
  if (greeting_.needs_password) co_return std::string{};
  if (std::atoi(greeting_.version.c_str()) < version_min)
    co_return fmt::format("Redis at {} is {}; fenceguard needs {}.0 or later", where, greeting_.version,
                          version_min);
  // One that takes writes would judge by an old fence, and forget what it admitted.
  if (!takes_replica && !greeting_.is_cluster && value_of(hello, "role") != "master")
    co_return fmt::format("{} is a replica; connect to the master", where);
  co_return std::string{};
}

void Link::end_greeting(std::string error) {
  greeting_.error = std::move(error);
  const auto greeted = std::exchange(greeted_, nullptr);
  const auto self = shared_from_this();
  if (greeted) greeted(greeting_);
  if (!greeting_.error.empty()) fail(greeting_.error);
}

}  // namespace fenceguard::resp
