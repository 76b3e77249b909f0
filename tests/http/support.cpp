#include "tests/http/support.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <thread>
#include <utility>

#include "server/net/address.hpp"

namespace fenceguard::http {
namespace {

bool same_name(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

}  // namespace

std::optional<std::string> Answer::field(std::string_view name) const {
  std::string_view rest = head;
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find("\r\n"));
    rest.remove_prefix(std::min(rest.size(), line.size() + 2));
    const auto colon = line.find(": ");
    if (colon != std::string_view::npos && same_name(line.substr(0, colon), name)) {
      return std::string{line.substr(colon + 2)};
    }
  }
  return std::nullopt;
}

RawClient::RawClient(const std::string& address) {
  const auto endpoint = resolve(Address::parse(address)).front();
  socket_ = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0 || ::connect(socket_, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    const auto error = errno;
    close();
    throw std::runtime_error(
        fmt::format("no connection to {}: {}", address, std::system_category().message(error)));
  }
}

RawClient::~RawClient() {
  close();
}

RawClient::RawClient(RawClient&& other) noexcept
    : socket_{std::exchange(other.socket_, -1)},
      received_{std::move(other.received_)},
      was_reset_{other.was_reset_} {}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool RawClient::receive_some() {
  pollfd ready{socket_, POLLIN, 0};
  const auto limit_ms = static_cast<int>(std::chrono::milliseconds{patience}.count());
  if (::poll(&ready, 1, limit_ms) <= 0) throw std::runtime_error("the server neither answered nor closed");
  char bytes[65536];
  const auto count = ::recv(socket_, bytes, sizeof bytes, 0);
  if (count < 0) was_reset_ = true;
  if (count > 0) received_.append(bytes, static_cast<std::size_t>(count));
  return count > 0;
}

Answer RawClient::receive(bool without_body) {
  const auto require = [this](auto&& condition) {
    while (!condition()) {
      if (!receive_some())
        throw std::runtime_error("the connection ended before the answer: '" + received_ + "'");
    }
  };
  require([this] { return received_.find("\r\n\r\n") != std::string::npos; });
  Answer answer;
  const auto end = received_.find("\r\n\r\n") + 4;
  answer.head = received_.substr(0, end);
  answer.status = static_cast<unsigned>(std::stoul(answer.head.substr(9, 3)));
  received_.erase(0, end);
  const auto length = std::stoul(answer.field("Content-Length").value_or("0"));
  if (without_body) return answer;
  require([&] { return received_.size() >= length; });
  answer.body = received_.substr(0, length);
  received_.erase(0, length);
  return answer;
}

std::string RawClient::receive_to_end() {
  while (receive_some()) {
  }
  return std::exchange(received_, {});
}

std::size_t RawClient::take(std::size_t bytes) {
  std::size_t taken = 0;
  while (taken < bytes && receive_some()) {
    taken += received_.size();
    received_.clear();
  }
  return taken;
}

bool RawClient::is_quiet() {
  pollfd ready{socket_, POLLIN, 0};
  return received_.empty() && ::poll(&ready, 1, 0) == 0;
}

void RawClient::shutdown_send() {
  ::shutdown(socket_, SHUT_WR);
}

void RawClient::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void RawClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

Response text_response(std::string body) {
  Response response;
  response.fields.add("Content-Type", "text/plain");
  response.body = std::move(body);
  return response;
}

void EchoHandler::handle(Request request, std::shared_ptr<Caller>, Reply reply) {
  auto response = text_response(fmt::format("{} {} {}", request.method, request.target, request.body));
  if (request.method == "HEAD") response.head_length = std::exchange(response.body, {}).size();
  reply(std::move(response));
}

Response EchoHandler::refuse(unsigned status, std::string_view why) {
  auto response = text_response(std::string{why});
  response.status = status;
  return response;
}

Task<void> loop_until(std::function<bool()> condition) {
  Timer timer{co_await asio::this_coro::executor};
  while (!condition()) {
    timer.expires_after(1ms);
    (void)co_await timer.async_wait(as_result);
  }
}

Task<Piece> read_all(Stream& stream, std::string& body) {
  constexpr std::size_t piece_bytes = 64 * 1024;
  if (stream.take_whole_body(body)) co_return Piece::end;
  auto piece = Piece::some;
  while (piece == Piece::some) piece = co_await stream.read_body(body, piece_bytes);
  co_return piece;
}

Task<void> EchoStreams::serve(Stream& stream) {
  const auto& request = stream.request();
  std::string body;
  if (co_await read_all(stream, body) != Piece::end) co_return;
  auto response = text_response(fmt::format("{} {} {}", request.method, request.target, body));
  if (request.method == "HEAD") response.head_length = std::exchange(response.body, {}).size();
  (void)co_await stream.respond(std::move(response));
}

Response EchoStreams::refuse(unsigned status, std::string_view why) {
  auto response = text_response(std::string{why});
  response.status = status;
  return response;
}

void HoldingHandler::handle(Request request, std::shared_ptr<Caller> caller, Reply reply) {
  const std::lock_guard lock{mutex_};
  held_.push_back({std::move(request), std::move(caller), std::move(reply)});
  arrived_.notify_all();
}

HoldingHandler::Held HoldingHandler::take() {
  std::unique_lock lock{mutex_};
  if (!arrived_.wait_for(lock, patience, [this] { return !held_.empty(); })) {
    throw std::runtime_error("no request arrived");
  }
  auto oldest = std::move(held_.front());
  held_.erase(held_.begin());
  return oldest;
}

}  // namespace fenceguard::http
