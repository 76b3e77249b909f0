#pragma once

// What the benchmarks of servers share: rates of loops, of threads and of processes, other programs as the
// other side, and the line that a rate ends in.

#include <fmt/format.h>

#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.hpp"

namespace fenceguard::bench {

// So many in a second.
template <class Function>
double rate(int count, Function&& function) {
  const Stopwatch watch;
  for (int i = 0; i < count; ++i) function(i);
  return count / watch.seconds();
}

// Threads that start together; make_worker(thread) makes what each calls count times.
template <class MakeWorker>
double rate_of_threads(int threads, int count, MakeWorker&& make_worker) {
  std::latch ready{threads + 1};
  std::vector<std::jthread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      auto work = make_worker(i);
      ready.arrive_and_wait();
      for (int n = 0; n < count; ++n) work(n);
    });
  }
  ready.arrive_and_wait();
  const Stopwatch watch;
  running.clear();
  return threads * count / watch.seconds();
}

// The sum of the numbers that so many copies of a command, run at once, print. Throws std::runtime_error if
// one fails.
[[nodiscard]] double sum_of(int copies, const std::vector<std::string>& words);
// This program again, as a worker: --worker and words.
[[nodiscard]] double sum_of_workers(int copies, std::vector<std::string> words);

void print_rates(const std::string& name, const Sides& sides, const std::string& target);

}  // namespace fenceguard::bench
