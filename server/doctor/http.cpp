#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/demo/clients/clients.hpp"
#include "server/doctor/doctor.hpp"

namespace fenceguard::proxy {

// What can be seen from here of the upstream. That it has no other way in can not.
Findings examine_storage(const Url& url) {
  Findings findings;
  if (url.scheme == "http") {
    try {
      static_cast<void>(open_raw_client(url)->read("fenceguard-doctor"));
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
