#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "guard/error.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/terminal/demo_command.hpp"
#include "server/cli/terminal/sibling_program.hpp"

namespace fenceguard::cli {
namespace {

constexpr const char* demo_program = "fenceguard-demo";

// In this process, so that its output, status and signals are the program's own. Returns only by an
// exception.
int become_demo(const std::vector<std::string>& arguments) {
  // A hard link to a privileged file stands beside what its maker likes.
  if (getauxval(AT_SECURE) != 0)
    throw Unavailable(
        fmt::format("this program has privileges that its caller has not; start {} itself", demo_program));
  const auto file = find_sibling(demo_program);
  if (file.empty())
    throw Unavailable(
        fmt::format("the demonstrations are a program of their own, {0}, which is not installed; "
                    "it is in the package {0}",
                    demo_program));
  auto words = arguments;
  words.insert(words.begin(), demo_program);
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(file.c_str(), pointers.data());
  throw Unavailable(fmt::format("{} cannot be started: {}", file, std::strerror(errno)));
}

}  // namespace

Command demo_command() {
  auto command = demo_description();
  command.hand_over = become_demo;
  return command;
}

}  // namespace fenceguard::cli
