#pragma once

// StateOwner: which guard has a state that lies on storage of several machines, where a lock of one may not
// be seen by another. Beside the state lie files PATH-owner.N; the highest N names the present owner's
// machine. The next one makes N + 1, which only one process can do, whatever locks are worth there; none is
// ever removed, so that one that comes late finds its number taken. A guard that ends says so in its file;
// one that is killed leaves it as it is.
//
// On one machine locks tell whether the owner lives: that of the state, and from take() on, which comes
// before it, PATH-owner.lock-MACHINE, which no other machine looks at. Else one that takes and ends between
// another one's take() and its start would leave word that nobody has the state, while that one serves. Of an
// owner on another machine nothing here tells: it must be shown to be dead before take().
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "guard/support/descriptor.hpp"

namespace fenceguard {

class StateOwner {
 public:
  // state: the file. machine: of this process; empty: as machine_name(). Throws Unavailable where the folder
  // cannot be read.
  explicit StateOwner(std::string state, std::string machine = {});
  // Gives back what it took. REQUIRES: nothing uses the state any more.
  ~StateOwner();
  StateOwner(const StateOwner&) = delete;
  StateOwner& operator=(const StateOwner&) = delete;

  // Throws Unavailable where guards with StateOwners use, or used, the state: one without is not seen by
  // them. state: the file; its folder need not be there.
  static void require_none(const std::string& state);

  // Looks again, and answers the machine of the owner that has not ended; empty: there is none, or it is this
  // machine. Throws Unavailable where that cannot be read.
  [[nodiscard]] std::string other_machine();

  // Of what other_machine() saw: the owner has not ended, and is or was a process of this machine. The
  // state's lock is to be free before take() then.
  [[nodiscard]] bool is_on_this_machine() const noexcept { return is_here_; }
  [[nodiscard]] const std::string& state() const noexcept { return state_; }

  // Becomes the owner after the one that other_machine() saw, durably. False: another was faster, or one
  // of this machine lives. Throws Unavailable where that cannot be written.
  [[nodiscard]] bool take();

 private:
  [[nodiscard]] std::string file(std::int64_t number) const;
  [[nodiscard]] std::int64_t find_last() const;
  void write(const std::string& path, const std::string& text) const;
  // True: no other of this machine takes, for as long as this lives.
  [[nodiscard]] bool lock();

  const std::string state_;
  const std::string machine_;
  std::int64_t seen_ = 0;  // number of the last owner
  bool is_here_ = false;
  std::int64_t taken_ = 0;  // our own; 0: none
  std::optional<Descriptor> lock_;
};

// Its identity in /etc/machine-id and its host name, so that neither cloned disks nor containers are taken
// for one.
[[nodiscard]] std::string machine_name();

}  // namespace fenceguard
