#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/doctor/doctor.hpp"
#include "server/http/client.hpp"

namespace fenceguard::proxy {
namespace {

void require_answer(const Url& url) {
  const auto target = url.path + (url.path.ends_with('/') ? "" : "/") + "fenceguard-doctor";
  const auto status = http::Client{"http://" + url.authority}
                          .send({.method = "GET", .target = target, .fields = {}, .body = {}})
                          .status;
  if (status != 200 && status != 404) throw Unavailable(fmt::format("the storage answered {}", status));
}

}  // namespace

// What can be seen from here of the upstream. That it has no other way in can not.
Findings examine_storage(const Url& url) {
  Findings findings;
  if (url.scheme == "http") {
    try {
      require_answer(url);
      findings.push_back({Finding::Level::ok, "upstream", "answers"});
    } catch (const Unavailable& error) {
      findings.push_back({Finding::Level::warning, "upstream", error.what()});
    } catch (const OutcomeUnknown& error) {
      findings.push_back({Finding::Level::danger, "upstream",
                          fmt::format("it began no answer that could be read: {}", error.what())});
    }
  }
  findings.push_back({Finding::Level::warning, "other ways in",
                      "cannot be seen from here: nothing but the guard may reach the upstream, and it must "
                      "finish or abandon a request within --settle"});
  return findings;
}

}  // namespace fenceguard::proxy
