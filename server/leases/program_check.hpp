#pragma once

// ProgramCheck: whether the program behind a connection may write under the lease that is held for all
// clients. Its connection is of this tenure, but what it read may be of an earlier one: a driver connects
// again by itself and tells the program nothing. So it has to have begun after the tenure did, as far as can
// be seen; or to be the one that was named.
//
// One read of the machine's processes answers all that have come meanwhile, on a thread of its own.
//
// Thread safety: all calls may be made from any thread.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "guard/support/clock.hpp"
#include "server/net/loop.hpp"
#include "server/net/peer/peer_process.hpp"

namespace fenceguard {

class ProgramCheck {
 public:
  struct Tenure {
    BootClock::time_point begun{};
    // No other, and what descends from it, may; nothing: what began since.
    std::optional<net::Process> program{};
  };

  ProgramCheck();
  // What has not been answered is not answered any more.
  ~ProgramCheck() = default;
  ProgramCheck(const ProgramCheck&) = delete;
  ProgramCheck& operator=(const ProgramCheck&) = delete;

  // Why the program at the other end of socket may not, without a full stop: 'process 42 began before the
  // lease was taken'; empty: it may. REQUIRES: awaited on the loop's thread.
  [[nodiscard]] net::Task<std::string> objection_to(net::Loop& loop, int socket, Tenure tenure);

 private:
  // A coroutine's, whose timer ends at the limit or is cancelled by the answer; the loop's thread's own.
  struct Wait {
    explicit Wait(net::Loop& loop) : timer{loop.context()} {}
    net::Timer timer;
    std::optional<std::string> answer{};
  };
  struct Question {
    net::PeerEnd end;
    Tenure tenure;
    std::weak_ptr<net::Loop> loop;
    std::weak_ptr<Wait> wait;
  };
  static void answer(const Question& question, const std::string& objection);
  void run(const std::stop_token& stop);

  std::mutex mutex_;  // guards questions_
  std::vector<Question> questions_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace fenceguard
