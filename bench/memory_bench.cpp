// Ten million distinct resources through the embedded storage with a cache of 100,000 fences (--quick:
// 400,000 and 10,000): resident memory, sampled all the way, and every verdict against a model. The model is
// a formula, so that it takes no memory: resource n was last advanced to token n + 1 by its own holder, and
// is claimed again, at random and long after it has left the cache, with a lower token, with another holder,
// and with the same claim. Then the rate of verdicts and of advances, beside that of a second storage with a
// tenth of the resources.

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>

#include "adapters/sqlite/storage.hpp"
#include "bench/measure.hpp"

namespace fenceguard::bench {
namespace {

constexpr int outstanding_max = 512;
constexpr std::uint64_t asked_again_every = 4;

// Answers that are still awaited, and those that were wrong.
class Answers {
 public:
  void begin() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return outstanding_ < outstanding_max; });
    ++outstanding_;
  }
  void end(bool is_right) {
    const std::scoped_lock lock{mutex_};
    ++judged_;
    wrong_ += is_right ? 0 : 1;
    --outstanding_;
    changed_.notify_one();
  }
  void wait_for_all() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return outstanding_ == 0; });
  }
  [[nodiscard]] std::uint64_t judged() const { return judged_; }
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int outstanding_ = 0;
  std::uint64_t judged_ = 0;
  std::uint64_t wrong_ = 0;
};

struct Question {
  Claim claim;
  Verdict verdict;  // as the model has it
  std::int64_t highest;
};

Question first_claim(std::uint64_t n) {
  const auto token = static_cast<std::int64_t>(n + 1);
  return {{Resource{resource_name(n)}, Token{token}, Holder{holder_id(n)}, std::nullopt},
          Verdict::admitted,
          token};
}

// A claim on a resource that was advanced before.
Question later_claim(std::uint64_t n, unsigned kind) {
  Question question = first_claim(n);
  if (kind == 0 && n > 0) {
    question.claim.token = Token{question.highest - 1};
    question.verdict = Verdict::stale;
  } else if (kind == 1) {
    question.claim.holder = Holder{"another"};
    question.verdict = Verdict::conflict;
  }
  return question;
}

// A storage in which every resource below a number was advanced.
class Filled {
 public:
  Filled(const std::string& path, std::size_t cache_entries) : hot_{cache_entries / 2} {
    StorageOptions options;
    options.initialise = true;
    options.cache_entries = cache_entries;
    storage_ = sqlite::open_storage(path, options);
  }

  // Advances the resources up to count, and asks again for one in asked_again_every of the earlier ones. step
  // is told of each.
  void fill(std::uint64_t count, const std::function<void(std::uint64_t)>& step) {
    for (; resources_ < count; ++resources_) {
      ask(first_claim(resources_));
      if (resources_ % asked_again_every == 0 && resources_ > 2 * outstanding_max) {
        // Not the last few, whose own advance may still be under way.
        const std::uint64_t earlier = random_() % (resources_ - outstanding_max);
        ask(later_claim(earlier, static_cast<unsigned>(random_() % 3)));
      }
      step(resources_);
    }
    answers_.wait_for_all();
  }

  // Verdicts per second of claims that equal their fence, which is in the cache.
  [[nodiscard]] double cached_verdicts(int count) {
    for (std::uint64_t n = 0; n < hot_; ++n) ask(first_claim(n));
    answers_.wait_for_all();
    return measure(count, [this] { return first_claim(random_() % hot_); });
  }
  // Of claims with a lower token on any resource, few of which are in the cache.
  [[nodiscard]] double verdicts(int count) {
    return measure(count, [this] { return later_claim(1 + random_() % (resources_ - 1), 0); });
  }
  // Durable advances per second of any resource. The model of fill() holds no more.
  [[nodiscard]] double advances(int count) {
    return measure(count, [this] {
      Question question = first_claim(random_() % resources_);
      question.highest = static_cast<std::int64_t>(resources_ + ++advances_);
      question.claim.token = Token{question.highest};
      return question;
    });
  }
  [[nodiscard]] const Answers& answers() const { return answers_; }

