#include "guard/private_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_{number} {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

}  // namespace

std::string read_private_file(const std::string& kind, const std::string& path, std::size_t bytes_max) {
  const auto refuse = [&](const std::string& why) -> InvalidInput {
    return InvalidInput(kind + " " + path + " " + why);
  };
  const auto cannot_read = [&] {
    return refuse("cannot be read: " + std::generic_category().message(errno));
  };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number() < 0) throw cannot_read();
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw cannot_read();
  if ((status.st_mode & 077) != 0) throw refuse("can be read by others than its owner: chmod 600 it");
  std::string content(bytes_max + 1, '\0');
  std::size_t length = 0;
  while (length < content.size()) {
    const auto got = ::read(file.number(), content.data() + length, content.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw cannot_read();
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > bytes_max) throw refuse("has more than " + std::to_string(bytes_max / 1024) + " KiB");
  content.resize(length);
  return content;
}

}  // namespace fenceguard
