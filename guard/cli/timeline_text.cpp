#include <fmt/format.h>

#include "guard/cli/timeline.hpp"
#include "guard/cli/timeline_table.hpp"
#include "guard/cli/timeline_words.hpp"

namespace fenceguard::demo {
namespace {

enum Lane : std::size_t { lane_time, lane_a, lane_b, lane_lock, lane_storage, lane_count };

// Each of those beside the time gets its share of the width.
std::vector<Column> columns_within(std::size_t width) {
  std::vector<Column> columns{{"time", 7}, {"client A", 24}, {"client B", 24}, {"lock", 17}, {"storage", 19}};
  constexpr std::size_t whole = 100;  // as the widths are made for
  constexpr std::size_t fixed = 7 + 5 * 2;
  for (std::size_t i = lane_a; i < lane_count; ++i)
    columns[i].width = columns[i].width * (width - fixed) / (whole - fixed);
  return columns;
}

std::vector<Cell> row_of(const Event& event, const Words& words) {
  std::vector<Cell> row(lane_count);
  row[lane_time].text = fmt::format("{:>7}", milliseconds_text(event.ended));
  row[event.who == Party::a ? lane_a : lane_b] = {words.client,
                                                  words.tone == Tone::pause ? Tone::pause : Tone::plain};
  row[lane_lock] = {words.lock, words.tone};
  row[lane_storage] = {words.storage, words.tone};
  return row;
}

std::string heading(const Run& run) {
  if (run.direct)
    return run.guarded
               ? "2. THROUGH THE GUARD: every write carries its token, and its own transaction judges it"
               : "1. ROUND THE GUARD: the same lock, but the clients write without their tokens";
  return run.guarded ? "2. THROUGH THE GUARD: every write carries its token, and the guard judges it"
                     : "1. ROUND THE GUARD: the same lock, but the clients write straight into the storage";
}

}  // namespace

std::string text_opening(const Run& run, const TextStyle& style) {
  return paragraph(fmt::format("Clients A and B share the account {}, which holds {}, and one lock for it. A "
                               "adds {}, B adds {}: in "
                               "the "
                               "end it must hold {}. A is stopped in the middle of its work, as a long "
                               "garbage collection would stop "
                               "it, "
                               "until its lease of {} on the lock has run out.",
                               run.resource, run.initial, run.add_a, run.add_b, run.expected(),
                               milliseconds_text(run.ttl)),
                   style);
}

std::string text_timeline(const Run& run, const TextStyle& style) {
  const auto words = words_of(run);
  Table table{columns_within(style.columns), style};
  for (std::size_t index = 0; index < run.events.size(); ++index) {
    const auto& event = run.events[index];
    const Lane client = event.who == Party::a ? lane_a : lane_b;
    if (event.step == Step::continued) table.stop(client, false);
    table.add(row_of(event, words[index]));
    if (event.step == Step::stopped) table.stop(client, true);
  }
  const auto tone = loss(run) == Loss::none ? Tone::good : Tone::bad;
  return paragraph(heading(run), style) + '\n' + table.take() +
         fmt::format("\n   The account holds {}.\n", painted(balance_sentence(run), tone, style));
}

std::string text_balances(const Run& round, const Run& through, const TextStyle& style) {
  const auto line = [&](const char* way, const Run& run) {
    const auto tone = loss(run) == Loss::none ? Tone::good : Tone::bad;
    return fmt::format("  {:19}{}\n", way, painted(balance_sentence(run), tone, style));
  };
  return "The balance in the end, read from the storage:\n" + line("round the guard:", round) +
         line("through the guard:", through);
}

}  // namespace fenceguard::demo
