// A claim that equals its fence, with a million fences in memory: FenceCache against the same look-up (name
// found, token and holder compared) in a std::unordered_map behind a std::mutex. Then two threads against
// one, and the memory that a cached fence takes.

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>

#include "bench/measure.hpp"
#include "guard/store/fence_cache.hpp"

namespace fenceguard::bench {
namespace {

constexpr std::size_t fences = 1'000'000;

// The yardstick.
class LockedMap {
 public:
  void put(const Resource& resource, const Fence& fence) {
    const std::scoped_lock lock{mutex_};
    fences_.insert_or_assign(resource.name(), fence);
  }
  [[nodiscard]] bool equals(const Claim& claim) {
    const std::scoped_lock lock{mutex_};
    const auto found = fences_.find(claim.resource.name());
    return found != fences_.end() && found->second.token == claim.token &&
           found->second.holder == claim.holder;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Fence> fences_;
};

Claim claim_of(std::size_t number) {
  return {Resource{resource_name(number)}, Token{static_cast<std::int64_t>(number + 1)},
          Holder{holder_id(number)}, std::nullopt};
}

// All claims in random order.
std::vector<Claim> shuffled_claims(unsigned seed) {
  std::vector<std::size_t> order(fences);
  for (std::size_t i = 0; i < fences; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64{seed});
  std::vector<Claim> claims;
  claims.reserve(fences);
  for (const std::size_t number : order) claims.push_back(claim_of(number));
  return claims;
}

[[noreturn]] void fail(const char* what) {
  fmt::print(stderr, "cache_bench: {}\n", what);
  std::exit(1);
}

// Nanoseconds per claim.
double time_cache(const FenceCache& cache, const std::vector<Claim>& claims) {
  const Stopwatch watch;
  std::size_t admitted = 0;
  for (const Claim& claim : claims) {
    const auto answer = cache.ask(claim, 0);
    if (answer && answer->verdict == Verdict::admitted) ++admitted;
  }
  const double seconds = watch.seconds();
  if (admitted != claims.size()) fail("a claim that equals its fence was not admitted by the cache");
  return seconds * 1e9 / static_cast<double>(claims.size());
}

double time_map(LockedMap& map, const std::vector<Claim>& claims) {
  const Stopwatch watch;
  std::size_t equal = 0;
  for (const Claim& claim : claims) equal += map.equals(claim) ? 1 : 0;
  const double seconds = watch.seconds();
  if (equal != claims.size()) fail("a claim that equals its fence was not found in the map");
  return seconds * 1e9 / static_cast<double>(claims.size());
}

// Claims per second of two threads together, each with an order of its own.
double rate_of_two(const FenceCache& cache, const std::vector<Claim>& first,
                   const std::vector<Claim>& second) {
  const Stopwatch watch;
  std::thread other{[&] { (void)time_cache(cache, second); }};
  (void)time_cache(cache, first);
  other.join();
  return static_cast<double>(first.size() + second.size()) / watch.seconds();
}

struct Growth {
  double heap;
  double resident;
};

// Fills both and answers what the cache took, in bytes per fence.
Growth fill(FenceCache& cache, LockedMap& map) {
  const auto heap_bytes = [] {
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double heap_before = heap_bytes();
  const auto resident_before = static_cast<double>(resident_bytes());
  for (std::size_t i = 0; i < fences; ++i) {
    const Claim claim = claim_of(i);
    if (cache.put(claim.resource, {claim.token, claim.holder, std::nullopt})) fail("a fence gave way");
  }
  const Growth growth{(heap_bytes() - heap_before) / fences,
                      (static_cast<double>(resident_bytes()) - resident_before) / fences};
  for (std::size_t i = 0; i < fences; ++i) {
    const Claim claim = claim_of(i);
    map.put(claim.resource, {claim.token, claim.holder, std::nullopt});
  }
  return growth;
}

void run(const Settings& settings) {
  const int rounds = settings.quick ? 3 : 9;
  // Room to spare: shards fill unevenly.
  FenceCache cache{fences + fences / 4};
  LockedMap map;
  const Growth growth = fill(cache, map);
  const auto claims = shuffled_claims(1);
  const auto other_order = shuffled_claims(2);

  const auto equal = alternate(
      rounds, [&] { return 1e9 / time_cache(cache, claims); }, [&] { return 1e9 / time_map(map, claims); });
  print({"claim that equals its fence", fmt::format("{:.2f}", equal.ratio.median),
         fmt::format("{:.0f} ns", 1e9 / equal.ours), fmt::format("{:.0f} ns", 1e9 / equal.other), ">= 0.77",
         equal});

  const auto threads = alternate(
      rounds, [&] { return rate_of_two(cache, claims, other_order); },
      [&] { return 1e9 / time_cache(cache, claims); });
  print({"two threads against one", fmt::format("{:.2f}", threads.ratio.median),
         fmt::format("{:.2f} M/s", threads.ours / 1e6), fmt::format("{:.2f} M/s", threads.other / 1e6),
         ">= 1.8", threads});
  const double bytes = std::max(growth.heap, growth.resident);
  print({"memory per cached fence", fmt::format("{:.0f} bytes", bytes),
         fmt::format("{:.0f} allocated, {:.0f} resident", growth.heap, growth.resident), "none",
         "<= 160 bytes"});
}

}  // namespace
}  // namespace fenceguard::bench

int main(int argc, char** argv) {
  fenceguard::bench::run(fenceguard::bench::read_settings(argc, argv));
}
