#include "tests/postgres/source/pgbouncer.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/postgres/source/server.hpp"

namespace fenceguard::test {
namespace {

std::string free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

bool answers(const std::string& port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_open = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return is_open;
}

}  // namespace

PgBouncer::PgBouncer(int pool_size) : port_{free_port()} {
  const auto file = folder_.file("pgbouncer.ini");
  std::ofstream{file} << fmt::format(
      "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n"
      "unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = "
      "{}\n"
      "logfile = {}\npidfile = {}\n",
      server_port(), port_, folder_.file("users"), pool_size, folder_.file("log"), folder_.file("pid"));
  std::ofstream{folder_.file("users")} << "\"postgres\" \"\"\n\"application\" \"\"\n";
  // It refuses to run as root.
  const passwd* user = getuid() == 0 ? getpwnam("postgres") : nullptr;
  if (user != nullptr && chown(folder_.path().c_str(), user->pw_uid, user->pw_gid) != 0) {
    throw std::runtime_error{"chown failed"};
  }
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    if (user != nullptr && (setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) _exit(126);
    execl("/usr/sbin/pgbouncer", "pgbouncer", "-q", file.c_str(), nullptr);
    _exit(127);
  }
  if (!eventually([this] { return answers(port_); })) throw std::runtime_error{"PgBouncer does not answer"};
}

PgBouncer::~PgBouncer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace fenceguard::test
