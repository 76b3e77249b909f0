#pragma once

// CutOff: what exec does of --fence-method: the holder before is cut off behind the advance and before the
// command is run; and what the next one finds of this holder.
//
// Not thread-safe, but for stop().

#include <memory>
#include <string>
#include <vector>

#include "guard/claim.hpp"
#include "server/cli/terminal/settings.hpp"
#include "server/fencing/fencer.hpp"

namespace fenceguard::cli {

class CutOff {
 public:
  // Throws InvalidInput for a method that is none or does not fit, and for settings without effect.
  explicit CutOff(const Settings& settings);

  [[nodiscard]] bool is_on() const noexcept { return fencer_ != nullptr; }
  // Cuts off all holders up to overtaken; says on stderr what came of it. False: that failed, and the command
  // must not be run. Blocks.
  [[nodiscard]] bool run(const Claim& claim, std::int64_t overtaken);
  // Any thread: run() ends soon.
  void stop();

  // What the command is given so that its sessions can be told by the next holder: NAME=VALUE.
  [[nodiscard]] std::vector<std::string> variables(const Claim& claim) const;
  // The command is over and left nothing: the next holder need cut off nobody, where the storage can note
  // that. Throws as the storage.
  void finish(const Claim& claim) const;

 private:
  std::unique_ptr<Fencer> fencer_;  // null: no method is given
  std::optional<Url> storage_;
};

}  // namespace fenceguard::cli
