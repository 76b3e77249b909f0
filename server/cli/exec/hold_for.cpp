#include "server/cli/exec/hold_for.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "guard/error.hpp"
#include "guard/support/text.hpp"
#include "guard/token.hpp"
#include "server/cli/exec/supervisor.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::chrono::milliseconds kill_after_max{5'000};

// It began before this process, and so before every tenure. That it has read nothing yet is what the operator
// says of the first one.
class NamedProcess final : public ProgramToHoldFor {
 public:
  explicit NamedProcess(net::Process process) : process_{process} {}

  // Ending it is not ours to do.
  [[nodiscard]] std::chrono::milliseconds time_to_stop() const override { return {}; }
  void begin(BootClock::time_point /*until*/, std::function<void()> /*overdue*/) override {}
  void work_until(BootClock::time_point /*moment*/) override {}
  void end() override { close(); }
  void close() override {
    const std::scoped_lock lock{mutex_};
    is_over_ = true;
  }
  [[nodiscard]] std::optional<net::Process> root() const override {
    const std::scoped_lock lock{mutex_};
    if (is_over_) return std::nullopt;
    return process_;
  }
  [[nodiscard]] std::optional<int> exit_status() const override { return std::nullopt; }

 private:
  const net::Process process_;
  mutable std::mutex mutex_;
  bool is_over_ = false;
};

// All that it starts stays below its supervisor, which lives as long as this process. Nothing of one tenure
// is left in the next one, so that what is below it belongs to the present one.
class RepeatedCommand final : public ProgramToHoldFor {
 public:
  explicit RepeatedCommand(SupervisedCommand command) : command_{std::move(command)} {
    sigset_t mask;
    sigprocmask(SIG_BLOCK, nullptr, &mask);
    supervisor_.emplace(command_, mask);
    root_ = net::find_process(supervisor_->process());
  }
  ~RepeatedCommand() override {
    close();
    ::shutdown(supervisor_->descriptor(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  RepeatedCommand(const RepeatedCommand&) = delete;
  RepeatedCommand& operator=(const RepeatedCommand&) = delete;

  [[nodiscard]] std::chrono::milliseconds time_to_stop() const override { return command_.kill_after; }

  void begin(BootClock::time_point until, std::function<void()> overdue) override {
    const std::scoped_lock lock{mutex_};
    if (is_closed_ || is_running_) return;
    if (!thread_.joinable()) thread_ = std::jthread{[this] { listen(); }};
    is_running_ = true;
    is_ended_by_us_ = false;
    overdue_ = std::move(overdue);
    supervisor_->run({}, until);
    spdlog::info("event=\"program started\"");
  }

  // The supervisor may stand still while another call waits for it.
  void work_until(BootClock::time_point moment) override {
    const std::unique_lock lock{mutex_, std::try_to_lock};
    if (lock && is_running_ && !is_ended_by_us_) supervisor_->work_until(moment);
  }

  void end() override {
    std::unique_lock lock{mutex_};
    if (!is_running_) return;
    is_ended_by_us_ = true;
    supervisor_->end();
    changed_.wait(lock, [this] { return !is_running_; });
  }

  void close() override {
    {
      const std::scoped_lock lock{mutex_};
      is_closed_ = true;
    }
    end();
  }

  // Where the supervisor itself cannot be seen nothing is below it.
  [[nodiscard]] std::optional<net::Process> root() const override {
    const std::scoped_lock lock{mutex_};
    return is_closed_ ? net::Process{} : root_.value_or(net::Process{});
  }

  [[nodiscard]] std::optional<int> exit_status() const override {
    const std::scoped_lock lock{mutex_};
    return status_;
  }

 private:
  using Kind = SupervisorMessage::Kind;

  void listen() {
    for (;;) {
      const auto message = supervisor_->receive();
      const bool is_gone = message.kind == Kind::gone;
      if (message.kind == Kind::overdue) give_up();
      if (message.kind != Kind::ended && message.kind != Kind::left && !is_gone) continue;
      const std::scoped_lock lock{mutex_};
      is_running_ = false;
      changed_.notify_all();
      // What did not end would pass for the next run: there is none.
      const bool is_next_unsafe = is_gone || (message.kind == Kind::left && is_ended_by_us_);
      if (!is_closed_ && (is_next_unsafe || !is_ended_by_us_))
        end_this_process(is_next_unsafe ? 125 << 8 : static_cast<int>(message.value));
      if (is_gone) return;
    }
  }

  // Its time is over, and the supervisor ends it: the tenure is over as well, whether it is lost or not.
  void give_up() {
    std::function<void()> overdue;
    {
      const std::scoped_lock lock{mutex_};
      is_ended_by_us_ = true;
      overdue = std::exchange(overdue_, {});
    }
    spdlog::warn("event=\"program ended\" reason=\"the lease was not known to be renewed in time\"");
    if (overdue) overdue();
  }

  void end_this_process(int wait_status) {
    status_ = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    spdlog::warn("event=\"program ended\" status={}", *status_);
    is_closed_ = true;
    ::kill(::getpid(), SIGTERM);
  }

  const SupervisedCommand command_;
  std::optional<Supervisor> supervisor_;
  std::optional<net::Process> root_;
  mutable std::mutex mutex_;  // guards the next five
  std::function<void()> overdue_;
  bool is_running_ = false;
  bool is_ended_by_us_ = false;
  bool is_closed_ = false;
  std::optional<int> status_;
  std::condition_variable changed_;
  std::jthread thread_;
};

std::shared_ptr<ProgramToHoldFor> open_named(const std::string& digits) {
  const auto id = parse_decimal(digits);
  const bool is_id = id && *id > 0 && *id <= std::numeric_limits<pid_t>::max();
  const auto process = is_id ? net::find_process(static_cast<pid_t>(*id)) : std::nullopt;
  if (!process) throw InvalidInput(fmt::format("--hold-for: process {} is not seen here", digits));
  return std::make_shared<NamedProcess>(*process);
}

}  // namespace

std::shared_ptr<ProgramToHoldFor> open_program(const std::string& text, std::chrono::milliseconds hold_ttl,
                                               std::vector<std::string> hidden_variables) {
  if (text.empty()) return nullptr;
  const bool is_number = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (is_number) return open_named(text);
  return std::make_shared<RepeatedCommand>(
      SupervisedCommand{.words = {"/bin/sh", "-c", text},
                        .hidden_variables = std::move(hidden_variables),
                        .kill_after = std::min(kill_after_max, hold_ttl / 2),
                        .is_repeated = true});
}

}  // namespace fenceguard::cli
