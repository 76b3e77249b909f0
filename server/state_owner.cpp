#include "server/state_owner.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "guard/error.hpp"
#include "guard/resource.hpp"
#include "guard/token.hpp"

namespace fenceguard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view ended = "ended";

std::string first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

fs::path folder_of(const std::string& path) {
  const auto folder = fs::path{path}.parent_path();
  return folder.empty() ? fs::path{"."} : folder;
}

// Keeps errno.
[[noreturn]] void fail(const std::string& path) {
  throw Unavailable(
      fmt::format("--standby: cannot write {}: {}", path, std::generic_category().message(errno)));
}

void sync(const fs::path& path, int flags) {
  const Descriptor file{::open(path.c_str(), flags | O_CLOEXEC)};
  if (file.number() < 0 || ::fsync(file.number()) != 0) fail(path);
}

}  // namespace

std::string machine_name() {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  auto id = first_line("/etc/machine-id");
  if (id.empty()) id = first_line("/proc/sys/kernel/random/boot_id");  // in a container
  return fmt::format("{}@{}", id, host.data());
}

StateOwner::StateOwner(std::string state, std::string machine)
    : state_{fs::weakly_canonical(state).string()},
      machine_{machine.empty() ? machine_name() : std::move(machine)} {}

StateOwner::~StateOwner() {
  if (taken_ == 0) return;
  try {
    write(file(taken_), std::string{ended});
  } catch (const std::exception&) {
    // It stays: the next guard on another machine asks its fence methods.
  }
}

std::string StateOwner::file(std::int64_t number) const {
  return fmt::format("{}-owner.{}", state_, number);
}

std::int64_t StateOwner::find_last() const {
  const auto prefix = fs::path{state_}.filename().string() + "-owner.";
  std::int64_t last = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{folder_of(state_), error}) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    last = std::max(last, parse_decimal(name.substr(prefix.size())).value_or(0));
  }
  if (error) throw Unavailable(fmt::format("--standby: the folder of {}: {}", state_, error.message()));
  return last;
}

void StateOwner::require_none(const std::string& state) {
  const StateOwner owner{state};
  std::error_code error;
  if (!fs::is_directory(folder_of(owner.state_), error)) return;
  const auto last = owner.find_last();
  if (last == 0) return;
  const auto machine = first_line(owner.file(last));
  throw Unavailable(fmt::format(
      "guards with --standby share this state ({}, {}): give --standby here as well, because a guard "
      "without it is not seen by those on other machines; or remove the files {}-owner.* once none of "
      "them runs",
      owner.file(last), machine == ended ? "whose guard ended" : "of the guard on " + machine, owner.state_));
}

std::string StateOwner::other_machine() {
  seen_ = find_last();
  is_here_ = false;
  if (seen_ == 0) return {};
  const auto owner = first_line(file(seen_));
  // Each is whole from the moment at which it has its name. What cannot be read is no leave to go on.
  if (owner.empty()) throw Unavailable(fmt::format("--standby: {} cannot be read, or is empty", file(seen_)));
  is_here_ = owner == machine_;
  return owner == ended || owner == machine_ ? std::string{} : owner;
}

// Whole from the moment at which it has its name.
void StateOwner::write(const std::string& path, const std::string& text) const {
  const auto draft = fmt::format("{}-owner-draft-{}", state_, Holder::random().id());
  {
    std::ofstream file{draft};
    file << text << '\n';
    file.close();
    if (!file) fail(draft);
  }
  sync(draft, O_RDONLY);
  const bool is_own = path == file(taken_);
  const int result = is_own ? ::rename(draft.c_str(), path.c_str()) : ::link(draft.c_str(), path.c_str());
  const int error = errno;
  ::unlink(draft.c_str());
  errno = error;
  if (result != 0) fail(path);
  sync(folder_of(state_), O_RDONLY | O_DIRECTORY);
}

bool StateOwner::lock() {
  if (lock_) return true;
  auto name = machine_;
  std::ranges::replace(name, '/', '_');
  const auto path = fmt::format("{}-owner.lock-{}", state_, name);
  lock_.emplace(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock_->number() >= 0 && ::flock(lock_->number(), LOCK_EX | LOCK_NB) == 0) return true;
  const int error = errno;
  lock_.reset();
  errno = error;
  if (error != EWOULDBLOCK) fail(path);
  return false;
}

bool StateOwner::take() {
  if (!lock()) return false;
  const auto next = seen_ + 1;
  try {
    write(file(next), machine_);
  } catch (const Unavailable&) {
    if (errno != EEXIST) throw;
    return false;
  }
  taken_ = next;
  return true;
}

}  // namespace fenceguard
