#include "server/fencing/open_methods.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "guard/error.hpp"
#include "server/fencing/command_method.hpp"
#include "server/fencing/http_method.hpp"

namespace fenceguard {
namespace {

constexpr std::string_view upstream_reset = "upstream-reset";

struct OwnMethod {
  std::string_view word;
  std::string_view storage;
};
// Those of storages, for what is said of one that does not fit.
constexpr std::array<OwnMethod, 3> own_methods{{{"terminate-backends", "a postgres: or mariadb: storage"},
                                                {"kill-client", "a redis: storage"},
                                                {upstream_reset, "serve in front of an http: storage"}}};

class UpstreamReset : public FenceMethod {
 public:
  [[nodiscard]] std::string name() const override { return std::string{upstream_reset}; }
  // What this guard resets of its own says nothing of another one.
  [[nodiscard]] bool fits(const TakeOver& take_over) const override { return !take_over.is_of_guard(); }
  [[nodiscard]] FenceResult run(const TakeOver& take_over, const FenceRun& run) override {
    if (!run.reset_upstream)
      return {FenceResult::Outcome::failure, "there is no data side, and so no connection to reset"};
    if (run.reset_upstream(take_over, run.limit)) return {FenceResult::Outcome::success, ""};
    return {FenceResult::Outcome::timeout, "an event loop did not answer"};
  }
};

std::unique_ptr<FenceMethod> open_method(const std::string& text, std::string_view storage,
                                         const OwnMethods& own) {
  const auto colon = std::min(text.find(':'), text.size());
  const std::string_view word{text.data(), colon};
  const auto parameter = std::string_view{text}.substr(std::min(colon + 1, text.size()));
  if (word == "command") return std::make_unique<CommandMethod>(std::string{parameter});
  if (word == "http" || word == "https")  // http:URL, or the URL itself
    return std::make_unique<HttpMethod>(parameter.starts_with("//") ? std::string_view{text} : parameter);
  if (own) {
    if (auto method = own(word, parameter)) return method;
  }
  for (const auto& [known, fits] : own_methods) {
    if (word == known)
      throw InvalidInput(
          fmt::format("--fence-method {}: it is for {}, and this is {}", known, fits, storage));
  }
  throw InvalidInput(
      fmt::format("--fence-method: '{}' is none; there are command:PATH, http:URL, https:URL, "
                  "terminate-backends, kill-client:WHICH and upstream-reset",
                  printable(word, 64)));
}

}  // namespace

std::vector<std::unique_ptr<FenceMethod>> open_fence_methods(const std::vector<std::string>& words,
                                                             std::string_view storage,
                                                             const OwnMethods& own) {
  std::vector<std::unique_ptr<FenceMethod>> methods;
  for (const auto& word : words) methods.push_back(open_method(word, storage, own));
  return methods;
}

std::unique_ptr<FenceMethod> open_lane_method(std::string_view word, std::string_view parameter) {
  if (word != upstream_reset) return nullptr;
  if (!parameter.empty()) throw InvalidInput("--fence-method upstream-reset: nothing follows it");
  return std::make_unique<UpstreamReset>();
}

}  // namespace fenceguard
