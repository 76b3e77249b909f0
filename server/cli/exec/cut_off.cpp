#include "server/cli/exec/cut_off.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/cli/exec/pgoptions.hpp"
#include "server/cli/target/open_fencer.hpp"
#include "server/cli/terminal/output.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {

CutOff::CutOff(const Settings& settings) : fencer_{open_exec_fencer(settings)} {
  if (fencer_) storage_ = settings.url("storage");
}

bool CutOff::run(const Claim& claim, std::int64_t overtaken) {
  const TakeOver take_over{claim.resource.name(), overtaken, claim.token.value()};
  const auto told = [](const FenceReport& report) {
    complain(fmt::format("fence method {}: {}{}{}", report.method, to_string(report.result.outcome),
                         report.result.detail.empty() ? "" : ": ", report.result.detail));
  };
  if (fencer_->try_methods(take_over, told)) return true;
  return fencer_->goes_on_after_failure();
}

void CutOff::stop() {
  if (fencer_) fencer_->stop();
}

std::vector<std::string> CutOff::variables(const Claim& claim) const {
  if (!fencer_ || !products().find(*storage_).name_sessions) return {};
  return {products().find(*storage_).name_sessions(claim)};
}

void CutOff::finish(const Claim& claim) const {
  if (!fencer_) return;
  if (const auto& finish_holder = products().find(*storage_).finish_holder) finish_holder(*storage_, claim);
}

}  // namespace fenceguard::cli
