#pragma once

// Demonstration: a story that an adapter tells of its own product under 'fenceguard demo', with real
// processes: first the damage without the guard, then the refusal with it. What is shown is what the
// processes answered.
//
// The adapter tells it, the command line gives it a stage (processes, a folder, a clock) and shows what it
// noted. Whatever ends a telling, a signal included, unwinds the stack: processes and folder go with their
// owners.
//
// Not thread-safe.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/token.hpp"

namespace fenceguard {

// One line of a story: somebody did something, and perhaps somebody answered.
struct TaleEvent {
  enum class Tone { plain, token, pause, good, bad };

  std::string who;       // one of the demonstration's lanes
  std::string what;      // ASCII, as all of these
  std::string where{};   // the lane that answered; empty: nobody was asked
  std::string answer{};  // what it said
  Tone tone = Tone::plain;
  std::optional<Token> token{};    // under which it was done
  std::chrono::microseconds at{};  // since the telling began; set by the stage
};

// What came of one telling.
struct TaleEnd {
  bool is_as_it_must_be = false;             // what the telling is there to show was observed
  std::string outcome;                       // one sentence, from what was observed
  std::map<std::string, std::string> facts;  // the observations it rests on, by name; numbers in decimal
};

// A process of the story; dies with its owner, and with us.
class StageProcess {
 public:
  virtual ~StageProcess() = default;
  [[nodiscard]] virtual int pid() const noexcept = 0;
  // Lines of its stdin and stdout. Throw Unavailable if it ended; receive_line() also if it said nothing for
  // 10 seconds.
  virtual void send_line(const std::string& line) = 0;
  [[nodiscard]] virtual std::string receive_line() = 0;
  // SIGSTOP, and returns when it has stopped; SIGCONT; SIGKILL, and returns when it is gone.
  virtual void pause() = 0;
  virtual void resume() = 0;
  virtual void kill() = 0;
  // True if it has ended.
  [[nodiscard]] virtual bool is_over() = 0;
};

struct StageCommand {
  std::string program{};  // found on PATH; empty: this program itself
  std::string package{};  // the Debian package that has it, for the message where it is missing
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment{};  // added to ours, of which no FENCEGUARD_... is passed on
};

class Stage {
 public:
  virtual ~Stage() = default;

  // Of this telling alone, and empty at its start.
  [[nodiscard]] virtual const std::string& folder() const = 0;

  // What it writes to stderr is kept in the folder. Throws Unavailable if the program is not there.
  [[nodiscard]] virtual std::unique_ptr<StageProcess> start(const StageCommand& command) = 0;

  // Waits for so long.
  virtual void wait(std::chrono::milliseconds time) = 0;

  // Asks until it is true. Throws Unavailable after ten seconds: 'WHAT did not come about'.
  virtual void wait_until(const std::function<bool()>& condition, std::string_view what) = 0;

  // Adds to the story, at the present time.
  virtual void note(TaleEvent event) = 0;
};

struct Demonstration {
  std::string_view name;
  std::string_view summary;             // one line for --help
  std::string_view opening;             // what is going to be told, a few sentences
  std::vector<std::string_view> lanes;  // at most four: who takes part
  // Tells it, without the guard or with it. Throws Unavailable where it cannot be told to its end.
  std::function<TaleEnd(Stage&, bool guarded)> tell;
  // What a process of the story does that is this program itself, started with the arguments 'demo-actor',
  // the story's name and words: a client that must be a process, so that it can be paused or killed. It talks
  // in lines of stdin and stdout. Empty: there is none.
  std::function<void(const std::vector<std::string>& words)> act{};
};

}  // namespace fenceguard
