#include "server/fencing/http_method.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <future>
#include <optional>

#include "guard/error.hpp"
#include "guard/support/look_up.hpp"
#include "server/net/client/connect.hpp"
#include "server/net/tls/tls.hpp"
#include "server/net/transport.hpp"

namespace fenceguard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
namespace beast_http = boost::beast::http;

constexpr std::size_t head_bytes_max = 64 * 1024;
constexpr std::size_t answer_bytes_max = 64 * 1024;
constexpr milliseconds turn{50};  // between looks at whether the run is to end

[[noreturn]] void fail_with(std::string_view what, const boost::system::error_code& error) {
  throw Unavailable(fmt::format("{}: {}", what, error.message()));
}

// One request and its answer, on the thread that runs it.
class Exchange {
 public:
  Exchange(const FenceRun& run, const net::Address& address, std::shared_ptr<const net::TlsContext> tls)
      : stop_{run.stop}, deadline_{steady_clock::now() + run.limit}, tls_{std::move(tls)} {
    const auto answer = std::make_shared<std::promise<Lookup>>();
    look_up(address.host, [answer](const Lookup& found) { answer->set_value(found); });
    auto found = answer->get_future();
    while (!is_over() && found.wait_for(turn) != std::future_status::ready) {
    }
    if (is_over()) throw Unavailable(why_over());
    const auto lookup = found.get();
    if (lookup.addresses.empty()) throw Unavailable(lookup.error);
    for (const auto& text : lookup.addresses) {
      boost::system::error_code error;
      const auto number = net::asio::ip::make_address(text, error);
      if (!error) endpoints_.emplace_back(net::asio::ip::tcp::endpoint{number, address.port});
    }
  }

  // The answer's status. Throws Unavailable where it did not come whole in time.
  unsigned status_of(const std::string& request) {
    std::exception_ptr failure;
    std::optional<unsigned> status;
    net::asio::co_spawn(context_, ask(request), [&](std::exception_ptr thrown, unsigned answered) {
      failure = std::move(thrown);
      status = answered;
    });
    while (!status && !is_over()) context_.run_for(turn);
    if (!status) {
      if (transport_) transport_->close();
      context_.restart();
      context_.run();
      throw Unavailable(why_over());
    }
    if (failure) std::rethrow_exception(failure);
    return *status;
  }

 private:
  [[nodiscard]] bool is_over() const { return stop_.stop_requested() || steady_clock::now() >= deadline_; }
  [[nodiscard]] std::string why_over() const {
    return stop_.stop_requested() ? "it was ended, because we stop" : "there was no whole answer in time";
  }

  net::Task<void> connect() {
    boost::system::error_code last = net::asio::error::host_not_found;
    for (const auto& endpoint : endpoints_) {
      net::Socket socket{context_};
      last = net::open_socket(socket, endpoint, {.resets = true});
      if (last) continue;
      transport_.emplace(std::move(socket), tls_);
      const auto [error] = co_await transport_->socket().async_connect(endpoint, net::as_result);
      last = error;
      if (!last) last = co_await transport_->handshake();
      if (!last) co_return;
      if (!transport_->is_open()) break;  // we stop
      transport_.reset();
    }
    fail_with("no connection", last);
  }

  net::Task<unsigned> ask(std::string request) {
    co_await connect();
    if (const auto error = co_await transport_->write_all(request, {}))
      fail_with("it took no request", error);
    std::string unread;
    for (;;) {  // past interim answers
      beast_http::response_parser<beast_http::string_body> parser;
      parser.header_limit(head_bytes_max);
      parser.body_limit(answer_bytes_max);
      parser.eager(true);
      co_await read(parser, unread);
      if (parser.get().result_int() >= 200) co_return parser.get().result_int();
    }
  }

  net::Task<void> read(beast_http::response_parser<beast_http::string_body>& parser, std::string& unread) {
    std::array<char, 16 * 1024> part{};
    while (!parser.is_done()) {
      boost::system::error_code error;
      if (!unread.empty()) unread.erase(0, parser.put(net::asio::buffer(unread), error));
      if (parser.is_done()) co_return;
      if (error && error != beast_http::error::need_more) fail_with("no whole answer", error);
      const auto [ended, count] = co_await transport_->read_some(part.data(), part.size());
      unread.append(part.data(), count);
      if (!ended) continue;
      // What a body that lasts to the end loses by an end without TLS's farewell decides nothing.
      const bool is_end =
          ended == net::asio::error::eof || (tls_ && ended == net::asio::error::connection_reset);
      if (!is_end || !parser.got_some()) fail_with("no whole answer", ended);
      parser.put_eof(error);
      if (error) fail_with("no whole answer", error);
    }
  }

  const std::stop_token stop_;
  const steady_clock::time_point deadline_;
  const std::shared_ptr<const net::TlsContext> tls_;
  std::vector<net::Endpoint> endpoints_;
  net::asio::io_context context_{1};
  std::optional<net::Transport> transport_;
};

}  // namespace

HttpMethod::HttpMethod(std::string_view url) {
  is_tls_ = url.starts_with("https://");
  if (!is_tls_ && !url.starts_with("http://"))
    throw InvalidInput("--fence-method http: reads http://HOST:PORT/PATH or https://HOST:PORT/PATH");
  url.remove_prefix(url.find("//") + 2);
  const auto end = std::min(url.find_first_of("/?#"), url.size());
  authority_ = url.substr(0, end);
  if (authority_.find('@') != std::string::npos)
    throw InvalidInput(
        "--fence-method http: there is no user in its URL; for a service that asks for one give "
        "command:PATH");
  const auto colon = authority_.rfind(':');
  const bool has_port = colon != std::string::npos && !authority_.ends_with(']');
  address_ = net::Address::parse(has_port ? authority_ : authority_ + (is_tls_ ? ":443" : ":80"));
  const auto path = url.substr(end, url.find('#') - end);
  target_ = path.starts_with('/') ? std::string{path} : fmt::format("/{}", path);
  for (const char c : target_) {
    if (c <= ' ' || c == 0x7F) throw InvalidInput("--fence-method http: its path holds a space or the like");
  }
}

FenceResult HttpMethod::run(const TakeOver& take_over, const FenceRun& run) {
  const auto body =
      boost::json::serialize(boost::json::object{{"resource", take_over.resource},
                                                 {"old_token", std::to_string(take_over.old_token)},
                                                 {"new_token", std::to_string(take_over.new_token)}});
  const auto request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      target_, authority_, body.size(), body);
  const auto deadline = steady_clock::now() + run.limit;
  try {
    // Its authorities are read for each run: they may be newer than the guard.
    Exchange exchange{run, address_, is_tls_ ? net::TlsContext::client({}, address_.host) : nullptr};
    const auto status = exchange.status_of(request);
    // 202 and 207 say that it is still to be done, or in part.
    const bool is_done = status >= 200 && status < 300 && status != 202 && status != 207;
    return {is_done ? FenceResult::Outcome::success : FenceResult::Outcome::failure,
            fmt::format("status {}", status)};
  } catch (const Error& error) {
    const bool is_late = !run.stop.stop_requested() && steady_clock::now() >= deadline;
    return {is_late ? FenceResult::Outcome::timeout : FenceResult::Outcome::failure, printable(error.what())};
  }
}

}  // namespace fenceguard
