#include "guard/cli/timeline.hpp"
#include "guard/cli/timeline_page.hpp"
#include "guard/cli/timeline_svg.hpp"
#include "guard/cli/timeline_words.hpp"

namespace fenceguard::demo {
namespace {

std::string way_of(const Run& run) {
  if (!run.guarded)
    return "Both clients take the lock, but write straight into the storage, which knows of no lock. ";
  if (run.direct)
    return "The same story, but every write carries its token, judged in the transaction that writes. ";
  return "The same story, but every write carries its token to the guard in front of the storage. ";
}

std::string explanation(const Run& run) {
  const std::string text = way_of(run);
  if (!is_as_it_must_be(run)) return text + "This time it did not come out as it must.";
  return text + (run.guarded
                     ? "The guard has seen B's higher token, so A's late write is refused and A starts again."
                     : "Nobody there knows that A's lease is over, so A's late write replaces B's.");
}

PageSection section(const Run& run, std::string_view id) {
  const auto words = words_of(run);
  PageSection section;
  section.heading = run.guarded ? "2. Through the guard" : "1. Round the guard";
  section.explanation = explanation(run);
  section.outcome = "Balance in the end: " + balance_sentence(run);
  section.is_good = loss(run) == Loss::none;
  section.picture = svg_picture(run, id);
  for (std::size_t index = 0; index < run.events.size(); ++index)
    section.steps.push_back(sentence_of(run.events[index], words[index]));
  return section;
}

}  // namespace

std::string timeline_page(PageForm form, const Run& round, const Run& through) {
  return form("a paused client, round the guard and through it", text_opening(round, {}),
              section(round, "round"), section(through, "through"));
}

}  // namespace fenceguard::demo
