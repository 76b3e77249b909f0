#include "server/cli/exec/supervisor.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "guard/error.hpp"

namespace fenceguard::cli {
namespace {

using Kind = SupervisorMessage::Kind;

// False: it was not taken. A supervisor that is gone is noticed by receive().
bool send(int socket, SupervisorMessage message, std::string_view rest = {}, int flags = 0) {
  std::string packet(sizeof message, '\0');
  std::memcpy(packet.data(), &message, sizeof message);
  packet += rest;
  return ::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL | flags) >= 0;
}

}  // namespace

Supervisor::Supervisor(const SupervisedCommand& command, const sigset_t& mask) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    throw Unavailable("cannot make a socket for the command's supervisor");
  }
  const auto exec_group = ::getpgrp();
  process_ = ::fork();
  if (process_ == 0) {
    ::close(sockets[0]);
    supervise(sockets[1], exec_group, command, mask);
    ::_exit(0);
  }
  ::close(sockets[1]);
  socket_ = sockets[0];
  if (process_ < 0) {
    ::close(socket_);
    throw Unavailable("cannot fork the command's supervisor");
  }
}

Supervisor::~Supervisor() {
  ::close(socket_);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Supervisor::run(const std::vector<std::string>& variables, std::optional<BootClock::time_point> until) {
  std::string rest;
  for (const auto& variable : variables) rest.append(variable).push_back('\0');
  send(socket_, {Kind::run, until ? until->time_since_epoch().count() : 0}, rest);
}

void Supervisor::set_kill_after(std::chrono::milliseconds kill_after) {
  send(socket_, {Kind::grace, kill_after.count()});
}

void Supervisor::work_until(BootClock::time_point moment) {
  send(socket_, {Kind::until, moment.time_since_epoch().count()}, {}, MSG_DONTWAIT);
}

void Supervisor::confirm_before_continuing(BootClock::duration term) {
  send(socket_, {Kind::confirm, term.count()});
}

void Supervisor::send_signal(int number) {
  send(socket_, {Kind::signal, number});
}

void Supervisor::resume() {
  send(socket_, {Kind::resume, BootClock::now().time_since_epoch().count()});
}

void Supervisor::end() {
  const bool is_sent = send(socket_, {Kind::end, 0}, {}, MSG_DONTWAIT);
  ::kill(process_, SIGCONT);
  // One that was stopped for long has room again once it is continued.
  if (!is_sent) send(socket_, {Kind::end, 0});
}

SupervisorMessage Supervisor::receive() {
  SupervisorMessage message;
  const auto size = ::recv(socket_, &message, sizeof message, 0);
  return size == sizeof message ? message : SupervisorMessage{};
}

}  // namespace fenceguard::cli
