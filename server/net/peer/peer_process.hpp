#pragma once

// Which processes of this machine are at the other end of a connection, and since when what they have in
// their memory can be there. Linux tells: SO_PEERCRED for a Unix socket, and for TCP sock_diag(7) and the
// descriptors in /proc. Where it does not (another machine, another network or process namespace, descriptors
// of another user's), the answer is that nothing is known, and never a guess.
//
// Thread safety: all calls may be made from any thread. They read files; find_processes() reads the
// descriptors of every process, which takes longer than an event loop may stand still.

#include <sys/socket.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "guard/support/clock.hpp"
#include "guard/support/descriptor.hpp"

namespace fenceguard::net {

// An id is given again once its process is gone; with its beginning it names one process.
struct Process {
  pid_t id = 0;
  BootClock::time_point begun{};  // rounded down to the ticks of /proc; in the time namespace of this process

  [[nodiscard]] bool operator==(const Process&) const = default;
};

// How coarse those ticks are: of two processes that began within one, neither is seen to be the older.
[[nodiscard]] BootClock::duration process_tick() noexcept;

// Nothing: there is none, or it cannot be seen.
[[nodiscard]] std::optional<Process> find_process(pid_t id);

// Nothing that the process has in its memory is older than this. A process that was forked and has not run a
// program since has its parent's memory, so that the parent's beginning counts. What a program was given as
// it was started, and a connection that another process handed over, is not seen. Nothing: it is not known.
[[nodiscard]] std::optional<BootClock::time_point> memory_begun(const Process& process);

// Whether process is ancestor, or a child of it, or of one of those, while all between them live.
[[nodiscard]] bool descends_from(const Process& process, const Process& ancestor);

// What a connected socket tells of its other end at once.
class PeerEnd {
 public:
  explicit PeerEnd(int socket);

 private:
  friend std::vector<std::vector<Process>> find_processes(const std::vector<PeerEnd>& ends);
  [[nodiscard]] std::optional<Process> connecting_process() const;

  sockaddr_storage here_{}, there_{};
  pid_t id_ = 0;                           // that connected a Unix socket; 0: it is TCP, or not known
  std::shared_ptr<Descriptor> id_holder_;  // a pidfd of it, which only newer systems give
};

// For each end the processes that have it open; none: not known.
[[nodiscard]] std::vector<std::vector<Process>> find_processes(const std::vector<PeerEnd>& ends);

}  // namespace fenceguard::net
