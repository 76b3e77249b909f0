#include "server/http/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <system_error>
#include <vector>

#include "guard/error.hpp"
#include "server/http/session.hpp"
#include "server/net/listener.hpp"
#include "server/net/loop.hpp"

namespace fenceguard::http {

class Server::Impl {
 public:
  explicit Impl(unsigned threads);
  ~Impl();

  std::string listen(const std::string& text, Handler* handler, StreamHandler* streams, const Limits& limits,
                     std::shared_ptr<const TlsContext> tls);
  bool drain(std::chrono::milliseconds timeout);
  [[nodiscard]] bool answers(std::chrono::milliseconds limit);
  [[nodiscard]] std::int64_t in_flight() const noexcept;
  [[nodiscard]] std::int64_t connections() const;

 private:
  void stop_accepting();

  net::ConnectionCounter counter_;
  std::vector<std::shared_ptr<Loop>> loops_;
  mutable std::mutex mutex_;  // guards the rest
  std::vector<std::shared_ptr<Service>> services_;
  std::vector<std::weak_ptr<Listener>> listeners_;
  bool is_draining_ = false;
};

Server::Impl::Impl(unsigned threads) {
  try {
    for (unsigned i = 0; i < std::max(1U, threads); ++i) {
      loops_.push_back(std::make_shared<Loop>());
      loops_.back()->start();
    }
  } catch (const std::system_error& error) {
    throw Unavailable(fmt::format("a thread for the server could not be made: {}", error.what()));
  }
}

Server::Impl::~Impl() {
  drain(std::chrono::milliseconds{0});
  for (const auto& loop : loops_) loop->stop();
}

std::string Server::Impl::listen(const std::string& text, Handler* handler, StreamHandler* streams,
                                 const Limits& limits, std::shared_ptr<const TlsContext> tls) {
  const auto address = Address::parse(text);
  std::vector<Loop*> loops;
  for (const auto& loop : loops_) loops.push_back(loop.get());
  auto service =
      std::make_shared<Service>(handler, streams, limits, std::move(tls), address.is_unix(), counter_);
  auto listener = std::make_shared<Listener>(std::move(loops), address, service);
  const std::lock_guard lock{mutex_};
  if (is_draining_) throw Unavailable("the server is stopping");
  auto bound = listener->address();
  listeners_.push_back(listener);
  services_.push_back(std::move(service));
  counter_.enter();
  loops_.front()->post([listener = std::move(listener)] { listener->start(); });
  return bound;
}

void Server::Impl::stop_accepting() {
  const std::lock_guard lock{mutex_};
  is_draining_ = true;
  for (const auto& weak : listeners_) {
    loops_.front()->post([weak] {
      if (const auto listener = weak.lock()) listener->close();
    });
  }
}

bool Server::Impl::drain(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  stop_accepting();
  for (const auto& loop : loops_) loop->post([raw = loop.get()] { raw->begin_drain(); });
  const bool all_ended = counter_.wait_until_empty(deadline);
  if (all_ended) return true;
  for (const auto& loop : loops_) loop->post([raw = loop.get()] { raw->cut(); });
  counter_.wait_until_empty(SteadyTime::max());
  return false;
}

bool Server::Impl::answers(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<std::future<void>> answers;
  for (const auto& loop : loops_) {
    const auto asked = std::make_shared<std::promise<void>>();
    answers.push_back(asked->get_future());
    loop->post([asked] { asked->set_value(); });
  }
  return std::ranges::all_of(
      answers, [&](const auto& answer) { return answer.wait_until(deadline) == std::future_status::ready; });
}

std::int64_t Server::Impl::in_flight() const noexcept {
  std::int64_t sum = 0;
  for (const auto& loop : loops_) sum += loop->in_flight.load(std::memory_order_relaxed);
  return sum;
}

std::int64_t Server::Impl::connections() const {
  const std::lock_guard lock{mutex_};
  std::int64_t sum = 0;
  for (const auto& service : services_) sum += service->connections.load();
  return sum;
}

Server::Server(unsigned threads) : impl_{std::make_unique<Impl>(threads)} {}
Server::~Server() = default;

std::string Server::listen(const std::string& address, Handler& handler, const Limits& limits,
                           std::shared_ptr<const TlsContext> tls) {
  return impl_->listen(address, &handler, nullptr, limits, std::move(tls));
}

std::string Server::listen(const std::string& address, StreamHandler& handler, const Limits& limits,
                           std::shared_ptr<const TlsContext> tls) {
  return impl_->listen(address, nullptr, &handler, limits, std::move(tls));
}

bool Server::drain(std::chrono::milliseconds timeout) {
  return impl_->drain(timeout);
}

bool Server::answers(std::chrono::milliseconds limit) {
  return impl_->answers(limit);
}

std::int64_t Server::in_flight() const noexcept {
  return impl_->in_flight();
}

std::int64_t Server::connections() const noexcept {
  return impl_->connections();
}

}  // namespace fenceguard::http
