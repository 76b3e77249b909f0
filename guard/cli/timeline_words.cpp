#include "guard/cli/timeline_words.hpp"

#include <fmt/format.h>

namespace fenceguard::demo {
namespace {

// A shorter wait for the lock is no part of the story.
constexpr std::chrono::milliseconds worth_telling{50};

std::string number(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "?";
}
std::string number(const std::optional<Token>& token) {
  return token ? to_string(*token) : "?";
}

// Follows a run event by event and names each in the light of those before.
class Narrator {
 public:
  explicit Narrator(const Run& run) : run_{run}, stored_{run.initial} {}

  Words name(const Event& event) {
    switch (event.step) {
      case Step::lock_held:
        return {.client = "asks for the lock", .lock = held_text()};
      case Step::lock_granted:
        return granted(event);
      case Step::balance_read:
        return {.client = "reads the balance", .storage = fmt::format("{}", number(event.balance))};
      case Step::stopped:
        stopped_at_ = event.ended;
        return {.client = "STOPPED by SIGSTOP", .tone = Tone::pause};
      case Step::continued:
        return continued(event);
      case Step::written:
        return written(event);
      case Step::refused:
        return refused(event);
      case Step::rolled_back:
        return {.client = fmt::format("rolls back: drops {}", number(event.balance))};
      case Step::lock_released:
        holder_.reset();
        return {.client = "gives the lock back", .lock = "free"};
    }
    return {};
  }

 private:
  [[nodiscard]] std::string held_text() const {
    return holder_ ? fmt::format("no: {} holds it", letter(*holder_)) : "no: it is held";
  }

  Words granted(const Event& event) {
    Words words{.client = "takes the lock", .tone = Tone::token};
    if (const auto waited = event.ended - event.began; waited >= worth_telling)
      words.client = fmt::format("gets the lock, having waited {}", milliseconds_text(waited));
    words.lease_ran_out = holder_ && *holder_ != event.who;
    words.lock = fmt::format("token {} for {}", number(event.token), letter(event.who));
    if (words.lease_ran_out) words.lock = fmt::format("{}'s lease ran out; {}", letter(*holder_), words.lock);
    if (run_.guarded && event.highest)
      words.storage = fmt::format("{}: {} or higher", run_.direct ? "fence" : "guard", number(event.highest));
    holder_ = event.who;
    return words;
  }

  [[nodiscard]] Words continued(const Event& event) const {
    return {.client = fmt::format("GOES ON after {}, and believes that it still holds the lock",
                                  milliseconds_text(event.ended - stopped_at_)),
            .tone = Tone::pause};
  }

  Words written(const Event& event) {
    Words words{.client = write_text(event), .storage = fmt::format("{} is stored", number(event.balance))};
    if (event.based_on && *event.based_on != stored_) {
      words.overwrote = stored_;
      words.storage = fmt::format("{} is stored, and the {} of {} is gone", number(event.balance), stored_,
                                  letter(writer_.value_or(event.who)));
      words.tone = Tone::bad;
    }
    if (event.balance) stored_ = *event.balance;
    writer_ = event.who;
    return words;
  }

  [[nodiscard]] Words refused(const Event& event) const {
    return {.client = write_text(event),
            .storage = fmt::format("REFUSED as stale: token {} is below {}", number(event.token),
                                   number(event.highest)),
            .tone = Tone::good};
  }

  [[nodiscard]] std::string write_text(const Event& event) const {
    std::string text = fmt::format("writes {}", number(event.balance));
    if (event.balance && event.based_on)
      text = fmt::format("writes {} + {} = {}", *event.based_on, *event.balance - *event.based_on,
                         *event.balance);
    return run_.guarded ? fmt::format("{}, token {}", text, number(event.token)) : text;
  }

  const Run& run_;
  std::int64_t stored_;
  std::optional<Party> holder_;
  std::optional<Party> writer_;
  std::chrono::microseconds stopped_at_{};
};

}  // namespace

std::vector<Words> words_of(const Run& run) {
  std::vector<Words> words;
  words.reserve(run.events.size());
  Narrator narrator{run};
  for (const auto& event : run.events) words.push_back(narrator.name(event));
  return words;
}

std::string sentence_of(const Event& event, const Words& words) {
  auto sentence = fmt::format("{}: {} {}", milliseconds_text(event.ended), letter(event.who), words.client);
  if (!words.lock.empty()) sentence += fmt::format("; the lock service: {}", words.lock);
  if (!words.storage.empty()) sentence += fmt::format("; the storage: {}", words.storage);
  return sentence + '.';
}

std::string milliseconds_text(std::chrono::microseconds time) {
  return fmt::format("{} ms", std::chrono::round<std::chrono::milliseconds>(time).count());
}

const char* class_of(Tone tone) noexcept {
  switch (tone) {
    case Tone::token:
      return "token";
    case Tone::pause:
      return "pause";
    case Tone::good:
      return "good";
    case Tone::bad:
      return "bad";
    case Tone::plain:
      break;
  }
  return "plain";
}

}  // namespace fenceguard::demo
