// Takes a lease from the installed library and has a claim judged with it.

#include <cstdio>

#include "adapters/schemes.hpp"
#include "guard/judge.hpp"
#include "guard/lease.hpp"

int main() {
  using namespace fenceguard;
  auto source = open_source("sqlite:consumer.db");
  const auto lease = source->acquire(Resource{"accounts/42"});
  if (!lease) return std::puts("the lock of a new file is held"), 1;
  const auto ruling = judge({}, lease->claim());
  if (ruling.verdict != Verdict::admitted) return std::puts("the first claim was refused"), 1;
  const Claim late{lease->claim().resource, lease->claim().token, Holder{"somebody-else"}, {}};
  return judge({ruling.fence, 0}, late).verdict == Verdict::conflict ? 0 : 1;
}
