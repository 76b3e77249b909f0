#include "guard/cli/demo_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fenceguard::demo {
namespace {

constexpr std::array<std::pair<Step, const char*>, 9> step_words{{
    {Step::lock_held, "lock_held"},
    {Step::lock_granted, "lock_granted"},
    {Step::balance_read, "balance_read"},
    {Step::stopped, "stopped"},
    {Step::continued, "continued"},
    {Step::written, "written"},
    {Step::refused, "refused"},
    {Step::rolled_back, "rolled_back"},
    {Step::lock_released, "lock_released"},
}};

using Position = std::vector<Event>::const_iterator;

Position find_from(const Run& run, Position from, Step step, Party who) {
  return std::find_if(from, run.events.end(),
                      [&](const Event& event) { return event.step == step && event.who == who; });
}

Position find_first(const Run& run, Step step, Party who) {
  return find_from(run, run.events.begin(), step, who);
}

bool was_stopped_past_the_lease(const Run& run) {
  const auto pause = pause_of(run, Party::a);
  return pause && *pause > run.ttl;
}

bool lost_update_happened(const Run& run) {
  const auto resumed = find_first(run, Step::continued, Party::a);
  const auto late_write = find_from(run, resumed, Step::written, Party::a);
  const auto other_write = find_first(run, Step::written, Party::b);
  return other_write < resumed && late_write != run.events.end() && loss(run) == Loss::b;
}

bool refusal_saved_both(const Run& run) {
  const auto other_write = find_first(run, Step::written, Party::b);
  const auto resumed = find_first(run, Step::continued, Party::a);
  const auto refusal = find_from(run, resumed, Step::refused, Party::a);
  const auto rollback = find_from(run, refusal, Step::rolled_back, Party::a);
  const auto second_grant = find_from(run, rollback, Step::lock_granted, Party::a);
  const auto second_write = find_from(run, second_grant, Step::written, Party::a);
  if (other_write >= resumed || second_write == run.events.end()) return false;
  // A storage that its clients write to themselves answers a word, and no number.
  if (refusal->status != (run.direct ? 0 : 412)) return false;
  return second_grant->token > refusal->token && loss(run) == Loss::none;
}

}  // namespace

char letter(Party party) noexcept {
  return party == Party::a ? 'A' : 'B';
}

const char* to_string(Step step) noexcept {
  for (const auto& [candidate, word] : step_words)
    if (candidate == step) return word;
  return "";
}

std::optional<Step> parse_step(std::string_view word) noexcept {
  for (const auto& [step, candidate] : step_words)
    if (candidate == word) return step;
  return std::nullopt;
}

Loss loss(const Run& run) noexcept {
  if (run.final_balance == run.expected()) return Loss::none;
  if (run.final_balance == run.expected() - run.add_b) return Loss::b;
  if (run.final_balance == run.expected() - run.add_a) return Loss::a;
  return Loss::other;
}

bool is_as_it_must_be(const Run& run) {
  if (!was_stopped_past_the_lease(run)) return false;
  return run.guarded ? refusal_saved_both(run) : lost_update_happened(run);
}

std::string balance_sentence(const Run& run) {
  const auto shown = run.final_balance ? std::to_string(*run.final_balance) : std::string{"no balance"};
  switch (loss(run)) {
    case Loss::none:
      return fmt::format("{}: both updates survive", shown);
    case Loss::a:
      return fmt::format("{}, should be {}: A's +{} is LOST", shown, run.expected(), run.add_a);
    case Loss::b:
      return fmt::format("{}, should be {}: B's +{} is LOST", shown, run.expected(), run.add_b);
    case Loss::other:
      break;
  }
  return fmt::format("{}, should be {}: WRONG", shown, run.expected());
}

std::optional<std::chrono::microseconds> pause_of(const Run& run, Party party) {
  const auto stop = find_first(run, Step::stopped, party);
  const auto resumed = find_from(run, stop, Step::continued, party);
  if (resumed == run.events.end()) return std::nullopt;
  return resumed->ended - stop->ended;
}

}  // namespace fenceguard::demo
