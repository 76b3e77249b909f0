#include "server/fencing/fencer.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

namespace fenceguard {
namespace {

constexpr std::size_t threads = 4;  // so many resources are cut off at a time; the others wait for their turn

}  // namespace

class Fencer::Threads {
 public:
  boost::asio::thread_pool pool{threads};
};

const char* to_string(FenceResult::Outcome outcome) noexcept {
  switch (outcome) {
    case FenceResult::Outcome::success:
      return "success";
    case FenceResult::Outcome::timeout:
      return "timeout";
    case FenceResult::Outcome::failure:
      break;
  }
  return "failure";
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string line{text.substr(0, bytes_max)};
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

Fencer::Fencer(FencerOptions options) : options_{std::move(options)} {}

Fencer::~Fencer() {
  stop();
}

std::vector<std::string> Fencer::method_names() const {
  std::vector<std::string> names;
  for (const auto& method : options_.methods) names.push_back(method->name());
  return names;
}

bool Fencer::can_cut(const TakeOver& take_over) const {
  return std::ranges::any_of(options_.methods, [&](const auto& method) { return method->fits(take_over); });
}

bool Fencer::try_methods(const TakeOver& take_over, const std::function<void(const FenceReport&)>& told) {
  const FenceRun run{options_.timeout, stop_.get_token(), reset_upstream_};
  for (const auto& method : options_.methods) {
    if (run.stop.stop_requested()) return false;
    if (!method->fits(take_over)) continue;
    const auto result = method->run(take_over, run);
    if (told) told({take_over, method->name(), result});
    if (result.outcome == FenceResult::Outcome::success) return true;
  }
  return false;
}

void Fencer::use(std::function<bool(const TakeOver&, std::chrono::milliseconds)> reset_upstream,
                 std::function<void(const FenceReport&)> told) {
  reset_upstream_ = std::move(reset_upstream);
  told_ = std::move(told);
}

void Fencer::cut_off(const Resource& resource, Token old_token, Token new_token, Done<bool> done) {
  const std::scoped_lock lock{stop_mutex_};
  if (!threads_ && !stop_.stop_requested()) threads_ = std::make_unique<Threads>();
  if (stop_.stop_requested()) throw Unavailable("the guard stops");
  boost::asio::post(threads_->pool,
                    [this, done = std::move(done),
                     take_over = TakeOver{resource.name(), old_token.value(), new_token.value()}] {
                      bool is_cut = false;
                      try {
                        is_cut = try_methods(take_over, told_);
                      } catch (const std::exception&) {
                        // No memory: it is not known to be cut off.
                      }
                      const bool is_ended = stop_.stop_requested();
                      if (is_cut || (goes_on_after_failure() && !is_ended)) return done(true);
                      done(Fault{FaultKind::unavailable, "no fence method has succeeded"});
                    });
}

void Fencer::stop() {
  stop_.request_stop();
  std::unique_ptr<Threads> threads;
  {
    const std::scoped_lock lock{stop_mutex_};
    threads.swap(threads_);
  }
  // Not under the mutex: what is answered may begin the next cut, which is refused.
  if (threads) threads->pool.join();
}

}  // namespace fenceguard
