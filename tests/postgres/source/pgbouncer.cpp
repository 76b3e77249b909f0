#include "tests/postgres/source/pgbouncer.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/postgres/source/server.hpp"
#include "tests/process/server_process.hpp"

namespace fenceguard::test {

PgBouncer::PgBouncer(int pool_size) : port_{std::to_string(free_port())} {
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
  if (!eventually([this] { return accepts(std::stoi(port_)); }))
    throw std::runtime_error{"PgBouncer does not answer"};
}

PgBouncer::~PgBouncer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace fenceguard::test
