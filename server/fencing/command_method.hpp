#pragma once

// CommandMethod: a program that shuts the old holder out; exit status 0 says that it did. It is run without
// arguments, with nothing of this process but its user and its working directory: a fixed PATH,
// FENCING_RESOURCE, FENCING_OLD_TOKEN and FENCING_NEW_TOKEN are its whole environment, its input is empty,
// and it inherits no descriptor. It runs in a process group of its own, which is killed when its time is over
// and when this process dies, however it dies; what left the group (setsid) is not.
//
// Of what it prints the first few KB are kept, and the rest is read and dropped.

#include "server/fencing/fence_method.hpp"

namespace fenceguard {

class CommandMethod : public FenceMethod {
 public:
  // Throws InvalidInput unless path is an executable file.
  explicit CommandMethod(std::string path);

  [[nodiscard]] std::string name() const override { return "command"; }
  [[nodiscard]] FenceResult run(const TakeOver& take_over, const FenceRun& run) override;

 private:
  const std::string path_;
};

}  // namespace fenceguard
