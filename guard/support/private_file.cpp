#include "guard/support/private_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "guard/error.hpp"
#include "guard/support/descriptor.hpp"

namespace fenceguard {
namespace {

constexpr int pipe_wait_ms = 10'000;

// Whether a service manager put the file there: systemd's credentials, which its own group may read.
bool is_credential(const std::string& path) {
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");  // NOLINT(concurrency-mt-unsafe): never set here
  if (folder == nullptr || *folder != '/') return false;
  std::error_code error;
  const auto base = std::filesystem::canonical(folder, error);
  if (error) return false;
  const auto file = std::filesystem::canonical(path, error);
  if (error) return false;
  const auto [end, at] = std::mismatch(base.begin(), base.end(), file.begin(), file.end());
  return end == base.end() && at != file.end();
}

// Why the file is not to be believed; empty: it is.
std::string objection_to(const struct stat& status, const std::string& path, Reading reading) {
  if (S_ISDIR(status.st_mode)) return "is a folder";
  const bool is_pipe = S_ISFIFO(status.st_mode) && reading == Reading::first;
  if (!S_ISREG(status.st_mode) && !is_pipe) return "is not a file";
  if (is_credential(path))
    return (status.st_mode & 037) != 0 ? "can be read by everybody, or written by others than its owner" : "";
  return (status.st_mode & 077) != 0 ? "can be read by others than its owner: chmod 600 it" : "";
}

// Waits until there is something to read, or an end. False, with errno: it took too long.
bool wait_readable(int number) {
  pollfd waited{.fd = number, .events = POLLIN, .revents = 0};
  if (::poll(&waited, 1, pipe_wait_ms) != 0) return true;
  errno = ETIMEDOUT;
  return false;
}

// As read(2). A pipe is waited for.
ssize_t read_some(int number, char* to, std::size_t bytes) {
  for (;;) {
    const auto got = ::read(number, to, bytes);
    if (got >= 0 || (errno != EINTR && errno != EAGAIN)) return got;
    if (errno == EAGAIN && !wait_readable(number)) return -1;
  }
}

}  // namespace

std::string read_private_file(const std::string& kind, const std::string& path, std::size_t bytes_max,
                              Reading reading) {
  const auto refuse = [&](const std::string& why) -> InvalidInput {
    return InvalidInput(kind + " " + path + " " + why);
  };
  const auto cannot_read = [&] {
    return refuse("cannot be read: " + std::generic_category().message(errno));
  };
  // A pipe without a writer must not block this call.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.number() < 0) throw cannot_read();
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw cannot_read();
  if (const auto why = objection_to(status, path, reading); !why.empty()) throw refuse(why);
  // Before its first writer a pipe looks as if it had ended.
  if (S_ISFIFO(status.st_mode) && !wait_readable(file.number())) throw cannot_read();
  std::string content(bytes_max + 1, '\0');
  std::size_t length = 0;
  while (length < content.size()) {
    const auto got = read_some(file.number(), content.data() + length, content.size() - length);
    if (got < 0) throw cannot_read();
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > bytes_max) throw refuse("has more than " + std::to_string(bytes_max / 1024) + " KiB");
  content.resize(length);
  return content;
}

}  // namespace fenceguard