 private:
  double measure(int count, const std::function<Question()>& next) {
    const Stopwatch watch;
    for (int i = 0; i < count; ++i) ask(next());
    answers_.wait_for_all();
    return count / watch.seconds();
  }
  void ask(const Question& question) {
    answers_.begin();
    storage_->fences().advance(question.claim, [this, verdict = question.verdict,
                                                highest = question.highest](const Outcome<Ruling>& outcome) {
      answers_.end(outcome.ok() && outcome.value().verdict == verdict && outcome.value().highest == highest);
    });
  }

  const std::uint64_t hot_;
  std::uint64_t resources_ = 0;
  std::uint64_t advances_ = 0;
  std::mt19937_64 random_{7};
  Answers answers_;
  std::unique_ptr<Storage> storage_;
};

// Fills large and tells how its memory grew.
void measure_memory(Filled& large, std::uint64_t resources, const std::string& count) {
  const std::uint64_t settled = resources / 10;
  std::size_t bytes_settled = 0;
  std::size_t bytes_most = 0;
  large.fill(resources, [&](std::uint64_t n) {
    if (n == settled) bytes_settled = resident_bytes();
    if (n > settled && n % 10'000 == 0) bytes_most = std::max(bytes_most, resident_bytes());
  });
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1024 * 1024); };
  print({fmt::format("resident memory, {}", count),
         fmt::format("{:.2f}", mib(bytes_most) / mib(bytes_settled)),
         fmt::format("{:.1f} MiB at most", mib(bytes_most)),
         fmt::format("{:.1f} MiB after {}", mib(bytes_settled), settled), "<= 1.2"});
}

void compare(const std::string& name, const char* target, const Settings& settings,
             const std::function<double()>& ours, const std::function<double()>& other) {
  const Sides sides = alternate(settings.quick ? 3 : 9, ours, other);
  print({name, fmt::format("{:.2f}", sides.ratio.median), fmt::format("{:.0f}/s", sides.ours),
         fmt::format("{:.0f}/s", sides.other), target, sides});
}

void run(const Settings& settings) {
  const std::uint64_t resources = settings.quick ? 400'000 : 10'000'000;
  const std::size_t cache_entries = settings.quick ? 4'000 : 100'000;
  const int asked = settings.quick ? 20'000 : 100'000;
  const std::string count = fmt::format("{} resources, cache of {}", resources, cache_entries);
  const std::string beside = fmt::format("{}, beside {}", count, resources / 10);
  const TemporaryFolder folder{settings.folder};
  Filled large{folder.file("large.db"), cache_entries};
  measure_memory(large, resources, count);
  Filled small{folder.file("small.db"), cache_entries};
  small.fill(resources / 10, [](std::uint64_t) {});

  const auto line = [&](const char* what, const char* target, double (Filled::*rate)(int)) {
    compare(
        fmt::format("{}, {}", what, beside), target, settings, [&] { return (large.*rate)(asked); },
        [&] { return (small.*rate)(asked); });
  };
  line("verdicts from the cache", ">= 0.9", &Filled::cached_verdicts);
  line("verdicts of any resource", ">= 0.9", &Filled::verdicts);
  line("durable advances of any resource", "none", &Filled::advances);

  const std::uint64_t wrong = large.answers().wrong() + small.answers().wrong();
  print({fmt::format("wrong verdicts, {}", count), fmt::format("{}", wrong), fmt::format("{} wrong", wrong),
         fmt::format("{} asked", large.answers().judged() + small.answers().judged()), "0"});
  if (wrong != 0) std::exit(1);
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  fenceguard::bench::run(fenceguard::bench::read_settings(argc, argv));
}
