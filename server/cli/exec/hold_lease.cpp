#include "server/cli/exec/hold_lease.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "server/cli/lease_end.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::chrono::milliseconds release_max{5'000};
constexpr std::array ending_signals{SIGTERM, SIGINT, SIGHUP};

// Rung by the signal handler, whatever thread it runs on, and by the loss of the lease.
int bell = -1;

void ring() {
  constexpr std::uint64_t one = 1;
  // Nothing can be done about a failure in a signal handler, and there is none: the counter is far from full.
  static_cast<void>(!::write(bell, &one, sizeof one));
}

void on_signal(int /*number*/) {
  const int saved = errno;
  ring();
  errno = saved;
}

void wait_for_bell() {
  std::uint64_t count = 0;
  while (::read(bell, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace

EndingSignals::EndingSignals() {
  bell = ::eventfd(0, EFD_CLOEXEC);
  if (bell < 0) throw Unavailable("no descriptor is left to wait for a signal");
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : ending_signals) ::sigaction(number, &action, nullptr);
}

EndingSignals::~EndingSignals() {
  for (const int number : ending_signals) std::signal(number, SIG_DFL);
  ::close(bell);
}

int stay(const EndingSignals& /*signals*/, TokenSource& source, Grant grant) {
  Lease lease{source, std::move(grant)};
  {
    const std::stop_callback on_loss{lease.lost(), ring};
    wait_for_bell();
  }
  const auto name = lease.claim().resource.name();
  if (!lease.lost().stop_requested()) {
    try {
      const auto ending = release_within([&] { return lease.release(); }, release_max);
      if (ending == Release::released) return exit_done;
      if (!ending) {
        complain(fmt::format("the lease of '{}' ends with this process: its source did not answer", name));
        leave(exit_done);
      }
    } catch (const Error& error) {
      // The connection goes with this process, and the lease with it.
      complain(fmt::format("the lease of '{}' ends with this process: {}", name, error.what()));
      return exit_done;
    }
  }
  complain(fmt::format("the lease of '{}' was lost", name));
  leave(exit_refused);
}

}  // namespace fenceguard::cli
