#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <functional>
#include <thread>

#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/source/lease_term.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/exec/cut_off.hpp"
#include "server/cli/exec/pgoptions.hpp"
#include "server/cli/exec/signals.hpp"
#include "server/cli/exec/supervisor.hpp"
#include "server/cli/lease_end.hpp"
#include "server/cli/target/open_fencer.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

constexpr int exit_lost = 124;
constexpr int exit_own_fault = 125;
constexpr std::chrono::milliseconds give_up_within{2'000};
constexpr std::chrono::milliseconds release_min{
    1'000};  // how long a release may take whatever --kill-after is

// Makes group the terminal's foreground group, if we have a terminal and from_group is its foreground group
// now.
void hand_terminal(pid_t from_group, pid_t group) {
  const int terminal = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return;
  if (::tcgetpgrp(terminal) == from_group) ::tcsetpgrp(terminal, group);
  ::close(terminal);
}

// Stops this process as Ctrl-Z would; returns when it was continued, or at once where no process could
// continue it.
void stop_self() {
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  std::signal(SIGTSTP, SIG_DFL);
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &stop, &before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Gives the lock back, where the command was not run or has ended, and answers the exit status: status,
// unless the lease was lost before. Ends the process where the source does not answer in time.
int release(std::function<Release()> release, std::chrono::milliseconds limit, int status) {
  try {
    const auto ending = release_within(std::move(release), limit);
    if (!ending) {
      complain(
          fmt::format("the lock is free when its time to live is over: its source did not answer within {}ms",
                      limit.count()));
      leave(status);
    }
    if (*ending == Release::released) return status;
    complain("the lease was lost before the command ended");
    return exit_lost;
  } catch (const Error& error) {
    complain(fmt::format("the lock is free when its time to live is over: {}", error.what()));
    return status;
  }
}

// Takes the lock on a thread of its own, so that signals are heard meanwhile.
class Acquisition {
 public:
  explicit Acquisition(const Settings& settings) {
    thread_ = std::jthread{[this, &settings](const std::stop_token& stop) {
      try {
        if (hands_over_by_pgoptions(settings)) refuse_pooler(settings);
        source_ = open_source(settings);
        taken_ = take(settings, *source_,
                      {.ttl = settings.duration("ttl"), .wait = settings.duration("wait"), .stop = stop});
      } catch (...) {
        failure_ = std::current_exception();
      }
      bell_.ring();
    }};
  }

  // Waits for its end. Answers a signal that asked us to end, and then gives the lock back, for which the
  // source has release_max.
  int wait(const Signals& signals, std::chrono::milliseconds release_max) {
    for (int ending_signal = 0;;) {
      std::array<pollfd, 2> ready{{{bell_.descriptor(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}}};
      const int limit_ms = ending_signal == 0 ? -1 : static_cast<int>(give_up_within.count());
      // A source that does not answer is left behind; the lease, if there will be one, ends with its time to
      // live.
      if (::poll(ready.data(), ready.size(), limit_ms) == 0) std::_Exit(128 + ending_signal);
      if (ready[0].revents != 0) {
        thread_.join();
        if (ending_signal != 0 && taken_.grant) {
          (void)release([this] { return source_->release(taken_.grant->claim); }, release_max,
                        128 + ending_signal);
        }
        return ending_signal;
      }
      for (int number = 0; (number = signals.next()) != 0;) {
        if (number == SIGTSTP) stop_self();
        if (number == SIGTSTP || number == SIGCONT) continue;
        if (ending_signal != 0) std::_Exit(128 + number);
        ending_signal = number;
        thread_.request_stop();
      }
    }
  }

  [[nodiscard]] const Taken& taken() const {
    if (failure_) std::rethrow_exception(failure_);
    return taken_;
  }
  [[nodiscard]] TokenSource& source() { return *source_; }

 private:
  Bell bell_;
  std::unique_ptr<TokenSource> source_;
  Taken taken_;
  std::exception_ptr failure_;
  std::jthread thread_;
};

// The command's life under its lease.
class Tenure {
 public:
  struct Terms {
    std::string signature;                  // of the lease's claim; empty: none
    std::function<std::string()> why_lost;  // for people, once the lease was lost
    bool has_pgoptions = false;             // the command's sessions of PostgreSQL have the claim
    std::vector<std::string> variables{};   // further ones: NAME=VALUE
  };
  Tenure(Supervisor& supervisor, const Signals& signals, Lease& lease, Terms terms)
      : supervisor_{supervisor}, signals_{signals}, lease_{lease}, terms_{std::move(terms)} {}

  // Runs the command to its end; answers its wait status. is_lost() tells whether the lease was.
  int run() {
    const std::stop_callback on_loss{lease_.lost(), [this] { bell_.ring(); }};
    const auto& claim = lease_.claim();
    std::vector<std::string> variables{"FENCING_RESOURCE=" + claim.resource.name(),
                                       "FENCING_TOKEN=" + to_string(claim.token),
                                       "FENCING_HOLDER=" + claim.holder.id()};
    if (!terms_.signature.empty()) variables.push_back("FENCING_SIGNATURE=" + terms_.signature);
    if (terms_.has_pgoptions) variables.push_back(pgoptions_variable(claim));
    variables.insert(variables.end(), terms_.variables.begin(), terms_.variables.end());
    supervisor_.run(variables);
    for (;;) {
      std::array<pollfd, 3> ready{{{supervisor_.descriptor(), POLLIN, 0},
                                   {signals_.descriptor(), POLLIN, 0},
                                   {is_lost_ ? -1 : bell_.descriptor(), POLLIN, 0}}};
      ::poll(ready.data(), ready.size(), -1);
      if (ready[2].revents != 0) lose();
      if (ready[1].revents != 0) forward_signals();
      if (ready[0].revents == 0) continue;
      const auto message = supervisor_.receive();
      if (message.kind == SupervisorMessage::Kind::started) group_ = static_cast<pid_t>(message.value);
      if (message.kind == SupervisorMessage::Kind::stopped)
        stop_with_command(static_cast<int>(message.value));
      if (message.kind == SupervisorMessage::Kind::overdue && !is_lost_) lose();
      if (message.kind == SupervisorMessage::Kind::gone) kill_abandoned();
      leaves_nothing_ = message.kind == SupervisorMessage::Kind::ended;
      if (leaves_nothing_ || message.kind == SupervisorMessage::Kind::left) {
        hand_terminal(group_, ::getpgrp());
        return static_cast<int>(message.value);
      }
    }
  }

  [[nodiscard]] bool is_lost() const noexcept { return is_lost_ || lease_.lost().stop_requested(); }
  // Of the command, and known.
  [[nodiscard]] bool leaves_nothing() const noexcept { return leaves_nothing_; }

 private:
  void lose() {
    is_lost_ = true;
    supervisor_.end();
    complain(fmt::format("the lease of '{}' was lost; its command is ended: {}",
                         lease_.claim().resource.name(), terms_.why_lost()));
  }

  void forward_signals() {
    for (int number = 0; (number = signals_.next()) != 0;) {
      if (number == SIGCONT) {
        resume();
      } else {
        supervisor_.send_signal(number);
      }
    }
  }

  // The shell sees one job: exec stops with its command, and the command is continued with exec; but for one
  // whose time was over meanwhile, which the supervisor does not continue.
  void stop_with_command(int number) {
    if (is_lost_ || (number != SIGTSTP && number != SIGTTIN && number != SIGTTOU)) return;
    hand_terminal(group_, ::getpgrp());
    stop_self();
    resume();
  }

  // What is to be continued is so if the lease is still held, which is asked at once.
  void resume() {
    hand_terminal(::getpgrp(), group_);
    supervisor_.resume();
    lease_.renew_now();
  }

  [[noreturn]] void kill_abandoned() const {
    // The lock is given back after this, so the end of the group is waited for.
    const auto give_up_at = BootClock::now() + std::chrono::nanoseconds{give_up_within};
    while (group_ > 0 && ::kill(-group_, SIGKILL) == 0 && BootClock::now() < give_up_at) {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    hand_terminal(group_, ::getpgrp());
    throw Unavailable("the command's supervisor was killed, and the command with it");
  }

  Supervisor& supervisor_;
  const Signals& signals_;
  Lease& lease_;
  const Terms terms_;
  Bell bell_;
  pid_t group_ = 0;
  bool is_lost_ = false;
  bool leaves_nothing_ = false;
};

// Cuts off the holder before while signals are heard, under a lease that is renewed meanwhile. Answers a
// signal that asked us to end, 0: none did; is_cut tells whether the command may be run.
int cut_off_before(CutOff& cut_off, const Signals& signals, const Lease& lease, std::int64_t overtaken,
                   bool& is_cut) {
  is_cut = overtaken == 0;
  if (is_cut) return 0;
  const Bell bell;
  int ending_signal = 0;
  {
    const std::jthread thread{[&] {
      is_cut = cut_off.run(lease.claim(), overtaken);
      bell.ring();
    }};
    const std::stop_callback on_loss{lease.lost(), [&] { bell.ring(); }};
    for (bool is_over = false; !is_over;) {
      std::array<pollfd, 2> ready{{{bell.descriptor(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}}};
      ::poll(ready.data(), ready.size(), -1);
      is_over = ready[0].revents != 0;
      for (int number = 0; (number = signals.next()) != 0;) {
        if (number == SIGTSTP) stop_self();
        if (number != SIGTSTP && number != SIGCONT) ending_signal = number;
      }
      is_over = is_over || ending_signal != 0;
    }
    if (ending_signal != 0 || lease.lost().stop_requested()) cut_off.stop();
  }
  if (ending_signal == 0 && !is_cut) complain("not run: the holder before could not be cut off");
  return ending_signal;
}

// Runs the command to its end; its exit status.
int run(Tenure& tenure) {
  try {
    const int wait_status = tenure.run();
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  } catch (const Error& error) {
    complain(error.what());
    return exit_own_fault;
  }
}

// The fence before the lock, so that the next holder finds that there is nobody to cut off.
Release finish_and_release(const CutOff& cut_off, bool leaves_nothing, Lease& lease) {
  try {
    if (leaves_nothing) cut_off.finish(lease.claim());
  } catch (const Error& error) {
    complain(fmt::format("the next holder cuts off this one, which is over: {}", error.what()));
  }
  return lease.release();
}

// From SIGTERM to SIGKILL under a lease of ttl. It is taken off the lease's end, so that the command is over
// before the next holder is let in; half of the lease at least is left to renew it in. Throws InvalidInput.
std::chrono::milliseconds kill_after(const Settings& settings, std::chrono::milliseconds ttl) {
  const auto asked = settings.duration("kill-after");
  if (asked <= ttl / 2) return asked;
  if (!settings.is_given("kill-after")) return ttl / 2;
  throw InvalidInput(fmt::format(
      "--kill-after {}ms leaves no time to renew a lease of {}ms, because the command is ended so "
      "much before the lease is over: give a --ttl of at least {}ms, or a --kill-after of at most "
      "{}ms",
      asked.count(), ttl.count(), 2 * asked.count(), (ttl / 2).count()));
}

int conflict_exit_code(const Settings& settings) {
  const auto code = settings.number("conflict-exit-code");
  if (code > 255) throw InvalidInput("--conflict-exit-code: 0 to 255");
  return static_cast<int>(code);
}

int exec(const Settings& settings) {
  require_one_way(settings);
  require_sensible_ttl(settings.duration("ttl"));
  const int not_acquired = conflict_exit_code(settings);
  if (settings.command.empty()) throw InvalidInput("the command is missing; it stands behind '--'");
  if (settings.is_given("server")) static_cast<void>(open_server(settings));
  static_cast<void>(hands_over_by_pgoptions(settings));
  CutOff cut_off{settings};

  const Signals signals;
  const SupervisedCommand command{.words = settings.command,
                                  .hidden_variables = hidden_variables(),
                                  .kill_after = kill_after(settings, settings.duration("ttl"))};
  Supervisor supervisor{command, signals.before()};
  std::signal(SIGPIPE, SIG_IGN);  // after the fork: the command keeps what it would have had

  Acquisition acquisition{settings};
  const auto release_max = std::max(release_min, command.kill_after);
  if (const int number = acquisition.wait(signals, release_max); number != 0) return 128 + number;
  const auto& taken = acquisition.taken();
  if (!taken.grant) {
    complain(taken.refusal
                 ? fmt::format("not run: the guard refused the claim as {}", to_string(*taken.refusal))
                 : "not run: the lock is held by another holder");
    return not_acquired;
  }
  // The source may have granted less than was asked for.
  std::chrono::milliseconds time_to_stop{};
  try {
    time_to_stop = kill_after(settings, taken.grant->ttl);
  } catch (const InvalidInput& error) {
    complain(fmt::format("not run: the source granted {}ms: {}", taken.grant->ttl.count(), error.what()));
    return release([&] { return acquisition.source().release(taken.grant->claim); }, release_max,
                   exit_own_fault);
  }
  supervisor.set_kill_after(time_to_stop);
  if (acquisition.source().lives_by_connection()) {
    const LeaseTerm term{taken.grant->ttl, taken.grant->asked_at, time_to_stop};
    supervisor.confirm_before_continuing(term.lost_at() - taken.grant->asked_at);
  }
  Lease lease{acquisition.source(),
              *taken.grant,
              {.time_to_stop = time_to_stop,
               .held_until = [&supervisor](BootClock::time_point moment) { supervisor.work_until(moment); }}};
  bool is_cut = false;
  const int number = cut_off_before(cut_off, signals, lease, taken.overtaken, is_cut);
  if (number == 0 && lease.lost().stop_requested()) {
    complain("not run: the lease was lost while the holder before was cut off");
    leave(exit_lost);
  }
  if (number != 0 || !is_cut)
    return release([&] { return lease.release(); }, release_max, number != 0 ? 128 + number : exit_own_fault);
  Tenure tenure{supervisor,
                signals,
                lease,
                {.signature = taken.signature,
                 .why_lost = [&] { return describe_loss(settings, lease); },
                 .has_pgoptions = hands_over_by_pgoptions(settings),
                 .variables = cut_off.variables(lease.claim())}};
  const int status = run(tenure);
  // A lost lease is not ours to give back, and the renewal that is under way would be waited for.
  if (tenure.is_lost()) leave(exit_lost);
  // What failed may have left work elsewhere: a backend, a job behind ssh.
  const bool leaves_nothing = tenure.leaves_nothing() && status == 0;
  return release([&] { return finish_and_release(cut_off, leaves_nothing, lease); }, release_max, status);
}

}  // namespace

Command exec_command() {
  const Setting kill_after{
      .name = "kill-after",
      .kind = Kind::duration,
      .placeholder = "TIME",
      .fallback = "5s",
      .help =
          "from SIGTERM to SIGKILL, where the command must end; taken off the end of the "
          "lease, so at most half of --ttl, which is also the default where --ttl is "
          "short. Afterwards the source has as long to take the lock back, and a second "
          "at least"};
  const Setting conflict{.name = "conflict-exit-code",
                         .kind = Kind::number,
                         .placeholder = "N",
                         .fallback = "1",
                         .help = "exit status where the lock was not acquired"};
  return {
      .name = "exec",
      .synopsis = "--source URL [--storage URL] | --server URL  --resource RESOURCE -- COMMAND…",
      .summary = "run a command under a lock",
      .settings = {source_setting, storage_setting, server_setting, server_token_setting,
                   server_token_file_setting, resource_setting, ttl_setting, wait_setting, init_setting,
                   claim_key_setting, claim_space_setting, fence_method_setting, fence_on_failure_setting,
                   fence_timeout_setting, pgoptions_setting, kill_after, conflict, config_setting},
      .run = exec,
      .notes =
          "The command finds FENCING_RESOURCE, FENCING_TOKEN and FENCING_HOLDER in its environment, and "
          "FENCING_SIGNATURE where the claim is signed. Where --storage is a PostgreSQL database, PGOPTIONS "
          "has the claim as well, so that a command which knows nothing of it writes protected tables "
          "under it; connection options of its own (Django's OPTIONS) would replace it, and a pooler "
          "passes nothing on. With --fence-method the holder before is cut off first, unless its exec noted "
          "that it "
          "was "
          "over. Exit status: the command's own; 124 the lease "
          "was lost and the command ended; 125 a fault of exec; "
          "126 "
          "the command cannot be run; 127 it was not found; 128+N it died of signal N.",
      .usage_status = exit_own_fault,
      .fault_status = exit_own_fault,
      .takes_command_line = true};
}

}  // namespace fenceguard::cli
