#pragma once

// Words: what each event of a run is called, the same in the text and in the picture. What follows from
// earlier events (who held the lock, whose lease ran out, what was overwritten) is worked out here.
//
// Pure; safe to use from any thread.

#include <string>
#include <vector>

#include "guard/cli/demo_run.hpp"
#include "guard/demonstration.hpp"

namespace fenceguard::demo {

// What the words are about, for colours.
using Tone = TaleEvent::Tone;

// The class of the style sheet that colours it.
[[nodiscard]] const char* class_of(Tone tone) noexcept;

struct Words {
  std::string client{};   // what the client does
  std::string lock{};     // what the lock service answers; empty: it was not asked
  std::string storage{};  // what the storage answers, or what the guard before it now holds; empty likewise
  Tone tone = Tone::plain;
  bool lease_ran_out = false;               // lock_granted: the lease of the other one had run out
  std::optional<std::int64_t> overwrote{};  // written: a balance that the client had not read is gone
};

// One entry per event of the run.
[[nodiscard]] std::vector<Words> words_of(const Run& run);

// The event in one sentence with its time, for who does not see the picture.
[[nodiscard]] std::string sentence_of(const Event& event, const Words& words);

// Whole milliseconds: '512 ms'.
[[nodiscard]] std::string milliseconds_text(std::chrono::microseconds time);

}  // namespace fenceguard::demo
