#include "adapters/redis/wire/connection.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <poll.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "adapters/redis/wire/client_list.hpp"
#include "guard/error.hpp"
#include "guard/support/look_up.hpp"
#include "guard/support/read_only_call.hpp"

namespace fenceguard::redis {
namespace {

constexpr int version_min = 7;
constexpr std::size_t encoded_kept_max = 1 << 20;
// A server that answered so short a time ago is not looked at.
constexpr std::chrono::microseconds fresh{100};

timeval timeval_of(std::chrono::milliseconds limit) {
  return {limit.count() / 1000, static_cast<suseconds_t>(limit.count() % 1000 * 1000)};
}

Reply reply_of(const redisReply& raw) {
  Reply reply;
  switch (raw.type) {
    case REDIS_REPLY_INTEGER:
      reply.kind = Reply::Kind::integer;
      reply.integer = raw.integer;
      break;
    case REDIS_REPLY_STATUS:
      reply.kind = Reply::Kind::status;
      break;
    case REDIS_REPLY_STRING:
      reply.kind = Reply::Kind::text;
      break;
    case REDIS_REPLY_ERROR:
      reply.kind = Reply::Kind::error;
      break;
    case REDIS_REPLY_ARRAY:
      reply.kind = Reply::Kind::array;
      reply.elements.reserve(raw.elements);
      for (std::size_t i = 0; i < raw.elements; ++i) reply.elements.push_back(reply_of(*raw.element[i]));
      break;
    default:
      break;
  }
  if (raw.str != nullptr) reply.text.assign(raw.str, raw.len);
  return reply;
}

// Of a command or a word of it: what it is, and how long.
void add_header(std::string& text, char kind, std::size_t count) {
  char header[24]{kind};
  auto* end = std::to_chars(header + 1, header + 22, count).ptr;
  *end++ = '\r';
  *end++ = '\n';
  text.append(header, end);
}

// Of a flat array of names and values, as HELLO answers.
std::string value_of(const Reply& map, std::string_view name) {
  for (std::size_t i = 0; i + 1 < map.elements.size(); i += 2) {
    if (map.elements[i].text == name) return map.elements[i + 1].text;
  }
  return {};
}

}  // namespace

void encode(Arguments arguments, std::string& text) {
  std::size_t size = 16;
  for (const auto argument : arguments) size += 16 + argument.size();
  text.reserve(text.size() + size);
  add_header(text, '*', arguments.size());
  for (const auto argument : arguments) {
    add_header(text, '$', argument.size());
    text.append(argument).append("\r\n");
  }
}

void Connection::Close::operator()(redisContext* context) const noexcept {
  redisFree(context);
}

Connection::Connection(const Address& address) : shown_{to_string(address.endpoints.front())} {
  const auto& endpoint = address.endpoints.front();
  const auto limit = timeval_of(address.connect_timeout);
  std::string reason;
  if (endpoint.host.empty()) {
    context_.reset(redisConnectUnixWithTimeout(endpoint.socket.c_str(), limit));
  } else {
    const auto found = look_up(endpoint.host, address.connect_timeout);
    reason = found.error;
    for (const auto& number : found.addresses) {
      context_.reset(redisConnectWithTimeout(number.c_str(), endpoint.port, limit));
      if (!context_ || context_->err == 0) break;
    }
  }
  if (!context_ && reason.empty()) throw Unavailable("no memory for a connection to Redis");
  if (context_ && context_->err != 0) reason = context_->errstr;
  if (!reason.empty()) throw Unavailable(fmt::format("Redis at {} cannot be reached: {}", shown_, reason));
  if (!endpoint.host.empty()) redisEnableKeepAlive(context_.get());
  set_timeout(address.timeout);
  read_only_call([&] { greet(address); });
}

Connection::~Connection() = default;
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;

int Connection::socket() const noexcept {
  return context_->fd;
}

void Connection::greet(const Address& address) {
  std::vector<std::vector<std::string_view>> greetings;
  if (!address.password.empty() && address.user.empty()) greetings.push_back({"AUTH", address.password});
  if (!address.user.empty()) greetings.push_back({"AUTH", address.user, address.password});
  greetings.push_back({"HELLO", "2"});
  const auto database = std::to_string(address.database);
  if (address.database != 0) greetings.push_back({"SELECT", database});
  // What its end is asked for by, should it be lost, and of which process; a user may lack the rights.
  greetings.push_back({"CLIENT", "INFO"});
  greetings.push_back({"INFO", "server"});
  auto replies = call_all(greetings);
  const auto server_info = std::move(replies.back());
  replies.pop_back();
  const auto info = std::move(replies.back());
  replies.pop_back();
  for (const auto& reply : replies) {
    if (!reply.is_error()) continue;
    // The server's own words; it does not repeat the password.
    const auto text = fmt::format("Redis at {} refuses: {}", shown_, reply.text);
    if (reply.text.starts_with("NOAUTH")) throw PasswordRequired(text);
    throw Unavailable(text);
  }
  const auto& hello = replies[greetings.front()[0] == "AUTH" ? 1 : 0];
  const auto mode = value_of(hello, "mode");
  if (mode == "sentinel")
    throw Unavailable(fmt::format("{} is a Redis Sentinel; name the server that holds the data", shown_));
  // Before, a script's errors lose their first word, which says what they mean.
  const auto version = value_of(hello, "version");
  if (std::atoi(version.c_str()) < version_min)
    throw Unavailable(
        fmt::format("Redis at {} is {}; fenceguard needs {}.0 or later", shown_, version, version_min));
  server_ = {version, mode == "cluster", value_of(hello, "role") != "master", {}, {}, {}};
  if (!server_info.is_error()) server_.run_id = info_field(server_info.text, "run_id");
  if (info.is_error()) return;
  server_.id = client_field(info.text, "id");
  server_.address = client_field(info.text, "addr");
}

void Connection::set_timeout(std::chrono::milliseconds limit) {
  redisSetTimeout(context_.get(), timeval_of(limit));
}

void Connection::queue(Arguments arguments) {
  encoded_.clear();
  encode(arguments, encoded_);
  queue_encoded(encoded_);
  if (encoded_.capacity() > encoded_kept_max) std::string{}.swap(encoded_);
}

void Connection::queue_encoded(std::string_view command) {
  if (context_->err != 0) throw Unavailable(fmt::format("the connection to {} is broken", shown_));
  if (redisAppendFormattedCommand(context_.get(), command.data(), command.size()) != REDIS_OK) fail(false);
  ++outstanding_;
}

void Connection::send() {
  int is_done = 0;
  while (is_done == 0) {
    // What failed may have been sent in part, and a server may have read a whole command of it.
    if (redisBufferWrite(context_.get(), &is_done) != REDIS_OK) fail(true);
  }
}

Reply Connection::receive() {
  void* raw = nullptr;
  if (redisGetReply(context_.get(), &raw) != REDIS_OK || raw == nullptr) fail(true);
  const std::unique_ptr<void, void (*)(void*)> owner{raw, freeReplyObject};
  --outstanding_;
  answered_at_ = std::chrono::steady_clock::now();
  return reply_of(*static_cast<const redisReply*>(raw));
}

Reply Connection::call(Arguments arguments) {
  queue(arguments);
  send();
  return receive();
}

std::vector<Reply> Connection::call_all(std::span<const std::vector<std::string_view>> commands) {
  for (const auto& command : commands) queue(command);
  send();
  std::vector<Reply> replies;
  replies.reserve(commands.size());
  for (std::size_t i = 0; i < commands.size(); ++i) replies.push_back(receive());
  return replies;
}

bool Connection::is_usable() const noexcept {
  if (!context_ || context_->err != 0 || outstanding_ != 0) return false;
  if (std::chrono::steady_clock::now() - answered_at_ < fresh) return true;
  pollfd descriptor{context_->fd, POLLIN | POLLRDHUP, 0};
  // Nothing was asked, so whatever can be read is the end.
  return poll(&descriptor, 1, 0) == 0;
}

void Connection::fail(bool was_sent) {
  const bool is_timeout = context_->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
  if (context_->err == 0) context_->err = REDIS_ERR_OTHER;
  const std::string reason = is_timeout ? "it did not answer in time" : context_->errstr;
  const auto sentence = fmt::format("Redis at {}: {}", shown_, reason);
  if (was_sent) {
    lost_at_ = std::chrono::steady_clock::now();
    throw OutcomeUnknown(sentence);
  }
  throw Unavailable(sentence);
}

}  // namespace fenceguard::redis
