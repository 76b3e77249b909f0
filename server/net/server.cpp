#include "server/net/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <utility>

#include "guard/error.hpp"
#include "server/net/listener.hpp"
#include "server/net/loop.hpp"

namespace fenceguard::net {

Server::Server(unsigned threads) {
  try {
    for (unsigned i = 0; i < std::max(1U, threads); ++i) {
      loops_.push_back(std::make_shared<Loop>());
      loops_.back()->start();
    }
  } catch (const std::system_error& error) {
    throw Unavailable(fmt::format("a thread for the server could not be made: {}", error.what()));
  }
}

Server::~Server() {
  drain(std::chrono::milliseconds{0});
  for (const auto& loop : loops_) loop->stop();
}

std::string Server::listen(const Address& address, std::shared_ptr<Service> service) {
  auto listener = std::make_shared<Listener>(loops(), address, service);
  const std::lock_guard lock{mutex_};
  if (is_draining_) throw Unavailable("the server is stopping");
  auto bound = listener->address();
  listeners_.push_back(listener);
  services_.push_back(std::move(service));
  counter_.enter();
  loops_.front()->post([listener = std::move(listener)] { listener->start(); });
  return bound;
}

void Server::stop_accepting() {
  const std::lock_guard lock{mutex_};
  is_draining_ = true;
  for (const auto& weak : listeners_) {
    loops_.front()->post([weak] {
      if (const auto listener = weak.lock()) listener->close();
    });
  }
}

bool Server::drain(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  stop_accepting();
  for (const auto& loop : loops_) loop->post([raw = loop.get()] { raw->begin_drain(); });
  const bool all_ended = counter_.wait_until_empty(deadline);
  if (all_ended) return true;
  for (const auto& loop : loops_) loop->post([raw = loop.get()] { raw->cut(); });
  counter_.wait_until_empty(SteadyTime::max());
  return false;
}

bool Server::answers(std::chrono::milliseconds limit) {
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

void Server::look_at_loans() {
  for (const auto& loop : loops_) loop->post([raw = loop.get()] { raw->look_at_loans(); });
}

std::int64_t Server::in_flight() const noexcept {
  std::int64_t sum = 0;
  for (const auto& loop : loops_) sum += loop->in_flight.load(std::memory_order_relaxed);
  return sum;
}

std::int64_t Server::connections() const {
  const std::lock_guard lock{mutex_};
  std::int64_t sum = 0;
  for (const auto& service : services_) sum += service->connections.load();
  return sum;
}

std::vector<Loop*> Server::loops() const {
  std::vector<Loop*> loops;
  for (const auto& loop : loops_) loops.push_back(loop.get());
  return loops;
}

}  // namespace fenceguard::net
