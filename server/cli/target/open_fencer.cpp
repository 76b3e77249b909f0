#include "server/cli/target/open_fencer.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/fencing/open_methods.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::chrono::milliseconds timeout_min{10};

// A setting that would have no effect is refused: the operator that gives it counts on it.
void require_methods(const Settings& settings) {
  if (settings.text("fence-on-failure") != "continue")
    throw InvalidInput("--fence-on-failure is for a --fence-method, and none is given");
  if (settings.text("fence-timeout") != "10s")
    throw InvalidInput("--fence-timeout is for a --fence-method, and none is given");
}

FencerOptions options_of(const Settings& settings) {
  FencerOptions options;
  options.timeout = settings.duration("fence-timeout");
  if (options.timeout < timeout_min)
    throw InvalidInput(fmt::format("--fence-timeout: at least {}ms", timeout_min.count()));
  const auto what = settings.text("fence-on-failure");
  if (what != "wait" && what != "continue") throw InvalidInput("--fence-on-failure: wait or continue");
  options.on_failure = what == "wait" ? FencerOptions::OnFailure::wait : FencerOptions::OnFailure::go_on;
  return options;
}

}  // namespace

std::shared_ptr<Fencer> open_lane_fencer(const Settings& settings, const Url& storage) {
  const auto words = settings.list("fence-method");
  auto options = options_of(settings);
  if (words.empty()) {
    require_methods(settings);
    return nullptr;
  }
  options.methods =
      open_fence_methods(words, fmt::format("serve in front of a {}: storage", storage.scheme),
                         products().find(storage).needs_state ? open_lane_method : OwnMethods{});
  if (!products().find(storage).needs_state)
    throw InvalidInput(fmt::format(
        "--fence-method: serve has it in front of an http: storage alone; a {}: storage checks every write "
        "itself, and 'exec' cuts off for it",
        storage.scheme));
  return std::make_shared<Fencer>(std::move(options));
}

std::unique_ptr<Fencer> open_exec_fencer(const Settings& settings) {
  const auto words = settings.list("fence-method");
  auto options = options_of(settings);
  if (words.empty()) {
    require_methods(settings);
    return nullptr;
  }
  if (settings.is_given("server"))
    throw InvalidInput("--fence-method: with --server the guard that runs there has its own");
  const auto storage = settings.url("storage");
  if (!storage)
    throw InvalidInput(
        "--fence-method: give --storage too: its fence tells whether there was a holder before");
  const auto& product = products().find(*storage);
  const auto own = [&](std::string_view word, std::string_view parameter) -> std::unique_ptr<FenceMethod> {
    if (!product.open_fence_method) return nullptr;
    return product.open_fence_method(*storage, word, parameter);
  };
  options.methods = open_fence_methods(words, fmt::format("exec on a {}: storage", storage->scheme), own);
  return std::make_unique<Fencer>(std::move(options));
}

}  // namespace fenceguard::cli
