#pragma once

// Fencer: the fence methods of --fence-method, tried in order until one succeeds. For lanes they run on
// threads of its own, side by side for several resources.
//
// Thread safety: all calls may be made from any thread.

#include <memory>
#include <mutex>
#include <vector>

#include "guard/error.hpp"
#include "server/fencing/fence_method.hpp"
#include "server/lane/holder_fencer.hpp"

namespace fenceguard {

struct FencerOptions {
  // What follows where no method has succeeded.
  enum class OnFailure {
    wait,   // the take-over does not go on, and they are tried again
    go_on,  // it goes on all the same
  };
  std::vector<std::unique_ptr<FenceMethod>> methods;
  std::chrono::milliseconds timeout{10'000};  // of each
  OnFailure on_failure = OnFailure::go_on;
};

// One run of one method.
struct FenceReport {
  const TakeOver& take_over;
  const std::string& method;
  const FenceResult& result;
};

class Fencer : public HolderFencer {
 public:
  explicit Fencer(FencerOptions options);
  // Calls stop().
  ~Fencer() override;
  Fencer(const Fencer&) = delete;
  Fencer& operator=(const Fencer&) = delete;

  // Tries them now; true where one succeeded. told: of each run, on this thread. Blocks.
  [[nodiscard]] bool try_methods(const TakeOver& take_over,
                                 const std::function<void(const FenceReport&)>& told);
  // Whether there is a method for it.
  [[nodiscard]] bool can_cut(const TakeOver& take_over) const;
  [[nodiscard]] bool goes_on_after_failure() const noexcept {
    return options_.on_failure == FencerOptions::OnFailure::go_on;
  }
  [[nodiscard]] std::vector<std::string> method_names() const;

  // For lanes, before the first cut. reset_upstream: see FenceRun. told: of each run, on any thread; must not
  // block.
  void use(std::function<bool(const TakeOver&, std::chrono::milliseconds)> reset_upstream,
           std::function<void(const FenceReport&)> told);
  void cut_off(const Resource& resource, Token old_token, Token new_token, Done<bool> done) override;
  // Waits for the end of what is under way, which is asked to end. Nothing of use() is called afterwards.
  void stop() override;

 private:
  class Threads;

  const FencerOptions options_;
  std::function<bool(const TakeOver&, std::chrono::milliseconds)> reset_upstream_;
  std::function<void(const FenceReport&)> told_;
  std::stop_source stop_;
  std::mutex stop_mutex_;
  std::unique_ptr<Threads> threads_;
};

}  // namespace fenceguard
