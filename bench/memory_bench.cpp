// Two million distinct resources through the embedded storage with a cache of 100,000 fences: resident
// memory, sampled all the way, and every verdict against a model. The model is a formula, so that it takes no
// memory: resource n was last advanced to token n + 1 by its own holder, and is claimed again, at random and
// long after it has left the cache, with a lower token, with another holder, and with the same claim.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>

#include "adapters/sqlite/storage.hpp"
#include "bench/measure.hpp"

namespace fenceguard::bench {
namespace {

constexpr std::size_t cache_entries = 100'000;
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

void ask(FenceStore& store, Answers& answers, const Question& question) {
  answers.begin();
  store.advance(question.claim, [&answers, verdict = question.verdict,
                                 highest = question.highest](const Outcome<Ruling>& outcome) {
    answers.end(outcome.ok() && outcome.value().verdict == verdict && outcome.value().highest == highest);
  });
}

void run(const Settings& settings) {
  const std::uint64_t resources = settings.quick ? 400'000 : 2'000'000;
  const TemporaryFolder folder{settings.folder};
  StorageOptions options;
  options.initialise = true;
  options.cache_entries = cache_entries;
  const auto storage = sqlite::open_storage(folder.file("memory.db"), options);
  Answers answers;
  std::mt19937_64 random{7};
  // The cache is full and its index has grown after two fills; from then on nothing may grow.
  const std::uint64_t settled = 2 * cache_entries;
  std::size_t bytes_settled = 0;
  std::size_t bytes_most = 0;
  for (std::uint64_t n = 0; n < resources; ++n) {
    ask(storage->fences(), answers, first_claim(n));
    if (n % asked_again_every == 0 && n > 2 * outstanding_max) {
      // Not the last few, whose own advance may still be under way.
      const std::uint64_t earlier = random() % (n - outstanding_max);
      ask(storage->fences(), answers, later_claim(earlier, static_cast<unsigned>(random() % 3)));
    }
    if (n == settled) bytes_settled = resident_bytes();
    if (n > settled && n % 10'000 == 0) bytes_most = std::max(bytes_most, resident_bytes());
  }
  answers.wait_for_all();

  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1024 * 1024); };
  const std::string count = fmt::format("{} resources, cache of {}", resources, cache_entries);
  print({fmt::format("resident memory, {}", count),
         fmt::format("{:.2f}", mib(bytes_most) / mib(bytes_settled)),
         fmt::format("{:.1f} MiB at most", mib(bytes_most)),
         fmt::format("{:.1f} MiB after {}", mib(bytes_settled), settled), "<= 1.2"});
  print({fmt::format("wrong verdicts, {}", count), fmt::format("{}", answers.wrong()),
         fmt::format("{} wrong", answers.wrong()), fmt::format("{} asked", answers.judged()), "0"});
  if (answers.wrong() != 0) std::exit(1);
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  fenceguard::bench::run(fenceguard::bench::read_settings(argc, argv));
}
