#pragma once

// TaleStage: the stage on which a product tells its story (guard/demonstration.hpp), with the processes and
// the interrupts of the demonstration.
//
// Not thread-safe.

#include <string>
#include <vector>

#include "guard/cli/demo_process.hpp"
#include "guard/demonstration.hpp"

namespace fenceguard::demo {

class TaleStage : public Stage {
 public:
  // Makes the folder. REQUIRES: interrupts outlives the stage.
  TaleStage(Interrupts& interrupts, std::string folder);

  [[nodiscard]] const std::string& folder() const override { return folder_; }
  [[nodiscard]] std::unique_ptr<StageProcess> start(const StageCommand& command) override;
  void wait(std::chrono::milliseconds time) override;
  void wait_until(const std::function<bool()>& condition, std::string_view what) override;
  void note(TaleEvent event) override;

  [[nodiscard]] std::vector<TaleEvent> take_events() { return std::move(events_); }

 private:
  Interrupts& interrupts_;
  std::string folder_;
  BootClock::time_point began_;
  std::vector<TaleEvent> events_;
  int started_ = 0;  // processes
};

}  // namespace fenceguard::demo
