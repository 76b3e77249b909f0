#pragma once

// Listener: a bound address whose connections are spread over the loops in turn. Its coroutine owns it until
// it is closed.
//
// Thread safety: construction on any thread, the rest on the thread of the first loop.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "server/net/address.hpp"
#include "server/net/loop.hpp"
#include "server/net/session.hpp"

namespace fenceguard::net {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Binds. Throws InvalidInput for a malformed address and Unavailable with a sentence (in use, not
  // permitted, ...). loops outlive the listener; the first one accepts.
  Listener(std::vector<Loop*> loops, const Address& address, std::shared_ptr<Service> service);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The address as bound.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  void start();
  void close();

 private:
  Task<void> run();
  Task<void> accept_next();
  void admit(Loop& loop, Socket socket);
  // Has a connection that waits for a request give way to newcomer: one of loops_[at], or of the next that
  // has one; left: how many loops are still to be asked. Where none waits, newcomer is closed.
  void make_room(std::shared_ptr<Session> newcomer, std::size_t at, std::size_t left);
  void bind(const Address& address);
  void bind_to(const Endpoint& endpoint, boost::system::error_code& error);
  void bind_unix(const Address& address, const Endpoint& endpoint);
  void remove_file() noexcept;

  const std::vector<Loop*> loops_;
  const std::shared_ptr<Service> service_;
  std::size_t turn_ = 0;
  Acceptor acceptor_;
  Timer pause_;
  std::string address_;
  // The file of a Unix socket, by which it is recognised before it is removed.
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace fenceguard::net
