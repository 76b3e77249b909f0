#include "server/net/poller.hpp"

#include <boost/asio/post.hpp>
#include <cerrno>
#include <system_error>

namespace fenceguard::net {
namespace {

// Batches that follow each other before the rest of the loop has its turn.
constexpr int batches_max = 8;

int open_epoll() {
  const int descriptor = ::epoll_create1(EPOLL_CLOEXEC);
  if (descriptor < 0) throw std::system_error{errno, std::system_category()};
  return descriptor;
}

}  // namespace

Poller::Poller(asio::io_context& context) : context_{context}, descriptor_{context, open_epoll()} {}

bool Poller::add(int socket, Watcher& watcher) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &watcher;
  if (::epoll_ctl(descriptor_.native_handle(), EPOLL_CTL_ADD, socket, &event) != 0) return false;
  // The first socket begins the wait, so that a loop without any has nothing of this.
  if (!is_scheduled_ && !is_waiting_) schedule();
  return true;
}

void Poller::remove(int socket, const Watcher& watcher) noexcept {
  epoll_event unused{};
  ::epoll_ctl(descriptor_.native_handle(), EPOLL_CTL_DEL, socket, &unused);
  for (int i = told_; i < count_; ++i) {
    auto& event = events_[static_cast<std::size_t>(i)];
    if (event.data.ptr == &watcher) event.data.ptr = nullptr;
  }
}

void Poller::defer(Deferred& action) noexcept {
  if (action.is_linked()) return;
  actions_.push_back(action);
  if (!is_scheduled_) schedule();
}

// Where Asio has no memory for it the process ends: without it the loop would stand still.
void Poller::schedule() noexcept {
  is_scheduled_ = true;
  asio::post(context_, [this] { run(); });
}

void Poller::wait() noexcept {
  if (is_waiting_) return;
  is_waiting_ = true;
  descriptor_.async_wait(descriptor_.wait_read, [this](const boost::system::error_code& error) {
    is_waiting_ = false;
    if (error || is_scheduled_) return;
    is_scheduled_ = true;
    run();
  });
}

void Poller::run() noexcept {
  int batches = 0;
  while (batches < batches_max && run_batch()) ++batches;
  if (batches == batches_max) return schedule();
  is_scheduled_ = false;
  wait();
}

bool Poller::run_batch() noexcept {
  const int found =
      ::epoll_wait(descriptor_.native_handle(), events_.data(), static_cast<int>(events_.size()), 0);
  count_ = std::max(found, 0);
  for (told_ = 0; told_ < count_;) {
    const auto event = events_[static_cast<std::size_t>(told_++)];
    if (event.data.ptr == nullptr) continue;
    const bool has_ended = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    static_cast<Watcher*>(event.data.ptr)->ready(has_ended);
  }
  // What these defer belongs to the next batch.
  Actions actions;
  actions.swap(actions_);
  const bool was_busy = count_ > 0 || !actions.empty();
  count_ = told_ = 0;
  while (!actions.empty()) {
    auto& action = actions.front();
    actions.pop_front();
    action.run_deferred();
  }
  return was_busy;
}

}  // namespace fenceguard::net
