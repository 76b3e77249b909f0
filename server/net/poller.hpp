#pragma once

// Poller: sockets whose events are told by a call, for what answers without a coroutine. Asio asks the kernel
// anew for each wait; here a socket is added once (epoll, edge-triggered), and all that is ready is told in
// one batch. The poller itself is one descriptor of the loop's io_context, so that both live on one thread.
//
// What is sent in response is deferred to the end of the batch: then everything that was ready has been read,
// and whoever receives wakes up once for many messages.
//
// Thread safety: the loop's thread only, but for construction and destruction.

#include <sys/epoll.h>

#include <array>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/intrusive/list.hpp>

#include "server/net/net.hpp"

namespace fenceguard::net {

class Poller {
 public:
  // Is told of one socket's events.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // Bytes have come since the last call. has_ended: nothing will follow them, by an end or a fault. What is
    // left unread is not told again.
    virtual void ready(bool has_ended) noexcept = 0;
  };

  // Something to do at the end of a batch. Forgotten where it is destroyed before.
  class Deferred
      : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    virtual ~Deferred() = default;
    virtual void run_deferred() noexcept = 0;
  };

  // Throws std::system_error if there is no descriptor.
  explicit Poller(asio::io_context& context);
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // False: the kernel has no memory for it.
  [[nodiscard]] bool add(int socket, Watcher& watcher) noexcept;
  // No event is told to watcher from now on. REQUIRES: socket was added for it, and is open.
  void remove(int socket, const Watcher& watcher) noexcept;

  // Once, whatever number of calls; outside a batch soon.
  void defer(Deferred& action) noexcept;

 private:
  using Actions = boost::intrusive::list<Deferred, boost::intrusive::constant_time_size<false>>;

  void schedule() noexcept;
  void wait() noexcept;
  void run() noexcept;
  // One batch. False: there was nothing.
  bool run_batch() noexcept;

  asio::io_context& context_;
  asio::posix::basic_stream_descriptor<Executor> descriptor_;
  std::array<epoll_event, 128> events_;
  int told_ = 0;   // of the present batch
  int count_ = 0;  // events in it
  Actions actions_;
  bool is_scheduled_ = false;  // run() is on its way
  bool is_waiting_ = false;    // Asio tells when there is an event
};

}  // namespace fenceguard::net
